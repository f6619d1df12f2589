"""`schedo clock`: moves the clock of a server that was started with --test-clock."""

from __future__ import annotations

from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.tables import print_json
from schedo.cli.value_types import DURATION
from schedo.client import operations
from schedo.client.sync import Client


@click.group()
def clock() -> None:
    """Move the clock of a test server (schedo serve --test-clock)."""


@clock.command()
@click.argument("by", metavar="[DURATION]", required=False, type=DURATION)
@click.option("--to", metavar="INSTANT", help="Move it there, such as 2026-03-29T06:00:00Z.")
@click.option(
    "--settle",
    type=DURATION,
    help="The longest real time to wait for running jobs at each instant; by default 5s.",
)
@as_json
@connected
def advance(client: Client, by: str | None, is_json: bool, **options: Any) -> None:
    """Move the clock, and wait for all that becomes due."""
    if (by is None) == (options["to"] is None):
        raise click.UsageError("give either DURATION or --to INSTANT")
    moved = client.send(operations.advance_clock({"by": by, **options}))
    if is_json:
        print_json(moved)
        return
    running = moved["running"]
    click.echo(f"{moved['now']}{f', {running} jobs still run' if running else ''}")
