"""One account of the bytes in flight, in and out, of all connections.

Connections count what they hold anyway: the heads and small bodies of requests without a response,
what clients send ahead, and what they do not read. A large body or response claims its bytes before
they are received or rendered, and waits until they are free. Claims share the bound by their size:
large ones wait for large ones, and a small request waits for none of them. While others wait, a
client that sends or reads too slowly loses its claim.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from schedo.core.limits import BYTES_IN_FLIGHT_MAX, CLAIMED_BYTES
from schedo.errors import Overloaded
from schedo.web.limiter import WeightedSemaphore

WAIT_S_MAX = 10.0
_LOOK_S = 0.1


class TooSlow(Exception):
    """The client was too slow while others waited for the bytes that it holds."""


class Pace(NamedTuple):
    """The pace below which a client is too slow while others wait."""

    bytes_per_s: int  # on average, since the claim; 0: any
    pause_s_max: float


RECEIVING = Pace(524_288, 0.25)
SENDING = Pace(0, 1.25)  # for one piece of a response


class BytesInFlight:
    """The account of one server."""

    def __init__(self, bytes_max: int = BYTES_IN_FLIGHT_MAX) -> None:
        self.bytes_max = bytes_max
        self.by_connections = 0
        self.connections_max = bytes_max - sum(share for _, share in CLAIMED_BYTES)
        self._classes = [SizeClass(largest, share) for largest, share in CLAIMED_BYTES]
        self.waiting_bodies: set[asyncio.Timeout] = set()

    @property
    def total(self) -> int:
        return self.by_connections + sum(each.room.in_use for each in self._classes)

    def class_of(self, size: int) -> SizeClass:
        """Return the class of a claim; above the largest class, a claim takes all of its share."""
        return next((each for each in self._classes if size <= each.largest), self._classes[-1])

    def refuse_waiting_bodies(self) -> None:
        """Refuse the requests whose bodies wait: the parts received so far take too much memory."""
        now = asyncio.get_running_loop().time()
        while self.waiting_bodies:
            with contextlib.suppress(RuntimeError):  # it has just ended
                self.waiting_bodies.pop().reschedule(now)


class SizeClass:
    """The claims up to one size: their share of the bytes, and those that send or receive now."""

    def __init__(self, largest: int, bytes_max: int) -> None:
        self.largest = largest
        self.room = WeightedSemaphore(bytes_max)
        self.moving: set[Claim] = set()
        self._look: asyncio.TimerHandle | None = None

    async def take(
        self, size: int, wait_s_max: float | None, waiting: set[asyncio.Timeout]
    ) -> None:
        """Wait for the bytes; raise Overloaded after `wait_s_max`, None: never."""
        if self.room.has_room_for(size):
            await self.room.enter(size)
            return
        self._schedule_check()
        try:
            async with asyncio.timeout(wait_s_max) as timeout:
                waiting.add(timeout)
                await self.room.enter(size)
        except TimeoutError:
            raise Overloaded("too many large requests at a time; retry soon") from None
        finally:
            waiting.discard(timeout)

    def _schedule_check(self) -> None:
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._check_moving)

    def _check_moving(self) -> None:
        self._look = None
        if self.room.has_waiting:
            now = asyncio.get_running_loop().time()
            for claim in list(self.moving):
                claim.end_if_slow(now)
            self._schedule_check()


class Claim:
    """The bytes that one request has claimed; none at first."""

    __slots__ = ("_account", "_class", "_moved", "_moved_at", "_pace", "_since", "_timeout", "size")

    _class: SizeClass
    _since: float  # of the claim
    _moved: int  # bytes since then
    _pace: Pace
    _moved_at: float
    _timeout: asyncio.Timeout

    def __init__(self, account: BytesInFlight) -> None:
        self._account = account
        self.size = 0

    async def take(
        self, size: int, wait_s_max: float | None = WAIT_S_MAX, *, is_body: bool = False
    ) -> None:
        """Claim this number of bytes in place of the last claim; raise Overloaded after the wait.

        A request that has had an effect gives None for `wait_s_max`: it is not refused any more.
        """
        size_class = self._account.class_of(size)
        if self.size and size_class is self._class:
            self.release()  # the request must not wait for its own bytes
        waiting = self._account.waiting_bodies if is_body else set()
        await size_class.take(size, wait_s_max, waiting)
        self.release()
        self._class, self.size = size_class, size
        self._moved, self._since = 0, asyncio.get_running_loop().time()

    def release(self) -> None:
        """Free the bytes; harmless if there are none."""
        if self.size:
            self._class.room.leave(self.size)
            self.size = 0

    @asynccontextmanager
    async def moving(self, pace: Pace) -> AsyncIterator[None]:
        """Receive or send claimed bytes; raise TooSlow if others wait and the client is slow."""
        if not self.size:
            yield
            return
        moving = self._class.moving
        self._pace, self._timeout = pace, asyncio.timeout(None)
        self._moved_at = asyncio.get_running_loop().time()
        moving.add(self)
        try:
            async with self._timeout:
                yield
        except TimeoutError:
            raise TooSlow from None
        finally:
            moving.discard(self)

    def note(self, size: int) -> None:
        """Count received bytes."""
        self._moved += size

    def end_if_slow(self, now: float) -> None:
        """End the move if the client is too slow."""
        rate, pause_s_max = self._pace
        lag_s = now - self._since - self._moved / rate if rate else 0.0
        if max(lag_s, now - self._moved_at) > pause_s_max:
            self._class.moving.discard(self)
            self._timeout.reschedule(now)
