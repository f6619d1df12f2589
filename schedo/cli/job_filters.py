"""The options that select jobs: `schedo jobs ls`, and the changes of many jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import click

from schedo.cli.times import parse_time, read_now
from schedo.cli.value_types import DURATION
from schedo.core import limits
from schedo.core.states import State
from schedo.protocol.times import parse_duration, render_instant

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")

F = TypeVar("F", bound=Callable[..., Any])


def read_past_time(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Return an instant, or how long ago it was, as RFC 3339.

    A time of day is the latest one that has passed, and a date is its midnight.
    """
    if value is None:
        return None
    now = read_now()
    with suppress(ValueError):
        return render_instant(now - parse_duration(value))
    try:
        return parse_time(f"{value} 00:00" if _DATE.match(value) else value, now - limits.DAY)
    except ValueError as error:
        raise click.BadParameter(
            f'{error}, "2026-11-20" for its midnight, or how long ago, such as "90m", "2h" or "7d"'
        ) from None


class StatesType(click.ParamType[str]):
    """States with commas between them."""

    name = "state"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        known = [state.value for state in State]
        for state in value.split(","):
            if state not in known:
                self.fail(f"{state!r} is not one of {', '.join(known)}", param, ctx)
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "STATE[,...]"


class StateType(StatesType):
    """One state: the server changes the jobs of one, or of all that an operation can change."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        state = super().convert(value, param, ctx)
        if "," in state:
            self.fail("give one state; begin an operation for each", param, ctx)
        return state

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "STATE"


STATES = StatesType()


def read_payload(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> dict[str, str] | None:
    """Return the values by their paths, or None if there are none."""
    found = {}
    for text in values:
        path, separator, value = text.partition("=")
        if not separator or not path:
            raise click.BadParameter(f"{text!r} is not PATH=VALUE, as in order.id=9781")
        found[path] = value
    return found or None


def _time(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, callback=read_past_time, metavar="TIME", help=text)


# By the name of the filter in the API.
FILTERS = {
    "state": click.option(
        "--state", type=STATES, help="Only in this state, or in one of several with commas."
    ),
    "queue": click.option("--queue", help="Only jobs of this queue."),
    "task": click.option("--task", help="Only jobs of this task."),
    "schedule": click.option("--schedule", help="Only jobs of this schedule."),
    "tag": click.option("--tag", help="Only jobs with this tag."),
    "unique_key": click.option("--unique-key", help="Only the job that holds this key."),
    "error": click.option("--error", help="Only if the error's type or message contains this."),
    "worker": click.option("--worker", help="Only jobs of this worker."),
    "q": click.option(
        "--q", metavar="TEXT", help="Only with this text in the task, payload, error or a tag."
    ),
    "payload": click.option(
        "--payload",
        metavar="PATH=VALUE",
        multiple=True,
        callback=read_payload,
        help="Only with this value in the payload, as in order.id=9781; may be repeated.",
    ),
    "late_over": click.option(
        "--late-over",
        type=DURATION,
        help="Only if it started later than this, or still waits.",
    ),
    "created_after": _time("--created-after", "Only jobs created then or later; 2h: 2 hours ago."),
    "created_before": _time("--created-before", "Only jobs created before then."),
    "ended_after": _time("--ended-after", "Only jobs that have ended since then."),
    "ended_before": _time("--ended-before", "Only jobs that ended before then."),
}


def takes_filters(command: F) -> F:
    """Add the options that select jobs."""
    for option in reversed(FILTERS.values()):
        command = option(command)
    return command


def takes_filters_of_change(command: F) -> F:
    """Add the options that select the jobs of an operation."""
    one_state = click.option("--state", type=StateType(), help="Only in this state.")
    for option in reversed({**FILTERS, "state": one_state}.values()):
        command = option(command)
    return command


def given_filters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters that the user has given."""
    return {name: values[name] for name in FILTERS if values.get(name) is not None}
