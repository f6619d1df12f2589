"""An event loop whose time is virtual: when nothing is ready it jumps to the next timer.

One thread, no selector, no wall clock: the same program gives the same run, and a simulated hour
of waiting takes no time. Time starts at 0 and is in seconds; instants within a microsecond of each
other are one.
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
    """Runs ready callbacks in the order they came, then the timers in the order they are due."""

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
        """Return when so much virtual time has passed."""
        await asyncio.sleep(seconds)

    def stall(self, seconds: float) -> None:
        """Let so much virtual time pass in which nothing runs, as if the process was stopped."""
        self._now += seconds

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Handle:
        """Run the callback after those that are ready already."""
        handle = Handle(callback, args, self, context)
        self._calls.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Handle:
        """Run the callback; there is one thread, so there is nobody to wake."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Run the callback when the virtual time has come."""
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
        """Move on to the next timer and make ready all that are due then."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not timers:
            raise RuntimeError("nothing is ready and no timer is armed: this would wait for ever")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] < self._now + _RESOLUTION_S:
            self._calls.append(heappop(timers)[2])
