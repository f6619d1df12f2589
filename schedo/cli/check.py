"""`schedo check`: checks a store or a backup, also beside a running server."""

from __future__ import annotations

import click

from schedo.cli.connection import as_json
from schedo.cli.errors import on_files
from schedo.cli.escapes import escape
from schedo.cli.serve import config_file, load
from schedo.cli.store_files import path_of
from schedo.cli.tables import print_json
from schedo.errors import Exit
from schedo.protocol.times import render_instant


@click.command()
@click.argument("file", required=False)
@click.option("--full", "is_full", is_flag=True, help="Also compare each index with its table.")
@config_file
@as_json
@click.pass_context
def check(
    context: click.Context, file: str | None, is_full: bool, path: str | None, is_json: bool
) -> None:
    """Check a store or a backup: FILE, or the store of the configuration.

    It reads everything and changes nothing, and a server may use the store meanwhile. The exit code
    is 65 if something is wrong.
    """
    from schedo.store.sqlite.check import check_store

    with on_files():
        report = check_store(path_of(file or load(path, {}).store), is_full=is_full)
    if is_json:
        print_json(
            {
                "file": report.path,
                "server": report.is_held,
                "facts": report.facts,
                "passed": report.passed,
                "problems": report.problems,
            }
        )
    else:
        used = ", which a server uses" if report.is_held else ""
        click.echo(f"{escape(report.path)}{used}")
        for name, value in report.facts.items():
            shown = render_instant(value) if name.endswith("_at") else f"{value:,}"
            click.echo(f"       {name.replace('_', ' ')}: {shown}")
        for claim in report.passed:
            click.echo(f"ok     {claim}")
        for problem in report.problems:
            click.echo(f"WRONG  {escape(problem)}")
    if report.problems:
        context.exit(Exit.DAMAGED)
