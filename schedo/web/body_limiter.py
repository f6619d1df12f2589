"""Limits the memory of request bodies, from the first byte until the request is carried out.

A body needs several times its size while it is read, made durable and answered. So bodies share
budgets by size class: large bodies wait for large ones, and a small request waits for none of them.
A slow body is refused while others wait, so a few clients cannot block the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schedo.core.limits import BODY_ROOMS
from schedo.errors import Overloaded
from schedo.web.limiter import WeightedSemaphore

SLOW_BYTES_PER_S = 524_288
STALLED_S = 0.25  # while others wait, a body may pause no longer than this
WAIT_S_MAX = 10.0
_LOOK_S = 0.1


class BodySlot:
    """The share of a budget that one body uses."""

    def __init__(self, hall: Hall, size: int) -> None:
        self._hall = hall
        self._size = size
        self._timeout = asyncio.timeout(None)
        self._began_at = asyncio.get_running_loop().time()
        self._received = 0
        self._received_at = self._began_at
        self._is_left = False

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """Receive the body; raise Overloaded if it is too slow while others wait."""
        self._hall.receiving.add(self)
        try:
            async with self._timeout:
                yield
        except TimeoutError:
            raise Overloaded("this body is too slow while others wait for its memory") from None
        finally:
            self._hall.receiving.discard(self)

    def note(self, size: int) -> None:
        """Count received bytes."""
        self._received += size
        self._received_at = asyncio.get_running_loop().time()

    def hurry(self, now: float) -> None:
        """Refuse the body if it is too slow."""
        lag_s = now - self._began_at - self._received / SLOW_BYTES_PER_S
        if lag_s > STALLED_S or now - self._received_at > STALLED_S:
            self._timeout.reschedule(now)
            self._hall.receiving.discard(self)

    def leave(self) -> None:
        """Return the share to the budget; harmless if done already."""
        if not self._is_left:
            self._is_left = True
            self._hall.room.leave(self._size)


class Hall:
    """The budget of one size class, and the bodies that are being received."""

    def __init__(self, bytes_max: int) -> None:
        self.room = WeightedSemaphore(bytes_max)
        self.receiving: set[BodySlot] = set()
        self._look: asyncio.TimerHandle | None = None

    async def enter(self, size: int) -> BodySlot:
        """Wait for a share of the budget; raise Overloaded after WAIT_S_MAX."""
        if not self.room.has_room_for(size) and self._look is None:
            self._look_again()
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await self.room.enter(size)
        except TimeoutError:
            raise Overloaded("too many large requests at a time; retry soon") from None
        return BodySlot(self, size)

    def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(_LOOK_S, self._hurry)

    def _hurry(self) -> None:
        self._look = None
        if self.room.has_waiting:
            now = asyncio.get_running_loop().time()
            for place in list(self.receiving):
                place.hurry(now)
            self._look_again()


class Intake:
    """The budgets by size class."""

    def __init__(self) -> None:
        self._halls = [(size, Hall(room)) for size, room in BODY_ROOMS]

    @asynccontextmanager
    async def place(self, size: int) -> AsyncIterator[BodySlot]:
        """Hold the share for a body of this size until the end of the block, or until leave()."""
        halls = (hall for most, hall in self._halls if size <= most)
        place = await next(halls, self._halls[-1][1]).enter(size)
        try:
            yield place
        finally:
            place.leave()
