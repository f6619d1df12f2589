"""Moves a virtual clock, and waits at each instant until the jobs that it starts have ended.

So a retry counts from the instant at which its attempt failed, as with a real clock. A job that
runs for longer in real time, such as one that waits for its own timeout, does not stop the clock.
"""

from __future__ import annotations

import asyncio

from schedo.engine.loop import EngineLoop
from schedo.errors import Conflict, Invalid
from schedo.virtual_clock import VirtualClock

WAIT_S = 5.0
PAUSE_S = 0.001  # between two looks at the scheduler; only tests wait here


class Settling:
    """Waits until an engine has nothing to do at this instant.

    wait_s: the longest real time that each wait for running jobs takes. Jobs that have outlasted
    one wait are not waited for again.
    """

    def __init__(self, loop: EngineLoop, wait_s: float = WAIT_S) -> None:
        self._loop = loop
        self._wait_s = wait_s
        self._slow = 0  # the number of running jobs that have outlasted a wait

    async def flush(self) -> int:
        """Return once no job runs and nothing is due; return how many jobs still run."""
        clock = asyncio.get_running_loop()
        until = clock.time() + self._wait_s
        while True:
            await self._loop.flush()
            running = self._count_running()
            is_done = running <= self._slow and not self._is_due()
            if is_done or clock.time() > until:
                self._slow = running
                return running
            await asyncio.sleep(PAUSE_S)

    async def move_clock(self, to: int) -> int:
        """Move the virtual clock to the instant; return how many jobs still run then.

        Raise Invalid if the instant has passed, and Conflict if the clock is that of the machine.
        """
        clock = self._loop.clock
        if not isinstance(clock, VirtualClock):
            raise Conflict("the server's clock is that of the machine; start it with --test-clock")
        async with clock.is_moving:
            if to < clock.now():
                raise Invalid.field("/to", "this instant has passed; the clock moves only forward")
            await clock.run_until(self, to)
            return await self.flush()

    def _count_running(self) -> int:
        scheduler = self._loop.scheduler
        return sum(scheduler.queue(name).running for name in scheduler.queue_names())

    def _is_due(self) -> bool:
        scheduler = self._loop.scheduler
        if scheduler.has_changes or scheduler.awaits_commit or scheduler.awaits_load:
            return True
        wake_at = scheduler.next_wake_at()
        return wake_at is not None and wake_at <= self._loop.clock.now()
