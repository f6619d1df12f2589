"""An event loop with virtual time: when no callback is ready, time jumps to the next timer.

It has one thread, no selector and no wall clock, so the same program always runs in the same order,
and a simulated hour of waiting takes no time. Time starts at 0 and is in seconds; instants within a
microsecond count as equal.
"""

from __future__ import annotations

import asyncio
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import Callable
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from typing import TypeVarTuple

Ts = TypeVarTuple("Ts")
_RESOLUTION_S = 1e-6


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs ready callbacks in the order of their calls, then timers in the order of their times."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._calls: deque[Handle] = deque()
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._numbers = count()

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    async def pass_time(self, seconds: float) -> None:
        """Return after this much virtual time."""
        await asyncio.sleep(seconds)

    def stall(self, seconds: float) -> None:
        """Let virtual time pass while nothing runs, as if the process was stopped."""
        self._now += seconds

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Handle:
        """Run the callback after those that are already ready."""
        handle = Handle(callback, args, self, context)
        self._calls.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Handle:
        """Run the callback as call_soon does; the loop has one thread, so it needs no wake-up."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Run the callback at this virtual time."""
        handle = TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _run_once(self) -> None:
        if not self._calls:
            self._jump()
        for _ in range(len(self._calls)):
            handle = self._calls.popleft()
            if not handle.cancelled():
                handle._run()

    def _jump(self) -> None:
        """Advance to the next timer, and make all timers ready that are due at that time."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not timers:
            raise RuntimeError("no callback is ready and no timer is armed: the loop would hang")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] < self._now + _RESOLUTION_S:
            self._calls.append(heappop(timers)[2])
