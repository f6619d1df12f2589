"""A semaphore with weights, to bound the memory of concurrent requests.

The memory that a request of a thousand jobs needs stays with the process: the allocator does not
return memory that many small objects share. So a burst of such requests is carried out in parts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class WeightedSemaphore:
    """A semaphore whose holders take different amounts; first come, first served."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, amount: int) -> AsyncIterator[None]:
        """Hold the amount until the end of the block."""
        await self.enter(amount)
        try:
            yield
        finally:
            self.leave(amount)

    @property
    def in_use(self) -> int:
        return self._taken

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def has_room_for(self, amount: int) -> bool:
        """Return whether the amount is available without a wait."""
        return not self._waiting and self._taken + min(amount, self._limit) <= self._limit

    async def enter(self, amount: int) -> None:
        """Wait for the amount and take it. An amount above the limit takes all of it."""
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
                self._admit_waiters()
            else:  # admitted in the same moment
                self.leave(amount)
            raise

    def leave(self, amount: int) -> None:
        """Return the amount."""
        self._taken -= min(amount, self._limit)
        self._admit_waiters()

    def _admit_waiters(self) -> None:
        while self._waiting:
            amount, waiter = self._waiting[0]
            if not waiter.cancelled():
                if self._taken + amount > self._limit:
                    return
                self._taken += amount
                waiter.set_result(None)
            self._waiting.popleft()
