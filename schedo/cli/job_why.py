"""The tables of `schedo jobs why`: the checks of a waiting job, and what each worker says."""

from __future__ import annotations

import click

from schedo.cli.tables import print_table
from schedo.client.messages import Record


def print_checks(record: Record) -> None:
    """Print the tables of an explanation; a job that runs or has ended has none."""
    checks, workers = record.get("checks", []), record.get("workers", [])
    if len(checks) > 1:
        click.echo()
        rows = [(check["what"].replace("_", " "), *_describe(check)) for check in checks]
        print_table(("CHECK", "HOLDS", "DETAIL"), rows)
    if workers:
        click.echo()
        rows = [(worker["worker"], *_describe(worker)) for worker in workers]
        print_table(("WORKER", "TAKES IT", "DETAIL"), rows)
    if record.get("has_more_workers"):
        click.echo("schedo: there are more workers; see schedo workers ls", err=True)


def _describe(found: Record) -> tuple[str, str]:
    """Return whether a check holds, or a worker takes the job, and why."""
    if found["ok"]:
        return "yes", found["text"]
    return "never" if found["permanent"] else "not now", found["text"]
