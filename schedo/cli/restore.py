"""`schedo restore`: puts a backup in place of a store, whose server then starts paused."""

from __future__ import annotations

import click

from schedo.cli.connection import as_json
from schedo.cli.errors import on_files
from schedo.cli.escapes import escape
from schedo.cli.serve import config_file, load
from schedo.cli.store_files import path_of
from schedo.cli.tables import print_json
from schedo.clock import SystemClock


@click.command()
@click.argument("file")
@click.option("--store", metavar="STORE", help="The store.  [default: that of the configuration]")
@click.option(
    "--force", "is_forced", is_flag=True, help="Keep an existing store aside, under a dated name."
)
@config_file
@as_json
def restore(file: str, store: str | None, is_forced: bool, path: str | None, is_json: bool) -> None:
    """Put the backup FILE in place of a store whose server is stopped.

    The backup is checked before. Its server starts paused, because the original may still run the
    same jobs: no job starts and no schedule fires until `schedo resume`, or a start with `schedo
    serve --resume`. Instants that have passed since the backup are then caught up by the policy of
    each schedule.
    """
    from schedo.store.sqlite.restore import restore_store

    target = path_of(store or load(path, {}).store)
    with on_files():
        kept = restore_store(file, target, SystemClock().now(), is_replacing=is_forced)
    if is_json:
        print_json({"store": target, "kept": kept})
        return
    for name in kept:
        click.echo(f"kept {escape(name)}")
    click.echo(f"{escape(target)} is restored; its server starts paused")
    click.echo("schedo resume, or a start with schedo serve --resume, ends the pause")
