"""The options of a job in Python, once for both clients and for applications.

Their names are those of the request's fields, which a test compares; mypy needs them written out.
As JSON a timedelta becomes seconds, an aware datetime becomes RFC 3339, and None is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Required, TypedDict

from schedo.client.messages import Record
from schedo.errors import Invalid

Duration = str | int | float | timedelta  # "90s", seconds, or a timedelta
Instant = str | datetime  # RFC 3339 with an offset, or aware


Label = str | int | float | bool
Condition = Label | Sequence[Label] | Mapping[str, Label | Sequence[Label]]
Amount = int | float | str  # 4, 0.5 or "8GiB"


class Retry(NamedTuple):
    """A retry policy; `max_attempts` includes the first attempt."""

    max_attempts: int = 5
    backoff: Literal["exponential", "fixed"] = "exponential"
    initial: Duration = "2s"
    factor: float = 3.0
    max: Duration = "1h"
    jitter: float = 0.2
    until: Instant | None = None


class Requires(TypedDict, total=False):
    """The workers that may run a job.

    labels: by label, a value it must have, a list of such values, or an object with one operator:
        {"gpu": ["a100", "h100"], "vram": {">=": 40}}.
    resources: what the job takes of the worker's, such as {"cpu": 3, "memory": "8GiB"}.
    worker: the name of the only worker that may run it.
    """

    labels: Mapping[str, Condition]
    resources: Mapping[str, Amount]
    worker: str


class WeightedPreference(TypedDict):
    """A preference with a weight: the worker with the largest one is chosen."""

    labels: Mapping[str, Condition]
    weight: int


Preference = Mapping[str, Condition] | WeightedPreference
RetryOption = Retry | Mapping[str, Any] | str | int  # a policy, a preset, or a number of attempts


class KeepTimes(TypedDict, total=False):
    """How long ended jobs are kept; 0: not at all."""

    completed: Duration
    failed: Duration
    cancelled: Duration  # also expired jobs


class QueuedOptions(TypedDict, total=False):
    """The options of every job that waits in a queue, without the retry policy."""

    queue: str | None
    priority: int | None
    timeout: Duration | None
    expires_in: Duration | None
    delivery: Literal["at_least_once", "at_most_once"] | None
    tags: Sequence[str] | None
    meta: Mapping[str, Any] | None
    requires: Requires | None
    prefer: Sequence[Preference] | None
    keep: KeepTimes | None


class EventJob(QueuedOptions, total=False):
    """A job that runs when another one has failed; its payload gets the facts of the failure."""

    task: Required[str]
    payload: Mapping[str, Any]
    retry: RetryOption | None


class Expect(TypedDict, total=False):
    """What is expected of the runs of a schedule.

    within: how long after each instant a run of it must have completed.
    max_duration: how long an attempt may run.
    on_miss, on_back: the jobs that run when it is missed, and when it is met again.
    """

    within: Duration
    max_duration: Duration
    on_miss: EventJob | str
    on_back: EventJob | str


class SharedOptions(QueuedOptions, total=False):
    """The options that jobs and schedules share, without the retry policy."""

    on_failure: EventJob | str | None  # or only the name of its task


class SingleOptions(SharedOptions, total=False):
    """The options of one job, without the retry policy."""

    unique: Mapping[str, Any] | str | None
    delay: Duration | None
    run_at: Instant | None
    expires_at: Instant | None
    traceparent: str | None
    tracestate: str | None


class JobOptions(SingleOptions, total=False):
    """The options of a submit beyond task and payload."""

    retry: RetryOption | None


class CommitOptions(TypedDict, total=False):
    """The options of jobs that run on reserved slots."""

    queue: str | None
    timeout: Duration | None
    tags: Sequence[str] | None
    meta: Mapping[str, Any] | None
    keep: KeepTimes | None
    on_loss: Literal["fail", "retry_once"] | None


class InvokeOptions(CommitOptions, total=False):
    """The options of a job that runs right now."""

    requires: Mapping[str, Any] | None
    prefer: Sequence[Mapping[str, Any]] | None


class ReserveOptions(TypedDict, total=False):
    """The slots to reserve; without a task they suit any task."""

    task: str | None
    queue: str | None
    requires: Mapping[str, Any] | None
    prefer: Sequence[Mapping[str, Any]] | None
    ttl: Duration | None


_AS_IS = frozenset({str, int, float, bool})  # most values, which render_value returns


class PauseOptions(TypedDict, total=False):
    """Why something is paused, and its end: an instant or a duration from now."""

    note: str | None
    until: Instant | None
    duration: Duration | None


def render_value(value: object) -> object:
    """Return an option as plain JSON data; raise Invalid for a datetime without a zone."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise Invalid(f"{value.isoformat()} has no time zone; use datetime.now(UTC) or similar")
        return value.isoformat()
    if isinstance(value, Retry):
        return render_options(value._asdict())
    if isinstance(value, Mapping):
        return {key: render_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [render_value(item) for item in value]
    return value


def render_options(options: Mapping[str, object]) -> Record:
    """Return the given options as plain JSON data."""
    return {
        key: value if type(value) in _AS_IS else render_value(value)
        for key, value in options.items()
        if value is not None
    }


class StatsFilters(TypedDict, total=False):
    """Which ends to add up; name is a part of the names, exact_name one of them."""

    since: Instant | None
    until: Instant | None
    per: str | None
    name: str | None
    exact_name: str | None
    limit: int | None


class LogFilters(TypedDict, total=False):
    """Which entries of the log to list."""

    who: str | None
    action: str | None
    target: str | None
    before: Instant | None
    limit: int | None
    cursor: str | None
