"""The options for the fields of a job request, for `schedo run` and `schedo schedules put`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from schedo.cli.value_types import DURATION, PRIORITY, TIME, JsonValue, KeepValue

_Option = Callable[[Callable[..., None]], Callable[..., None]]


# Fields that jobs and schedules share; below are those of a single job. The server checks values.
_SHARED: dict[str, _Option] = {
    "queue": click.option("--queue", help="Queue of the job."),
    "priority": click.option("--priority", type=PRIORITY, help="-9 to 9; higher runs first."),
    "retry": click.option(
        "--retry",
        type=JsonValue(takes_text=True),
        metavar="N|PRESET|JSON",
        help="Number of attempts, name of a retry preset, or a retry policy as JSON.",
    ),
    "timeout": click.option("--timeout", type=DURATION, help="Stop an attempt after this time."),
    "expires_in": click.option(
        "--expires-in",
        type=DURATION,
        help="Expire the job if it waits, also for a retry, after this time.",
    ),
    "delivery": click.option(
        "--delivery",
        type=click.Choice(["at_least_once", "at_most_once"]),
        help="Whether a lost attempt runs again (at_least_once) or not.",
    ),
    "tags": click.option("--tag", "tags", multiple=True, help="Tag of the job; repeatable."),
    "meta": click.option(
        "--meta", type=JsonValue(), metavar="JSON", help="Data to store with the job."
    ),
    "requires": click.option(
        "--requires",
        type=JsonValue(),
        metavar="JSON",
        help='Labels and resources that the worker must have: {"labels": {"gpu": "a100"},'
        ' "resources": {"cpu": 3}}.',
    ),
    "prefer": click.option(
        "--prefer",
        type=JsonValue(),
        metavar="JSON",
        help='Preferred labels of the worker, best first: [{"zone": "lhr"}, {}].',
    ),
    "keep": click.option(
        "--keep",
        type=KeepValue(),
        metavar="TIMES|JSON",
        help="How long the ended job is kept: completed=1h,failed=30d; 0s: not at all.",
    ),
    "on_failure": click.option(
        "--on-failure",
        type=JsonValue(takes_text=True),
        metavar="TASK|JSON",
        help="Job to run if this one fails: the name of its task, or a job as JSON, such as"
        ' {"task": "http", "payload": {"url": "https://..."}}.',
    ),
}
_SINGLE: dict[str, _Option] = {
    "delay": click.option(
        "--in", "delay", type=DURATION, help="Run the job after this time: 5s, 1h30m."
    ),
    "run_at": click.option(
        "--at",
        "run_at",
        type=TIME,
        help='Run the job at this time: "18:30", "2026-11-20 18:30", RFC 3339.',
    ),
    "expires_at": click.option(
        "--expires-at",
        type=TIME,
        metavar="TIME",
        help="Expire the job if it waits, also for a retry, at this time.",
    ),
    "unique": click.option(
        "--unique",
        type=JsonValue(takes_text=True),
        metavar="KEY|JSON",
        help="Unique key: if an unfinished job holds it, that job is returned instead.",
    ),
    "traceparent": click.option("--traceparent", help="W3C traceparent of the job."),
    "tracestate": click.option("--tracestate", help="W3C tracestate of the job."),
    "broadcast": click.option(
        "--broadcast", is_flag=True, default=None, help="Run the job once on each suitable worker."
    ),
}
_EXPECT: dict[str, _Option] = {
    "within": click.option(
        "--within",
        type=DURATION,
        help="Expect the work to be done at most this long after each instant.",
    ),
    "on_miss": click.option(
        "--on-miss",
        type=JsonValue(takes_text=True),
        metavar="TASK|JSON",
        help="Job to run when a limit passes, in the form of --on-failure.",
    ),
    "on_back": click.option(
        "--on-back",
        type=JsonValue(takes_text=True),
        metavar="TASK|JSON",
        help="Job to run when it is met again.",
    ),
}
_CHANGES = {"delay": _SINGLE["delay"], "run_at": _SINGLE["run_at"], "priority": _SHARED["priority"]}
SHARED_FIELDS = tuple(_SHARED)
SINGLE_FIELDS = tuple(_SINGLE)
CHANGE_FIELDS = tuple(_CHANGES)
INVOKE_FIELDS = ("queue", "timeout", "tags", "meta", "keep", "requires", "prefer")


def job_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of a job's request."""
    return _add(shared_options(function), _SINGLE)


def shared_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field that jobs and schedules share."""
    return _add(function, _SHARED)


def invoke_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of a job that runs right now."""
    return _add(function, {name: _SHARED[name] for name in INVOKE_FIELDS})


def change_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field that a waiting job may change."""
    return _add(function, _CHANGES)


def expect_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of an expectation: its limit, and its event jobs."""
    return _add(function, _EXPECT)


def _add(function: Callable[..., None], options: dict[str, _Option]) -> Callable[..., None]:
    for option in reversed(options.values()):
        function = option(function)
    return function


def given(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the named options that the user gave; an empty list of tags counts as absent."""
    return {name: options[name] for name in names if options[name] not in (None, ())}
