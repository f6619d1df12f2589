"""An event that needs little memory while it has no waiters.

asyncio.Event keeps a deque of its waiters, which takes 760 bytes even when it is empty. A server
would have three such deques for each connection, and it has thousands of open polls.
"""

from __future__ import annotations

import asyncio
from typing import Literal


class LightEvent:
    """Behaves as asyncio.Event."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiters: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> Literal[True]:
        if not self._is_set:
            waiter = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            waiters = self._waiters
            waiters.append(waiter)
            try:
                await waiter
            finally:
                waiters.remove(waiter)
        return True
