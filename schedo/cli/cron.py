"""`schedo cron explain`: an expression in words, and when it fires; it needs no server."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import click
import msgspec

from schedo.cli.connection import as_json
from schedo.cli.tables import print_facts, print_json, print_table
from schedo.cli.times import read_now, read_time, render_full
from schedo.errors import Invalid
from schedo.protocol.cron import CronRequest, CronResponse
from schedo.protocol.times import parse_instant

_PLACES = {"/cron": "EXPR", "/tz": "--tz", "/name": "--name"}


@click.group()
def cron() -> None:
    """Explain cron expressions."""


@cron.command("explain")
@click.argument("expression", metavar="EXPR")
@click.option("--tz", help="Time zone.  [default: UTC]")
@click.option("--name", default="example", help="Name of the schedule: H in EXPR is a hash of it.")
@click.option("--after", metavar="TIME", help="List the fires after this time.  [default: now]")
@click.option(
    "-n", "count", type=click.IntRange(1, 1_000), default=5, show_default=True, help="How many."
)
@as_json
def explain_(
    expression: str, tz: str | None, name: str, after: str | None, count: int, is_json: bool
) -> None:
    """Explain EXPR in words and list its next fires in its time zone.

    A fire that a change to or from daylight-saving time moves or repeats is marked.
    """
    try:
        when = CronRequest(expression, tz, name).read()
    except Invalid as error:
        place = error.problems[0]
        raise click.BadParameter(place.detail, param_hint=_PLACES.get(place.pointer)) from error
    start = read_now() if after is None else parse_instant(read_time(after, "--after"))
    response = CronResponse.of(when, start, count)
    if is_json:
        print_json(msgspec.to_builtins(response))
        return
    print_facts([("meaning", response.description), ("time zone", response.tz)])
    for warning in response.warnings:
        click.echo(f"schedo: warning: {warning}", err=True)
    click.echo()
    zone, now = ZoneInfo(response.tz), read_now()
    changes = {change.at: change.description for change in response.clock_changes}
    rows = [[render_full(at, now, zone), changes.get(at, "")] for at in response.next_fires]
    if changes:
        print_table(("NEXT FIRE", "CLOCK CHANGE"), rows)
    else:
        print_table(("NEXT FIRE",), [row[:1] for row in rows])
