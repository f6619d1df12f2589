"""`schedo names`: the names that the server knows, for scripts and for a look around."""

from __future__ import annotations

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.tables import print_json, print_table
from schedo.client.sync import Client

_KINDS = ("queues", "tasks", "schedules", "workers", "tags")


@click.command()
@click.option("--kind", type=click.Choice(_KINDS), help="Only names of this kind, one a line.")
@as_json
@connected
def names(client: Client, kind: str | None, is_json: bool) -> None:
    """List the names of queues, tasks, schedules, workers and tags."""
    found = client.list_names()
    if is_json:
        print_json(found if kind is None else found[kind])
    elif kind is not None:
        for name in found[kind]:
            click.echo(name)
    else:
        rows = [(name, each.removesuffix("s")) for each in _KINDS for name in found[each]]
        print_table(("NAME", "KIND"), rows)
