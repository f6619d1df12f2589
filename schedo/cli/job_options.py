"""The options that are fields of a job's request, one for each: `schedo run`, `schedules put`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from schedo.cli.times import read_moment

_Option = Callable[[Callable[..., None]], Callable[..., None]]


class JsonValue(click.ParamType[object]):
    """A value as JSON; `takes_text` says that a plain word stands for itself."""

    name = "json"

    def __init__(self, *, takes_text: bool = False) -> None:
        self._takes_text = takes_text

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Return the value that the text stands for, or fail with what is wrong."""
        if not isinstance(value, str):
            return value  # converted before
        if self._takes_text and not value.startswith(("{", "[")):
            return int(value) if value.isascii() and value.isdigit() else value
        try:
            return json.loads(value)
        except ValueError as error:
            self.fail(f"{value!r} is not JSON: {error}", param, ctx)


class Moment(click.ParamType[str]):
    """An instant as people write it; the server gets it as RFC 3339."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the instant with its offset."""
        return read_moment(str(value), param.opts[0] if param else "the time")


# Fields that a schedule takes too, and after them those of a single job. The server checks values.
_SHARED: dict[str, _Option] = {
    "queue": click.option("--queue", help="The queue to wait in."),
    "priority": click.option("--priority", type=int, help="-9 to 9; a larger one runs sooner."),
    "retry": click.option(
        "--retry",
        type=JsonValue(takes_text=True),
        metavar="N|PRESET|JSON",
        help="How many attempts, the name of a preset, or a policy.",
    ),
    "timeout": click.option("--timeout", metavar="DURATION", help="Stop it after this long."),
    "expires_in": click.option(
        "--expires-in", metavar="DURATION", help="Do not start it later than this."
    ),
    "unique": click.option(
        "--unique",
        type=JsonValue(takes_text=True),
        metavar="KEY|JSON",
        help="At most one unfinished job holds this key.",
    ),
    "delivery": click.option(
        "--delivery",
        type=click.Choice(["at_least_once", "at_most_once"]),
        help="Whether an attempt that was lost is repeated.",
    ),
    "tags": click.option("--tag", "tags", multiple=True, help="A tag to find it by; repeatable."),
    "meta": click.option("--meta", type=JsonValue(), metavar="JSON", help="Data kept with it."),
    "requires": click.option(
        "--requires",
        type=JsonValue(),
        metavar="JSON",
        help='What its worker must have: {"labels": {"gpu": "a100"}, "resources": {"cpu": 3}}.',
    ),
    "prefer": click.option(
        "--prefer",
        type=JsonValue(),
        metavar="JSON",
        help='Labels that are preferred, best first: [{"zone": "lhr"}, {}].',
    ),
}
_SINGLE: dict[str, _Option] = {
    "delay": click.option(
        "--in", "delay", metavar="DURATION", help="Run it this much later: 5s, 1h30m."
    ),
    "run_at": click.option(
        "--at", "run_at", metavar="TIME", help='Run it then: "18:30", "2026-11-20 18:30", RFC 3339.'
    ),
    "expires_at": click.option(
        "--expires-at", type=Moment(), metavar="TIME", help="Do not start it later than then."
    ),
    "traceparent": click.option("--traceparent", help="The W3C trace that it belongs to."),
    "tracestate": click.option("--tracestate", help="The state of that trace."),
    "broadcast": click.option(
        "--broadcast", is_flag=True, default=None, help="Run it once on each worker that can."
    ),
}
SHARED_FIELDS = tuple(_SHARED)
SINGLE_FIELDS = tuple(_SINGLE)


def job_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of a job's request."""
    return _add(shared_options(function), _SINGLE)


def shared_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field that jobs and schedules share."""
    return _add(function, _SHARED)


def _add(function: Callable[..., None], options: dict[str, _Option]) -> Callable[..., None]:
    for option in reversed(options.values()):
        function = option(function)
    return function


def given(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return those of the named options that were given; an empty list of tags was not."""
    return {name: options[name] for name in names if options[name] not in (None, ())}
