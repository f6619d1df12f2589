"""What a handler sees of the attempt it runs in, and the ways it can end besides returning.

A handler ends by returning, by raising (tried again while the budget lasts), or by returning or
raising Snooze or Discard. `current_job()` works in async handlers and in plain functions, whichever
thread runs them.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

from schedo.core.ids import render_id
from schedo.core.leases import StopReason
from schedo.core.model import Trigger
from schedo.core.value_limits import fit_progress
from schedo.protocol.times import parse_duration
from schedo.tasks.progress import Said
from schedo.tasks.runner import AttemptContext

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Snooze(Exception):
    """Run this job again after the delay; no attempt is used up. Return it or raise it."""

    def __init__(self, delay: str | float | timedelta) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay_us = to_microseconds(delay)


class Discard(Exception):
    """End this job as failed, whatever is left of its budget. Return it or raise it."""

    def __init__(self, reason: str = "discarded by its handler") -> None:
        super().__init__(reason)


def to_microseconds(duration: str | float | timedelta) -> int:
    """Return a duration given as "90s", as seconds or as a timedelta; raise ValueError."""
    if isinstance(duration, timedelta):
        return parse_duration(duration / timedelta(seconds=1))
    return parse_duration(duration)


class CurrentJob:
    """The attempt that the calling code is part of."""

    def __init__(self, call: AttemptContext) -> None:
        self._lease = call.lease
        self._stop = call.stop

    def __repr__(self) -> str:
        return f"<CurrentJob {self.id} {self.task} attempt {self.attempt}>"

    @property
    def id(self) -> str:
        return render_id(self._lease.key.job_id)

    @property
    def task(self) -> str:
        return self._lease.task

    @property
    def queue(self) -> str:
        return self._lease.queue

    @property
    def attempt(self) -> int:
        """Which try this is, from 1; lost and snoozed tries are counted, too."""
        return self._lease.key.attempt

    @property
    def scheduled_for(self) -> datetime:
        """The instant of the schedule that this run stands for, or the time the job was due."""
        return _EPOCH + timedelta(microseconds=self._lease.scheduled_for)

    @property
    def trigger(self) -> Trigger:
        return self._lease.trigger

    @property
    def missed_count(self) -> int:
        """How many earlier instants of the schedule this run stands for as well."""
        return self._lease.missed_count

    @property
    def tags(self) -> tuple[str, ...]:
        return self._lease.options.tags

    @property
    def meta(self) -> dict[str, Any]:
        return dict(self._lease.options.meta or {})

    @property
    def traceparent(self) -> str | None:
        return self._lease.options.traceparent

    @property
    def stop_reason(self) -> StopReason | None:
        """Why this attempt was told to stop, or None; an async handler is cancelled, too."""
        return self._stop.reason

    @property
    def is_cancelled(self) -> bool:
        """Whether this attempt was told to stop; a plain function should look now and then."""
        return self._stop.reason is not None


_current: ContextVar[AttemptContext] = ContextVar("schedo_current_job")


def enter(call: AttemptContext) -> None:
    """Make the call the current job of the running context."""
    _current.set(call)


def report_progress(
    percent: float | None = None, message: str | None = None, *, log: str | None = None
) -> None:
    """Say how far the running job is: 0 to 100, a word about it, a line for its log.

    To be called from a handler, from any thread. What was said last is at
    GET /v1/jobs/{id}/progress while the job runs; it is not stored. Outside of a worker nobody
    hears it. What is too long is cut. Raise ValueError for a percentage that is none, TypeError for
    a text that is none.
    """
    if percent is not None:
        if not 0 <= percent <= 100:
            raise ValueError(f"percent is 0 to 100, not {percent!r}")
        percent = float(percent)
    for text in (message, log):
        if not isinstance(text, str | None):
            raise TypeError(f"a {type(text).__name__} is no text")
    call = _current.get(None)
    if call is not None:
        call.report_progress(call.lease.key, Said(*fit_progress(percent, message, log, None)))


def current_job() -> CurrentJob:
    """Return the job whose handler is running here; raise RuntimeError outside of one."""
    try:
        return CurrentJob(_current.get())
    except LookupError:
        raise RuntimeError("current_job() works only inside a task that schedo runs") from None
