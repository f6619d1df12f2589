"""`schedo summary`: whether jobs start on time, in one sentence, and the main figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.escapes import escape
from schedo.cli.latency import render_us
from schedo.cli.run_history import warn_of_failing
from schedo.cli.tables import has_colors, print_facts, print_json, print_table
from schedo.cli.times import keep_distance, read_now, render_time
from schedo.client import monitoring_operations, schedule_operations
from schedo.client.messages import Record
from schedo.client.sync import Client

_FAILING_MAX = 100
_COLORS = {"ok": "green", "warning": "yellow", "critical": "red"}
_KINDS = {"timer": "timed jobs", "submit": "due at once"}


@click.command()
@as_json
@connected
def summary(client: Client, is_json: bool) -> None:
    """Show in one sentence whether jobs start on time, or what is wrong; and the main figures.

    Schedules whose last runs have failed are named on stderr.
    """
    found = client.send(monitoring_operations.get_summary())
    if is_json:
        print_json(found)
        return
    verdict = found["verdict"]
    text = escape(verdict["text"])
    click.echo(
        click.style(text, fg=_COLORS.get(verdict["level"]), bold=True) if has_colors() else text
    )
    for other in verdict["others"]:
        click.echo(escape(other))
    click.echo()
    print_facts(_list_facts(found))
    failing = schedule_operations.list_schedules(_FAILING_MAX, failing=True)
    warn_of_failing(client.send(failing)["items"])
    _print_long_waits(found.get("long_waits", []))


def _print_long_waits(waits: Sequence[Record]) -> None:
    if not waits:
        return
    click.echo()
    now = read_now()
    rows = [
        (wait["job"], wait["task"], wait["queue"], render_time(wait["due_at"], now), wait["why"])
        for wait in waits
    ]
    headers = ("WAITS", "TASK", "QUEUE", "DUE", "WHY")
    print_table(headers, rows, {"DUE": keep_distance}, optional=("QUEUE", "TASK"))


def _list_facts(found: Record) -> Iterator[tuple[str, str]]:
    for kind, title in _KINDS.items():
        yield title, _describe(found["lateness"][kind])
    yield "5 minutes", _render(found["recent"], ("submitted", "started", "completed", "failed"))
    yield "24 hours", _render(found["day"], ("submitted", "started", "completed", "failed"))
    states = found["states"]
    yield "jobs", "still counted" if states is None else _render(states, states)
    yield "slots", f"{found['running']:,} of {found['slots']:,} busy"


def _describe(lateness: Record) -> str:
    day = lateness["day"]
    p50, p99 = (
        "-" if lateness[name] is None else render_us(lateness[name])
        for name in ("p50_us", "p99_us")
    )
    left = day["budget_left"]
    budget = f"left {left:.0%}" if left > 0 else f"used up, {day['share']:.2%} in time"
    return f"p50 {p50}   p99 {p99}   error budget of the day {budget}"


def _render(counts: Mapping[str, int], names: Mapping[str, int] | tuple[str, ...]) -> str:
    return "   ".join(f"{name} {counts.get(name, 0):,}" for name in names)
