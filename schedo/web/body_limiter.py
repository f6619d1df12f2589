"""Room for the bodies of requests, from their first byte until the request is carried out.

A body needs several times its size while it is read, made durable and answered. So bodies share
rooms by size: large ones wait for large ones, and a small request waits for none of them. Whoever
sends his too slowly while others wait has to leave, so a few cannot keep the others out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schedo.core.limits import BODY_ROOMS
from schedo.errors import Overloaded
from schedo.web.limiter import WeightedSemaphore

SLOW_BYTES_PER_S = 524_288
STALLED_S = 0.25  # while others wait, a body has to go on within this time
WAIT_S_MAX = 10.0
_LOOK_S = 0.1


class BodySlot:
    """The room that one body takes."""

    def __init__(self, hall: Hall, size: int) -> None:
        self._hall = hall
        self._size = size
        self._patience = asyncio.timeout(None)
        self._began_at = asyncio.get_running_loop().time()
        self._received = 0
        self._received_at = self._began_at
        self._is_left = False

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """Receive the body; raise Overloaded if that is too slow for those who wait."""
        self._hall.receiving.add(self)
        try:
            async with self._patience:
                yield
        except TimeoutError:
            raise Overloaded("others wait for the room that this slow body takes") from None
        finally:
            self._hall.receiving.discard(self)

    def note(self, size: int) -> None:
        """So many bytes more have come."""
        self._received += size
        self._received_at = asyncio.get_running_loop().time()

    def hurry(self, now: float) -> None:
        """Leave if the body comes too slowly."""
        lag_s = now - self._began_at - self._received / SLOW_BYTES_PER_S
        if lag_s > STALLED_S or now - self._received_at > STALLED_S:
            self._patience.reschedule(now)
            self._hall.receiving.discard(self)

    def leave(self) -> None:
        """Give the room to others; harmless if done already."""
        if not self._is_left:
            self._is_left = True
            self._hall.room.leave(self._size)


class Hall:
    """One room, and who takes it."""

    def __init__(self, bytes_max: int) -> None:
        self.room = WeightedSemaphore(bytes_max)
        self.receiving: set[BodySlot] = set()
        self._look: asyncio.TimerHandle | None = None

    async def enter(self, size: int) -> BodySlot:
        """Take room, as soon as it is there; raise Overloaded if that takes long."""
        if not self.room.has_room_for(size) and self._look is None:
            self._look_again()
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await self.room.enter(size)
        except TimeoutError:
            raise Overloaded("too many large requests at a time; try again soon") from None
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
    """The rooms by the size of the bodies."""

    def __init__(self) -> None:
        self._halls = [(size, Hall(room)) for size, room in BODY_ROOMS]

    @asynccontextmanager
    async def place(self, size: int) -> AsyncIterator[BodySlot]:
        """Take room for a body of this size until the end of the block, or until it is left."""
        halls = (hall for most, hall in self._halls if size <= most)
        place = await next(halls, self._halls[-1][1]).enter(size)
        try:
            yield place
        finally:
            place.leave()
