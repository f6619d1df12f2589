"""`schedo store migrate`: prepares the tables of a store in PostgreSQL."""

from __future__ import annotations

import asyncio

import click

from schedo.cli.connection import as_json
from schedo.cli.errors import BadConfiguration, on_files
from schedo.cli.escapes import escape
from schedo.cli.serve import config_file, load
from schedo.cli.tables import print_json
from schedo.store import is_postgres, open_postgres, without_password


@click.group()
def store() -> None:
    """Prepare a store in PostgreSQL."""


@store.command()
@click.option("--store", metavar="STORE", help="The store.  [default: that of the configuration]")
@config_file
@as_json
def migrate(store: str | None, path: str | None, is_json: bool) -> None:
    """Bring the schema of a store in PostgreSQL to the version that this schedo needs.

    A server does it when it starts. With this command, the user of the server needs no right to
    change tables: run it as another one before the start. A server of the version before may go on
    meanwhile, unless the command says that it may not open the schema afterwards.
    """
    url = load(path, {"store": store}).store
    if not is_postgres(url):
        raise BadConfiguration(
            f"{url} is not in PostgreSQL; a server changes its own file when it starts"
        )
    with on_files():
        done = asyncio.run(open_postgres(url).migrate())
    shown = without_password(url)
    if is_json:
        print_json({"store": shown, "before": done.before, "schema": done.after})
    elif done.before == done.after:
        click.echo(f"{escape(shown)} has schema {done.after} already")
    else:
        click.echo(f"{escape(shown)} has schema {done.after} now, before {done.before or 'none'}")
