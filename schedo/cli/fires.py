"""`schedo schedules fires`: when a schedule fires in a range of time."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.names import SCHEDULE
from schedo.cli.tables import print_json, print_table
from schedo.cli.times import read_now, read_time, render_full
from schedo.client.sync import Client


@click.command()
@click.argument("name", type=SCHEDULE)
@click.option("--from", "start", metavar="TIME", help="The first instant.  [default: now]")
@click.option("--to", "end", metavar="TIME", help="The last instant.  [default: a day later]")
@as_json
@connected
def fires(client: Client, name: str, start: str | None, end: str | None, is_json: bool) -> None:
    """List when a schedule fires, in its time zone, with its jitter and changes of the clock."""
    found = client.list_schedule_fires(
        name,
        start=None if start is None else read_time(start, "--from"),
        end=None if end is None else read_time(end, "--to"),
    )
    if is_json:
        print_json(found)
        return
    zone, now = ZoneInfo(found["tz"]), read_now()
    rows = [
        (render_full(fire["at"], now, zone), fire.get("jitter", ""), fire.get("clock_change", ""))
        for fire in found["items"]
    ]
    print_table(("FIRE", "JITTER", "CLOCK CHANGE"), rows, optional=("JITTER", "CLOCK CHANGE"))
    if found["count"] > len(rows):
        count = found["count"]
        click.echo(f"schedo: these are the first {len(rows):,} of {count:,}", err=True)
    if found["paused"]:
        click.echo("schedo: the schedule is paused: none of them fires until a resume", err=True)
