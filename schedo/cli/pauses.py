"""`schedo pause` and `schedo resume`: the pauses of the whole server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.escapes import escape
from schedo.cli.tables import print_json, print_table
from schedo.cli.times import read_now, render_time
from schedo.cli.value_types import DURATION, TIME
from schedo.client import operations
from schedo.client.messages import Record
from schedo.client.sync import Client

_SCOPES = ("starts", "schedules")
_UNTIL = 'End the pause then: "18:30", "2026-11-20 18:30", RFC 3339.'
F = TypeVar("F", bound=Callable[..., Any])
_WHAT = click.Choice([*_SCOPES, "all"])


def takes_note_and_end(command: F) -> F:
    """Add the options of a pause."""
    for option in (
        click.option("--until", type=TIME, help=_UNTIL),
        click.option("--for", "duration", type=DURATION, help="End it after this time."),
        click.option("--note", help="Why; every answer about the pause shows it."),
    ):
        command = option(command)
    return command


def check_end(options: Mapping[str, Any]) -> None:
    """Raise UsageError if the options of a pause give two ends."""
    if options["until"] is not None and options["duration"] is not None:
        raise click.UsageError("give only one of --for and --until")


@click.command()
@click.argument("what", type=_WHAT, default="all")
@takes_note_and_end
@as_json
@connected
def pause(client: Client, what: str, is_json: bool, **options: Any) -> None:
    """Start no more jobs (starts), fire no schedules (schedules), or both.

    Jobs are still accepted, and running ones continue. The pause outlives a restart of the server.
    After a pause of the schedules, each schedule treats the instants that have passed by its
    catch-up policy.
    """
    check_end(options)
    _print(client.send(operations.pause_server({"scopes": _scopes(what), **options})), is_json)


@click.command()
@click.argument("what", type=_WHAT, default="all")
@as_json
@connected
def resume(client: Client, what: str, is_json: bool) -> None:
    """Start jobs and fire schedules again; also after `schedo restore`."""
    _print(client.send(operations.resume_server(_scopes(what))), is_json)


def _scopes(what: str) -> list[str]:
    return [*_SCOPES] if what == "all" else [what]


def _print(pauses: list[Record], is_json: bool) -> None:
    if is_json:
        print_json(pauses)
        return
    if not pauses:
        click.echo("nothing is paused")
        return
    now = read_now()
    rows = [
        (
            pause["scope"],
            render_time(pause["since"], now),
            render_time(pause.get("until"), now),
            escape(pause.get("note") or "-"),
        )
        for pause in pauses
    ]
    print_table(("PAUSED", "SINCE", "UNTIL", "NOTE"), rows)
