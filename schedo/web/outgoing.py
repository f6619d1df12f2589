"""The bytes that a connection has written and its client has not read."""

from __future__ import annotations

import asyncio

from schedo.web.light_event import LightEvent

WRITE_DEADLINE_S = 30.0
WRITE_BYTES_PER_S_MIN = 1_024


class Outgoing:
    """Follows a transport that pauses its writer while any byte is unread."""

    __slots__ = ("_began_at", "_read", "_transport", "_written", "is_unread", "kept_bytes")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_unread = False
        self._read: LightEvent | None = None  # set when the client has read everything
        self._began_at = 0.0  # when bytes began to be unread
        self._written = 0  # bytes since then
        self.kept_bytes = 0  # the writes that it has not read whole; the transport keeps them

    def write(self, data: bytes) -> None:
        """Write the bytes, or keep them until the client reads."""
        was_unread = self.is_unread
        self._transport.write(data)
        if self.is_unread:
            self.kept_bytes += len(data)
            self._written += len(data) if was_unread else 0

    def pause(self, now: float) -> None:
        """Begin to count: the transport could not send everything."""
        if not self.is_unread:
            self.is_unread, self._read = True, LightEvent()
            self._began_at = now
            self._written = self._transport.get_write_buffer_size()

    def resume(self) -> bool:
        """Note that the client has read all, or never will; return False if that is known."""
        read, self._read = self._read, None
        if read is None:
            return False
        self.is_unread, self.kept_bytes = False, 0
        read.set()
        return True

    async def flushed(self) -> None:
        """Wait until the client has read everything, or has disconnected."""
        while self._read is not None:
            await self._read.wait()

    def is_too_slow(self, now: float) -> bool:
        """Whether the client is so slow that it is closed in any case."""
        return self.lag(now, WRITE_BYTES_PER_S_MIN) > WRITE_DEADLINE_S

    def lag(self, now: float, bytes_per_s: int) -> float:
        """Return how many seconds the client is behind a reader of this rate."""
        if not self.is_unread:
            return 0.0
        sent = self._written - self._transport.get_write_buffer_size()
        return now - self._began_at - sent / bytes_per_s
