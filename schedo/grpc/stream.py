"""One call on a connection: its messages in both directions, and its end.

A message is received into the window that HTTP/2 gives a stream; a larger one only when its bytes
are claimed, so that a client cannot fill the memory before its turn comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from schedo.core.limits import BATCH_BYTES_MAX
from schedo.errors import Overloaded
from schedo.grpc.status import Code, Status, fail
from schedo.web.bytes_in_flight import RECEIVING, BytesInFlight, Claim, TooSlow
from schedo.web.light_event import LightEvent

_PREFIX_BYTES = 5  # whether it is compressed, and its length
MESSAGE_BYTES_MAX = BATCH_BYTES_MAX
_CLAIMED_ABOVE = 65_536
WINDOW_BYTES = 16_384  # a message up to this size needs no claim of its own to be received
FIRST_HEADERS = [(b":status", b"200"), (b"content-type", b"application/grpc+proto")]


class Wire(Protocol):
    """What a stream uses of its connection."""

    transport: asyncio.Transport
    in_flight: BytesInFlight

    def open_window(self, stream: Stream, size: int) -> None:
        """Let the client send this many bytes more on the stream."""

    def charge(self, change: int) -> None:
        """Change the number of bytes that the connection holds without a claim."""

    def begin_response(self, stream: Stream) -> None:
        """Send the first headers."""

    def send_soon(self, stream: Stream) -> None:
        """Send what the stream has, as the windows of the client permit."""

    def expect_life(self, interval_s: float) -> None:
        """Close the connection if nothing arrives for three such intervals."""


class Stream:
    """One call."""

    __slots__ = (
        "_changed",
        "_charged",
        "_is_claimed",
        "_sending_bytes",
        "_unopened",
        "connection",
        "gone",
        "has_begun",
        "has_ended",
        "headers",
        "id",
        "is_complete",
        "outgoing",
        "received",
        "trailers",
    )

    def __init__(self, connection: Wire, id_: int, headers: Mapping[bytes, bytes]) -> None:
        self.connection = connection
        self.id = id_
        self.headers = headers
        self.received = bytearray()
        self.is_complete = False  # the client sends no more
        self.gone = LightEvent()  # the client has left, or is too late
        self.has_begun = False  # the first headers are sent
        self.has_ended = False
        self.outgoing: list[bytes] = []
        self.trailers: list[tuple[bytes, bytes]] | None = None  # when all else is sent
        self._charged = 0  # bytes that the connection counts
        self._is_claimed = False  # a claim counts what is received
        self._sending_bytes = 0
        self._unopened = 0  # received bytes for which the client got no new window
        self._changed = LightEvent()

    @property
    def path(self) -> str:
        return self.headers.get(b":path", b"").decode("latin-1")

    # From the connection.

    def add(self, data: bytes, size: int) -> None:
        """Take received data; size: what it counts in the window."""
        self.received += data
        self._unopened += size
        self._charge()
        self._changed.set()

    def complete(self) -> None:
        """The client sends no more."""
        self.is_complete = True
        self._changed.set()

    def leave(self) -> None:
        """The client has left, or the connection has ended."""
        self.gone.set()
        self.outgoing.clear()
        self.drop_received()
        self._changed.set()

    def expire(self, status: Status) -> None:
        """End the call with this status, and what is done for it as if the client had left."""
        self.end(status)
        self.gone.set()
        self._changed.set()

    def drop_received(self) -> None:
        """Free what no call takes any more."""
        self.received.clear()
        self._charge()

    def note_sent(self) -> None:
        """All that was to be sent is in the transport."""
        self._changed.set()

    def _charge(self) -> None:
        """Count what is held without a claim."""
        held = self._sending_bytes + (0 if self._is_claimed else len(self.received))
        change, self._charged = held - self._charged, held
        if change:
            self.connection.charge(change)

    # For the call.

    async def receive(self, claim: Claim, check: Callable[[], None]) -> bytes | None:
        """Return the next message; None: there is no more, or the client has left.

        claim: takes the bytes of a message above WINDOW_BYTES before it is received; the caller
        releases it. check: called before that. Raise CallFailed for a message that is refused.
        """
        await self._wait_for(_PREFIX_BYTES)
        if self.gone.is_set() or not self.received:
            return None
        if len(self.received) < _PREFIX_BYTES:
            raise fail(Code.INVALID_ARGUMENT, "the stream ended in the middle of a message")
        if self.received[0]:
            raise fail(Code.UNIMPLEMENTED, "compressed messages are not accepted")
        size = int.from_bytes(self.received[1:_PREFIX_BYTES], "big")
        if size > MESSAGE_BYTES_MAX:
            raise fail(
                Code.INVALID_ARGUMENT, f"the message is larger than {MESSAGE_BYTES_MAX} bytes"
            )
        end = _PREFIX_BYTES + size
        if end <= WINDOW_BYTES:
            await self._wait_for(end)
        else:
            check()
            await self._receive_large(end, claim)
        if self.gone.is_set():
            return None
        if len(self.received) < end:
            raise fail(Code.INVALID_ARGUMENT, "the stream ended in the middle of a message")
        message = bytes(self.received[_PREFIX_BYTES:end])
        del self.received[:end]
        self._is_claimed = False
        self._charge()
        return message

    async def _receive_large(self, end: int, claim: Claim) -> None:
        try:
            await claim.take(end, is_body=True)
            self._is_claimed = True
            self._charge()
            async with claim.moving(RECEIVING):
                while len(self.received) < end and not self.is_complete and not self.gone.is_set():
                    before = len(self.received)
                    await self._wait_for(min(end, before + WINDOW_BYTES // 2))
                    claim.note(len(self.received) - before)
        except Overloaded as error:
            raise fail(Code.RESOURCE_EXHAUSTED, str(error)) from None
        except TooSlow:
            raise fail(
                Code.RESOURCE_EXHAUSTED, "this message is too slow while others wait for its memory"
            ) from None

    async def _wait_for(self, size: int) -> None:
        """Return when this many bytes are there, or no more arrive."""
        while len(self.received) < size and not self.is_complete and not self.gone.is_set():
            if self._unopened:
                unopened, self._unopened = self._unopened, 0
                self.connection.open_window(self, unopened)
            self._changed.clear()
            await self._changed.wait()

    async def send(self, message: bytes) -> None:
        """Send a message; return when the connection has taken it, or the client has left."""
        if self.gone.is_set() or self.has_ended:
            return
        claim, size = Claim(self.connection.in_flight), len(message)
        if size > _CLAIMED_ABOVE:
            await claim.take(size, None)  # its request has had its effect, so this is not refused
            size = 0
        try:
            self._sending_bytes += size
            self._charge()
            await self._send(message)
        finally:
            claim.release()
            self._sending_bytes -= size
            self._charge()

    async def _send(self, message: bytes) -> None:
        if self.gone.is_set():
            return
        if not self.has_begun:
            self.has_begun = True
            self.connection.begin_response(self)
        self.outgoing.append(b"\0" + len(message).to_bytes(4, "big") + message)
        self.connection.send_soon(self)
        while self.outgoing and not self.gone.is_set():
            self._changed.clear()
            await self._changed.wait()

    def end(self, status: Status) -> None:
        """End the call; harmless if it has ended."""
        if self.has_ended or self.gone.is_set():
            return
        self.has_ended = True
        headers = status.trailers()
        self.trailers = headers if self.has_begun else [*FIRST_HEADERS, *headers]
        self.connection.send_soon(self)
