"""`schedo queues`: lists, limits, pauses and resumes queues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.escapes import escape
from schedo.cli.names import QUEUE
from schedo.cli.pauses import check_end, takes_note_and_end
from schedo.cli.tables import print_json, print_table
from schedo.cli.times import keep_distance, read_now, render_time
from schedo.cli.value_types import DURATION, KeepValue
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.suggestions import suggest

_UNLIMITED = "unlimited"
_DEFAULT = "default"
_HEADERS = (
    *("NAME", "STATE", "RUNNING", "LIMIT", "WAITING", "OLDEST DUE"),
    *("WEIGHT", "PRIORITY STEP", "KEEP"),
)
_PAUSE = ("UNTIL", "NOTE")


@click.group()
def queues() -> None:
    """List, limit, pause and resume queues."""


def _print(queues: Iterable[Record]) -> None:
    rows = [_row(queue) for queue in queues]
    optional = ("PRIORITY STEP", "WEIGHT", "KEEP")
    compact = {"OLDEST DUE": keep_distance, "UNTIL": keep_distance}
    if any(pause for _, pause in rows):
        paused = [(*row, *(pause or ("", ""))) for row, pause in rows]
        print_table((*_HEADERS, *_PAUSE), paused, compact, optional=optional)
    else:
        print_table(_HEADERS, [row for row, _ in rows], compact, optional=optional)


def _row(queue: Record) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    """Return the row of a queue, and the end and the note of its pause if it has one of them."""
    pause = queue.get("pause") or {}
    until = render_time(pause["until"], read_now()) if pause.get("until") else ""
    note = pause.get("note") or ""
    row = (
        queue["name"],
        "paused" if queue.get("paused") else "open",
        str(queue.get("running", 0)),
        _UNLIMITED if queue.get("concurrency") is None else str(queue["concurrency"]),
        render_waiting(queue.get("waiting") or {}),
        render_time(queue.get("oldest_due_at"), read_now()),
        str(queue.get("weight", 1)),
        str(queue.get("priority_step", "")),
        ", ".join(f"{end} {time}" for end, time in (queue.get("keep") or {}).items()) or "-",
    )
    return row, (until, note) if until or note else None


def render_waiting(waiting: dict[str, int]) -> str:
    """Return the number of waiting jobs in each state."""
    return ", ".join(f"{count} {state}" for state, count in waiting.items() if count) or "0"


@queues.command("ls")
@as_json
@connected
def list_(client: Client, is_json: bool) -> None:
    """List queues with their limits and their waiting jobs."""
    records = client.list_queues()
    print_json(records) if is_json else _print(records)


def _read_concurrency(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | str | None:
    if value is None or value == _UNLIMITED:
        return value
    if not value.isdecimal():
        raise click.BadParameter(
            f"{value!r} is not a number of jobs; write {_UNLIMITED} to remove the limit"
        )
    return int(value)


@queues.command("set")
@click.argument("name", type=QUEUE)
@click.option(
    "--concurrency",
    callback=_read_concurrency,
    metavar="N|unlimited",
    help="How many jobs run at once; unlimited removes the limit.",
)
@click.option(
    "--weight",
    type=int,
    metavar="N",
    help="Share of the slots when several queues have waiting jobs.",
)
@click.option(
    "--priority-step",
    type=DURATION,
    help="How much earlier a job sorts for each step of priority.",
)
@click.option(
    "--keep",
    type=KeepValue(_DEFAULT),
    metavar="TIMES|JSON|default",
    help="How long its ended jobs are kept: completed=1h,failed=30d; default: as all jobs.",
)
@as_json
@connected
def set_(client: Client, name: str, is_json: bool, **options: Any) -> None:
    """Change the limits of a queue."""
    changes = {key: value for key, value in options.items() if value is not None}
    if not changes:
        raise click.UsageError("give --concurrency, --weight, --priority-step or --keep")
    if changes.get("keep") == _DEFAULT:
        changes["keep"] = None
    if changes.get("concurrency") == _UNLIMITED:
        changes["concurrency"] = None
    _show(client.set_queue(name, **changes), is_json)


@queues.command()
@click.argument("name", type=QUEUE)
@takes_note_and_end
@as_json
@connected
def pause(client: Client, name: str, is_json: bool, **options: Any) -> None:
    """Start no new jobs of the queue; running jobs continue."""
    check_end(options)
    known = {queue["name"] for queue in client.list_queues()}
    queue = client.pause_queue(name, **options)
    _show(queue, is_json)
    if name not in known:
        hint = escape(suggest(name, known))
        click.echo(
            f"schedo: warning: queue {escape(name)} has no active jobs and no limits{hint}"
            f" (schedo queues resume {escape(name)} undoes it)",
            err=True,
        )


@queues.command()
@click.argument("name", type=QUEUE)
@as_json
@connected
def resume(client: Client, name: str, is_json: bool) -> None:
    """Start jobs of the queue again."""
    _show(client.resume_queue(name), is_json)


def _show(queue: Record, is_json: bool) -> None:
    print_json(queue) if is_json else _print([queue])
