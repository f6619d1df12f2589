"""`schedo cron explain`: an expression in words, and when it fires; it needs no server."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

import click
import msgspec

from schedo.cli.connection import as_json, server_options, telling_unreadable
from schedo.cli.escapes import escape
from schedo.cli.make_client import make_client
from schedo.cli.tables import print_facts, print_json, print_table
from schedo.cli.times import read_now, render_full
from schedo.cli.value_types import CRON, TIME
from schedo.core.fires import list_fires
from schedo.errors import Invalid
from schedo.protocol.cron import CronRequest, CronResponse, TogetherResponse

_PLACES = {"/cron": "EXPR", "/tz": "--tz", "/name": "--name", "/to": "--before"}
_NAMES_SHOWN = 3


@click.group()
def cron() -> None:
    """Explain cron expressions."""


@cron.command("explain")
@click.argument("expression", type=CRON, metavar="EXPR")
@click.option("--tz", help="Time zone.  [default: UTC]")
@click.option("--name", default="example", help="Name of the schedule: H in EXPR is a hash of it.")
@click.option("--after", type=TIME, help="List the fires from this time on.  [default: now]")
@click.option("--before", type=TIME, help="List the fires up to this time.")
@click.option(
    "-n", "count", type=click.IntRange(1, 500), default=5, show_default=True, help="How many."
)
@click.option(
    "--others", "has_others", is_flag=True, help="Ask the server which schedules fire then, too."
)
@server_options
@as_json
def explain_(
    *, is_json: bool, has_others: bool, url: str, token_file: str | None, **options: Any
) -> None:
    """Explain EXPR in words and list its next fires in its time zone.

    A fire that a change to or from daylight-saving time moves or repeats is marked.
    """
    request = _make_request(has_others, options)
    try:
        response = _ask_server(request, url, token_file) if has_others else _explain(request)
    except Invalid as error:
        place = error.problems[0]
        raise click.BadParameter(place.detail, param_hint=_PLACES.get(place.pointer)) from error
    if is_json:
        print_json(msgspec.to_builtins(response))
        return
    print_facts([("meaning", response.description), ("time zone", response.tz)])
    for warning in response.warnings:
        click.echo(f"schedo: warning: {warning}", err=True)
    click.echo()
    _print_fires(response, has_others=has_others)


def _make_request(has_others: bool, options: dict[str, Any]) -> CronRequest:
    after, before = options["after"], options["before"]
    return CronRequest(
        cron=options["expression"],
        tz=options["tz"],
        name=options["name"],
        start=after,
        end=before,
        count=options["count"],
        coincidences=has_others,
    )


def _explain(request: CronRequest) -> CronResponse:
    when = request.read()
    steps = list_fires(when.rule, 0, *request.read_range(read_now()), request.count)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return CronResponse.of(when, end.value)


def _ask_server(request: CronRequest, url: str, token_file: str | None) -> CronResponse:
    from schedo.client.sync import Client

    options = {
        name: getattr(request, name)
        for name in ("tz", "name", "start", "end", "count", "coincidences")
    }
    with make_client(Client, url, token_file) as client, telling_unreadable(client):
        return msgspec.convert(client.explain_cron(request.cron, **options), CronResponse)


def _print_fires(response: CronResponse, *, has_others: bool) -> None:
    zone, now = ZoneInfo(response.tz), read_now()
    changes = {change.at: change.description for change in response.clock_changes}
    together = {each.at: each for each in response.together or ()}
    rows = [
        (
            render_full(at, now, zone),
            changes.get(at, ""),
            _describe_others(together.get(_whole_second(at))),
        )
        for at in response.next_fires
    ]
    headers = ("NEXT FIRE", "CLOCK CHANGE", "OTHER SCHEDULES")
    shown = [0, *([1] if changes else []), *([2] if has_others else [])]
    print_table([headers[n] for n in shown], [[row[n] for n in shown] for row in rows])


def _whole_second(at: str) -> str:
    return f"{at.partition('.')[0]}.000000Z"


def _describe_others(together: TogetherResponse | None) -> str:
    if together is None or not together.schedules:
        return ""
    names = ", ".join(together.names[:_NAMES_SHOWN])
    rest = together.schedules - min(len(together.names), _NAMES_SHOWN)
    more = f" and {rest:,} more" if rest else ""
    return f"{together.schedules:,}: {escape(names)}{more}"
