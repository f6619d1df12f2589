"""How a task is run in this process: what a runner gets and what it must give back.

A runner never raises for what a job does wrong: it returns a Report. The core keeps the timeout
and asks the runner to stop; a runner that was stopped reports Stopped, and the core knows why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from schedo.core.leases import AttemptResult, Lease, StopReason
from schedo.tasks.progress import ReportProgress, ignore_progress


class StopSignal:
    """Tells one running attempt to end; set at most once, the first reason stays."""

    __slots__ = ("listener", "reason")

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.listener: Callable[[], None] | None = None  # called once, by set

    def set(self, reason: StopReason) -> None:
        """Ask the attempt to end."""
        if self.reason is None:
            self.reason = reason
            if self.listener is not None:
                self.listener()

    async def wait(self) -> StopReason:
        """Return the reason once the attempt is asked to end; listens itself."""
        while self.reason is None:
            is_set = asyncio.Event()
            self.listener = is_set.set
            await is_set.wait()
        return self.reason


class AttemptContext(msgspec.Struct, frozen=True):
    """One attempt as a runner sees it; the lease's payload has been loaded."""

    lease: Lease
    stop: StopSignal
    report_progress: ReportProgress = ignore_progress  # hears of its progress; from any thread


class Runner(Protocol):
    """Runs one attempt of a task to its end."""

    async def __call__(self, call: AttemptContext) -> AttemptResult:
        """Return how the attempt ended; raise only for a bug in the runner itself."""
