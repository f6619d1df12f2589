"""How a task is run in this process: what a runner gets and what it must give back.

A runner never raises for what a job does wrong: it returns a Report. The core keeps the timeout
and asks the runner to stop; a runner that was stopped reports Stopped, and the core knows why.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from schedo.core.leases import Lease, Report, StopReason


class StopSignal:
    """Tells one running attempt to end; set at most once, the first reason stays."""

    __slots__ = ("_event", "reason")

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None  # most attempts end without ever waiting for it
        self.reason: StopReason | None = None

    def set(self, reason: StopReason) -> None:
        """Ask the attempt to end."""
        if self.reason is None:
            self.reason = reason
            if self._event is not None:
                self._event.set()

    async def wait(self) -> StopReason:
        """Return the reason once the attempt is asked to end."""
        while self.reason is None:
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()
        return self.reason


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt as a runner sees it; the lease's payload has been loaded."""

    lease: Lease
    stop: StopSignal


class Runner(Protocol):
    """Runs one attempt of a task to its end."""

    async def __call__(self, call: Call) -> Report:
        """Return how the attempt ended; raise only for a bug in the runner itself."""
