"""`schedo schedules fires`: when one schedule, or all of them, fire in a range of time."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.escapes import escape
from schedo.cli.names import SCHEDULE
from schedo.cli.tables import print_json, print_table
from schedo.cli.times import read_now, render_full, render_time
from schedo.cli.value_types import TIME
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.core.limits import SECOND
from schedo.protocol.times import parse_instant, render_instant

_NAMES_SHOWN = 3
_TOGETHER_NAMES_SHOWN = 8


@click.command()
@click.argument("name", type=SCHEDULE, required=False)
@click.option("--from", "start", type=TIME, help="The first instant.  [default: now]")
@click.option("--to", "end", type=TIME, help="The last instant.  [default: a day later]")
@click.option(
    "--hours", type=click.IntRange(1, 168), help="How long, of all schedules.  [default: 24]"
)
@as_json
@connected
def fires(
    client: Client,
    name: str | None,
    start: str | None,
    end: str | None,
    hours: int | None,
    is_json: bool,
) -> None:
    """List when a schedule fires, with changes of the clock.

    The instants are in the time zone of the schedule, and a jitter is shown as a range.

    Without a NAME: when each schedule fires next and how often, and the seconds in which many of
    them fire together.
    """
    if name is None:
        if end is not None:
            raise click.UsageError("--to is for one schedule; give --hours, or a name")
        found = client.list_fires(start=start, hours=hours)
        print_json(found) if is_json else _print_all(found, start)
        return
    if hours is not None:
        raise click.UsageError("--hours is for all schedules; give --to")
    found = client.list_schedule_fires(name, start=start, end=end)
    print_json(found) if is_json else _print_one(found)


def _print_one(found: Record) -> None:
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


def _print_all(found: Record, start: str | None) -> None:
    now = read_now()
    after = now if start is None else parse_instant(start)
    rows = [
        (
            _join(item["names"], item["schedules"], _NAMES_SHOWN),
            item["rule"],
            item["tz"],
            f"{item['count']:,}",
            _render_first(item, found, now, after),
            "; ".join(change["clock_change"] for change in item.get("clock_changes", ())),
        )
        for item in found["items"]
    ]
    headers = ("SCHEDULES", "RULE", "TZ", "FIRES", "FIRST", "CLOCK CHANGE")
    print_table(headers, rows, optional=("CLOCK CHANGE", "TZ", "RULE"))
    if found["busiest"]:
        click.echo("\nMost schedules in the same second:")
        for second in found["busiest"]:
            count, at = second["schedules"], render_time(second["at"], now)
            names = _join(second["names"], count, _TOGETHER_NAMES_SHOWN)
            click.echo(f"{count:>6,}  {at}  {names}")
        click.echo(
            '\nWrite H in place of a number, as in "H 3 * * *", or give a jitter to spread them.'
        )
    _print_left_out(found)


def _print_left_out(found: Record) -> None:
    if found["has_more"]:
        click.echo(f"schedo: these are the first {len(found['items']):,} rules", err=True)
    if not found["complete"]:
        count = found["schedules"]
        click.echo(f"schedo: only the first {count:,} schedules were looked at", err=True)


def _render_first(item: Record, found: Record, now: int, after: int) -> str:
    """Return the item's first fire after an instant, or the bucket that has it.

    The server's range begins with a whole bucket, so some of its fires may be before. If all of
    them are, this is the last one.
    """
    start = parse_instant(found["from"])
    seconds: Any = item.get("seconds")
    if seconds:
        instants = [start + round(each * SECOND) for each in seconds]
        first = next((each for each in instants if each >= after), instants[-1])
        return render_time(render_instant(first), now)
    counts = item["counts"]
    place = next(place for place, count in enumerate(counts) if count)
    width = (parse_instant(found["to"]) - start) // len(counts)
    begin = start + place * width
    return "now" if begin <= now < begin + width else render_time(render_instant(begin), now)


def _join(names: list[str], count: int, shown: int) -> str:
    """Return the first names, and how many more there are."""
    rest = count - len(names[:shown])
    return escape(", ".join(names[:shown])) + (f" and {rest:,} more" if rest else "")
