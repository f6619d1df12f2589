"""`schedo timeseries`: figures over the last 15 minutes or 24 hours, a line for each interval."""

from __future__ import annotations

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.names import QUEUE
from schedo.cli.tables import print_json, print_table
from schedo.cli.times import read_now, render_time
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.core.limits import SECOND
from schedo.protocol.times import parse_instant, render_instant
from schedo.protocol.timeseries import POINTS_MAX, WINDOWS

_NAMES = ("submitted", "started", "completed", "failed", "due")


@click.command()
@click.option(
    "--window",
    type=click.Choice([*WINDOWS]),
    default="15m",
    show_default=True,
    help="How far the figures go back.",
)
@click.option("--names", metavar="NAME,...", help="The figures.  [default: the main ones]")
@click.option("--queue", type=QUEUE, help="Only of this queue; with --window 24h.")
@click.option(
    "-n",
    "points",
    type=click.IntRange(1, POINTS_MAX),
    default=15,
    show_default=True,
    help="Number of intervals, at most.",
)
@as_json
@connected
def timeseries(
    client: Client, window: str, names: str | None, queue: str | None, points: int, is_json: bool
) -> None:
    """Print counts of each interval, and the largest values of gauges; - where no server ran."""
    if queue is not None and window != "24h":
        raise click.UsageError("give --window 24h with --queue: queues are measured by the minute")
    wanted = names.split(",") if names is not None else None if queue or is_json else _NAMES
    found = client.get_timeseries(window, names=wanted, queue=queue, points=points)
    print_json(found) if is_json else _print(found)


def _print(found: Record) -> None:
    now, start = read_now(), parse_instant(found["start"])
    figures = found["figures"]
    rows = [
        (
            render_time(render_instant(start + place * found["step"] * SECOND), now),
            *("-" if value is None else f"{value:,}" for value in values),
        )
        for place, values in enumerate(zip(*figures.values(), strict=True))
    ]
    print_table(("FROM", *(name.upper() for name in figures)), rows)
