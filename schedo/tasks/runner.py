"""The contract of a runner, which runs the attempts of one task in this process.

A runner raises nothing when a job fails: it returns an AttemptResult. The core measures the timeout
and asks the runner to stop; a stopped runner reports Stopped, and the core knows the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from schedo.core.leases import AttemptResult, CapturedOutput, Lease, StopReason
from schedo.tasks.progress import ReportProgress, ignore_progress


class StopSignal(msgspec.Struct, eq=False):
    """The request to stop one running attempt; only the first call of `set` counts."""

    reason: StopReason | None = None
    listener: Callable[[], None] | None = None  # called once, by set

    def set(self, reason: StopReason) -> None:
        """Request the attempt to stop."""
        if self.reason is None:
            self.reason = reason
            if self.listener is not None:
                self.listener()

    async def wait(self) -> StopReason:
        """Wait for the request and return its reason; replaces the listener."""
        while self.reason is None:
            is_set = asyncio.Event()
            self.listener = is_set.set
            await is_set.wait()
        return self.reason


class KeptOutput(Protocol):
    """The output that was kept of one attempt."""

    def end(self) -> tuple[CapturedOutput, ...]:
        """Return the kept parts of each stream that is not empty; the attempt has ended."""


class TakenBack(Exception):
    """Another server may have the job by now, so the attempt must not begin."""


class AttemptContext(msgspec.Struct, eq=False):
    """A running attempt: the lease, with its payload loaded, the stop signal, and more."""

    lease: Lease
    stop: StopSignal
    report_progress: ReportProgress = ignore_progress  # may be called from any thread
    # Only attempts of an application's tasks have these two.
    output: KeptOutput | None = None  # what the handler prints and logs
    handler: asyncio.Task[None] | None = None  # the asyncio task in which an async handler runs
    may_start: Callable[[], bool] | None = None  # None: always

    def confirm(self) -> None:
        """Raise TakenBack if the attempt must not begin; called right before it has an effect.

        The process may have been stopped since the attempt was decided, and also since a runner was
        called that has prepared something first.
        """
        if self.may_start is not None and not self.may_start():
            raise TakenBack


class Runner(Protocol):
    """Runs one attempt of a task to its end."""

    async def __call__(self, context: AttemptContext) -> AttemptResult:
        """Return how the attempt ended; raise only for a bug in the runner itself."""


class BuiltInRunner(Runner, Protocol):
    """The runner of a built-in task, with defaults for methods that simple tasks do not need."""

    def prepare(self) -> None:
        """Prepare the runner, so that the first attempt does not wait for it."""
        return

    def not_ready_reasons(self) -> list[str]:
        """Return why attempts would not start in time, in sentences."""
        return []

    def close(self) -> None:
        """Release what the runner holds; no attempt runs any more."""
        return
