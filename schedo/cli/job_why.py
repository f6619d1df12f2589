"""The tables of `schedo jobs why` and `schedo invoke --dry-run`: checks, and what workers say."""

from __future__ import annotations

import click

from schedo.cli.escapes import escape
from schedo.cli.tables import print_table
from schedo.client.messages import Record


def print_checks(record: Record) -> None:
    """Print the tables of an explanation; a job that runs or has ended has none."""
    checks = record.get("checks", [])
    if len(checks) > 1:
        click.echo()
        rows = [(check["what"].replace("_", " "), *_describe(check)) for check in checks]
        print_table(("CHECK", "HOLDS", "DETAIL"), rows)
    _print_workers(record)


def print_dry_run(found: Record) -> None:
    """Print whether an invocation would start now, and what each worker says."""
    click.echo(escape(found["text"]))
    _print_workers(found)


def _print_workers(record: Record) -> None:
    workers = record.get("workers", [])
    if workers:
        click.echo()
        names = ("worker", "server") if "server" in workers[0] else ("worker",)
        rows = [(*(each[name] for name in names), *_describe(each)) for each in workers]
        print_table((*map(str.upper, names), "TAKES IT", "DETAIL"), rows)
    if record.get("has_more_workers"):
        click.echo("schedo: there are more workers; see schedo workers ls", err=True)


def _describe(found: Record) -> tuple[str, str]:
    """Return whether a check holds, or a worker takes the job, and why."""
    if found["ok"]:
        return "yes", found["text"]
    return "never" if found["permanent"] else "not now", found["text"]
