"""`schedo cron explain`: an expression in words, and when it fires; it needs no server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from zoneinfo import ZoneInfo

import click

from schedo.cli.connection import as_json
from schedo.cli.tables import print_facts, print_json, print_table
from schedo.cli.times import read_now, read_time, render_full
from schedo.core.cron import describe_clock_change
from schedo.core.cron import explain as explain_cron
from schedo.core.model import Rule
from schedo.core.triggers import next_after
from schedo.protocol.schedules import CronRequest, ParsedRule
from schedo.protocol.times import parse_instant, render_duration, render_instant


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
    when = CronRequest(expression, tz, name).read()
    start = read_now() if after is None else parse_instant(read_time(after, "--after"))
    rule = Rule(cron=when.normalized, every_us=when.every_us, tz=when.tz)
    fires = [(fire, _describe_change(rule, fire)) for fire in islice(_fires(rule, start), count)]
    if is_json:
        print_json(_as_record(when, fires))
        return
    print_facts([("meaning", _describe(when)), ("time zone", when.tz)])
    for warning in when.warnings:
        click.echo(f"schedo: warning: {warning}", err=True)
    click.echo()
    zone, now = ZoneInfo(when.tz), read_now()
    rows = [[render_full(render_instant(at), now, zone), change or ""] for at, change in fires]
    if any(change for _, change in fires):
        print_table(("NEXT FIRE", "CLOCK CHANGE"), rows)
    else:
        print_table(("NEXT FIRE",), [row[:1] for row in rows])


def _fires(rule: Rule, after: int) -> Iterator[int]:
    fire = next_after(rule, after)
    while fire is not None:
        yield fire
        fire = next_after(rule, fire)


def _describe(when: ParsedRule) -> str:
    if when.normalized is not None:
        return explain_cron(when.normalized)
    return f"Every {render_duration(when.every_us or 0)}"


def _describe_change(rule: Rule, fire: int) -> str | None:
    return None if rule.cron is None else describe_clock_change(rule.cron, rule.tz, fire)


def _as_record(when: ParsedRule, fires: list[tuple[int, str | None]]) -> dict[str, object]:
    """Return the fields of the response to POST /v1/cron:explain."""
    return {
        "tz": when.tz,
        "description": _describe(when),
        "next_fires": [render_instant(at) for at, _ in fires],
        "clock_changes": [
            {"at": render_instant(at), "description": change} for at, change in fires if change
        ],
        "warnings": list(when.warnings),
    }
