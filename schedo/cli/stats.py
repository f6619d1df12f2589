"""`schedo stats`: what ended over hours and days, by task, queue or schedule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.escapes import escape
from schedo.cli.job_filters import read_past_time
from schedo.cli.latency import render_us
from schedo.cli.tables import print_json, print_table
from schedo.cli.times import keep_distance, read_now, render_time
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.core.tallies import Dimension, Period
from schedo.protocol.query import LIMIT_MAX
from schedo.suggestions import suggest

_COUNTS = ("COMPLETED", "FAILED", "SHARE", "CANCELLED", "EXPIRED", "RETRIED")
_TIMES = ("RUN P50", "P90", "P99", "MAX", "LATE P50", "P90", "P99", "MAX")
_SHOWN = ("p50_us", "p90_us", "p99_us", "max_us")


@click.command()
@click.argument("name", required=False)
@click.option(
    "--by",
    type=click.Choice([each.value for each in Dimension]),
    default=Dimension.TASK.value,
    show_default=True,
    help="What the lines are.",
)
@click.option(
    "--since",
    callback=read_past_time,
    metavar="TIME",
    help="Only what ended in this hour or later: a date such as 2026-11-20, a date and a time, or"
    " how long ago, such as 90m, 24h or 30d.  [default: 7d]",
)
@click.option(
    "--until",
    callback=read_past_time,
    metavar="TIME",
    help="Only hours before then, written in the same way.  [default: now]",
)
@click.option(
    "--per", type=click.Choice([each.value for each in Period]), help="A line for each hour or day."
)
@click.option("-n", "limit", type=click.IntRange(1, LIMIT_MAX), help="Number of names, at most.")
@as_json
@connected
def stats(client: Client, is_json: bool, **options: Any) -> None:
    """Print how many jobs ended and how, how long attempts ran and how late they started.

    Only of the tasks, queues or schedules with NAME in their name, if it is given. SHARE is that of
    the failed among the completed and the failed. The times are within 5 %.
    """
    found = client.get_stats(**options)
    if is_json:
        print_json(found)
    elif found["items"]:
        _print(found)
    else:
        click.echo(f"schedo: {_explain_nothing(client, found, options)}", err=True)


def _explain_nothing(client: Client, found: Record, options: dict[str, Any]) -> str:
    """Return a sentence on why there are no lines, with the name that was probably meant."""
    kind, name, now = found["by"], options["name"], read_now()
    when = f"from {render_time(found['since'], now)} to {render_time(found['until'], now)}"
    if name is None:
        return f"no job has ended {when}"
    others = client.get_stats(**{**options, "name": None, "limit": LIMIT_MAX, "per": None})
    hint = suggest(name, [item["name"] for item in others["items"]])
    return escape(f"no job whose {kind} has {name!r} in its name has ended {when}{hint}")


def _print(found: Record) -> None:
    if "per" in found:
        headers = ("NAME", "FROM", *_COUNTS, *_TIMES)
        print_table(headers, [*_rows_of_points(found["items"])], {"FROM": keep_distance})
    else:
        rows = [(item["name"], *_cells(item)) for item in found["items"]]
        if len(rows) > 1 or found["has_more"]:
            rows.append(("(all)", *_cells(found["total"])))
        print_table(("NAME", *_COUNTS, *_TIMES), rows)
    if found["has_more"]:
        click.echo("schedo: there are more; -n shows more of them, or give a NAME", err=True)


def _rows_of_points(items: list[Record]) -> Iterator[tuple[str, ...]]:
    now = read_now()
    for item in items:
        for point in item["points"]:
            yield item["name"], render_time(point["at"], now), *_cells(point)


def _cells(ends: Record) -> tuple[str, ...]:
    share = ends["failed_share"]
    return (
        f"{ends['completed']:,}",
        f"{ends['failed']:,}",
        "-" if share is None else f"{share:.1%}",
        f"{ends['cancelled']:,}",
        f"{ends['expired']:,}",
        f"{ends['retried']:,}",
        *_times(ends["run"]),
        *_times(ends["lateness"]),
    )


def _times(times: Record | None) -> list[str]:
    return ["-" if times is None else render_us(times[name]) for name in _SHOWN]
