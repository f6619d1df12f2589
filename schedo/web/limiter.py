"""Room for so much at a time: whoever does not fit in waits his turn.

What a request of a thousand jobs needs while it is carried out stays with the process: memory that
is split up among so many small objects is not given back. So a burst of them is done in parts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class WeightedSemaphore:
    """As a semaphore whose holders take different amounts; first come, first served."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, amount: int) -> AsyncIterator[None]:
        """Take the amount, as soon as it is there, until the end of the block."""
        await self.enter(amount)
        try:
            yield
        finally:
            self.leave(amount)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def has_room_for(self, amount: int) -> bool:
        """Say whether the amount can be taken without a wait."""
        return not self._waiting and self._taken + min(amount, self._limit) <= self._limit

    async def enter(self, amount: int) -> None:
        """Take the amount as soon as it is there. What is larger than the limit takes all of it."""
        amount = min(amount, self._limit)
        if self.has_room_for(amount):
            self._taken += amount
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._let_in()
            else:  # let in in the same moment
                self.leave(amount)
            raise

    def leave(self, amount: int) -> None:
        """Give back what was taken."""
        self._taken -= min(amount, self._limit)
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            amount, waiter = self._waiting[0]
            if not waiter.cancelled():
                if self._taken + amount > self._limit:
                    return
                self._taken += amount
                waiter.set_result(None)
            self._waiting.popleft()
