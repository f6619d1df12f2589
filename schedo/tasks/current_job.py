"""The job that a handler runs in, and the outcomes Snooze and Discard.

A handler completes its attempt by returning, and fails it by raising (the job is retried while it
has retries left). It may also return or raise Snooze or Discard. `current_job()` works in async
handlers and in plain functions, in any thread that runs them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from schedo.core.ids import render_id
from schedo.core.leases import StopReason
from schedo.core.model import Trigger
from schedo.core.progress import ProgressUpdate
from schedo.protocol.times import parse_duration
from schedo.tasks.runner import AttemptContext

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Snooze(Exception):
    """Run this job again after the delay, without using up a retry. Return it or raise it.

    delay: "5m", a number of seconds or a timedelta.
    """

    def __init__(self, delay: str | float | timedelta) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay_us = to_microseconds(delay)


class Discard(Exception):
    """Fail this job without further retries. Return it or raise it."""

    def __init__(self, reason: str = "discarded by its handler") -> None:
        super().__init__(reason)


def to_microseconds(duration: str | float | timedelta) -> int:
    """Convert "90s", a number of seconds or a timedelta to microseconds, or raise ValueError."""
    if isinstance(duration, timedelta):
        return parse_duration(duration / timedelta(seconds=1))
    return parse_duration(duration)


def _to_datetime(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


class CurrentJob:
    """The job and the attempt that the calling code runs in."""

    def __init__(self, context: AttemptContext) -> None:
        self._lease = context.lease
        self._stop = context.stop

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
    def payload(self) -> Any:
        """The payload of the job as plain JSON data, before it became the handler's arguments."""
        return msgspec.json.decode(self._lease.payload or b"null")

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1; lost and snoozed attempts count, too."""
        return self._lease.key.attempt

    @property
    def failures(self) -> int:
        """The number of earlier attempts that failed, since the last manual retry."""
        return self._lease.failures

    @property
    def max_attempts(self) -> int:
        """The failure with this number is the last one: then the job has failed."""
        return self._lease.max_attempts

    @property
    def is_last_attempt(self) -> bool:
        """Whether the job has no retry left if this attempt fails."""
        return self._lease.failures + 1 >= self._lease.max_attempts

    @property
    def scheduled_for(self) -> datetime:
        """The schedule's instant that this run is for, or the instant at which the job was due."""
        return _to_datetime(self._lease.scheduled_for)

    @property
    def started_at(self) -> datetime:
        """The instant at which this attempt started, by the clock of this machine."""
        return _to_datetime(self._lease.started_at)

    @property
    def timeout(self) -> timedelta | None:
        """How long an attempt may run, or None."""
        timeout_us = self._lease.options.timeout_us
        return None if timeout_us is None else timedelta(microseconds=timeout_us)

    @property
    def deadline(self) -> datetime | None:
        """The instant at which this attempt times out, by the clock of this machine, or None."""
        return None if self.timeout is None else self.started_at + self.timeout

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that this job is a run of, or None."""
        return self._lease.options.schedule

    @property
    def trigger(self) -> Trigger:
        return self._lease.trigger

    @property
    def missed_count(self) -> int:
        """The number of missed instants of the schedule that this run also stands for."""
        return self._lease.missed_count

    @property
    def worker(self) -> str:
        """The name of the worker that runs this attempt."""
        return self._lease.worker

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
        """Why this attempt has to stop, or None. schedo also cancels an async handler."""
        return self._stop.reason

    @property
    def is_cancelled(self) -> bool:
        """Whether this attempt has to stop; a long plain function should check it regularly."""
        return self._stop.reason is not None


_current: ContextVar[AttemptContext] = ContextVar("schedo_current_job")


# Makes an attempt's job the current one of the running contextvars context; `leave` undoes it with
# the token that `enter` returns.
enter: Callable[[AttemptContext], Token[AttemptContext]] = _current.set
leave: Callable[[Token[AttemptContext]], None] = _current.reset


@contextlib.contextmanager
def entered(context: AttemptContext) -> Iterator[None]:
    """Make this the current job inside the `with` block; for tests that call a task directly."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def find_context() -> AttemptContext | None:
    """Return the attempt whose handler makes this call, or None outside of a handler."""
    return _current.get(None)


def report_progress(
    percent: float | None = None, message: str | None = None, *, log: str | None = None
) -> None:
    """Report the progress of the running job: percent (0 to 100), a message, a line for its log.

    A handler may call it from any thread. GET /v1/jobs/{id}/progress shows the last report while
    the job runs; it is not stored. Texts that are too long are cut. Outside of a worker the call
    does nothing. Raise ValueError if percent is out of range, TypeError if a text is not a str.
    """
    if percent is not None:
        if not 0 <= percent <= 100:
            raise ValueError(f"percent must be 0 to 100, not {percent!r}")
        percent = float(percent)
    for name, text in (("message", message), ("log", log)):
        if not isinstance(text, str | None):
            raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    context = _current.get(None)
    if context is not None:
        context.report_progress(context.lease.key, ProgressUpdate(percent, message, log).fit())


def current_job() -> CurrentJob:
    """Return the job whose handler makes this call; raise RuntimeError outside of a handler."""
    try:
        return CurrentJob(_current.get())
    except LookupError:
        raise RuntimeError("current_job() works only inside a task that schedo runs") from None
