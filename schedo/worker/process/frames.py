"""What a server and its child processes say to each other, and how it lies on the wire.

A frame is four bytes of length, most significant first, and that many bytes of MessagePack with its
kind under "type". The words are those of every worker: attach, leases, stops, results, drain.
Anything that is not a known frame ends the connection and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from schedo.core.leases import AttemptResult, Lease, StopReason
from schedo.core.model import PLAIN, JobSpec, LeaseKey, Options, ScheduleSpec
from schedo.tasks.backend import SubmittedJob
from schedo.tasks.progress import Said

PROTOCOL = 3
FRAME_BYTES_MAX = 4_194_304
_HEADER = struct.Struct("!I")
_LEASE_BYTES_MAX = 512  # but for its options and its payload
_OPTIONS_BYTES_MAX = 16_384
_READ_BYTES = 65_536
_REST_READS_MAX = 1_024  # many times what a socket holds


class BadFrame(Exception):
    """The other side does not speak this protocol."""


def measure_lease(lease: Lease) -> int:
    """Return at most how many bytes the lease takes in a frame."""
    options = 0 if lease.options is PLAIN else _OPTIONS_BYTES_MAX
    return _LEASE_BYTES_MAX + options + len(lease.payload or b"")


# From the child.


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """I can run these tasks, and the application wants these schedules."""

    pid: int
    tasks: dict[str, Options]  # with the defaults of each
    schedules: list[ScheduleSpec]
    protocol: int = PROTOCOL


class CannotImport(msgspec.Struct, frozen=True, tag="cannot_import"):
    """The application cannot be imported; text ends with the reason."""

    text: str


class Result(msgspec.Struct, frozen=True, tag="result"):
    """This attempt has ended."""

    report: AttemptResult


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """What the handler of this attempt says of its progress."""

    key: LeaseKey
    said: Said


class Abandoned(msgspec.Struct, frozen=True, tag="abandoned"):
    """The handler of this attempt ignores its stop: this process must be replaced."""

    key: LeaseKey


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """It does."""


class BackendRequest(msgspec.Struct, frozen=True, tag="ask"):
    """The application's own code hands in jobs (specs) or asks about one (job_id)."""

    number: int
    verb: Literal["submit", "get", "wait", "cancel"]
    specs: list[JobSpec] = []
    job_id: str = ""
    timeout_s: float = 0.0


# From the server.


class Leases(msgspec.Struct, frozen=True, tag="leases"):
    """Run these; start none after start_by, an instant of the clock that both processes share."""

    leases: list[Lease]
    start_by: float


class Stops(msgspec.Struct, frozen=True, tag="stops"):
    """End these attempts."""

    stops: list[tuple[LeaseKey, StopReason]]


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Does your loop turn?"""


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Finish what runs, then leave; nothing more will come."""


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """A SchedoError on its way to the child."""

    code: str
    message: str


class BackendResponse(msgspec.Struct, frozen=True, tag="answer"):
    """What the question with this number brought: tickets, a record, or one error for it all."""

    number: int
    tickets: list[SubmittedJob | Refusal] = []
    record: dict[str, Any] = {}
    refusal: Refusal | None = None


FromChild = Attach | CannotImport | Result | Progressed | Abandoned | Pong | BackendRequest
FromServer = Leases | Stops | Ping | Drain | BackendResponse
_encoder = msgspec.msgpack.Encoder()
_F = TypeVar("_F")


def encode_frame(frame: FromChild | FromServer) -> bytes:
    """Return the frame as it lies on the wire; raise BadFrame if it is too large."""
    body = _encoder.encode(frame)
    if len(body) > FRAME_BYTES_MAX:
        raise BadFrame(f"a frame of {len(body)} bytes; at most {FRAME_BYTES_MAX} are possible")
    return _HEADER.pack(len(body)) + body


class FrameReader(Generic[_F]):
    """Cuts the bytes of one direction into frames; knows nothing of sockets."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[_F]) -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[_F]:
        """Yield the frames that are now complete; raise BadFrame at the first that is none."""
        self._buffer += data
        start, end = 0, len(self._buffer)
        try:
            while end - start >= _HEADER.size:
                (length,) = _HEADER.unpack_from(self._buffer, start)
                if length > FRAME_BYTES_MAX:
                    raise BadFrame(f"a frame of {length} bytes is announced")
                after = start + _HEADER.size + length
                if after > end:
                    break
                body = bytes(self._buffer[start + _HEADER.size : after])
                start = after
                yield self._decode(body)
        finally:
            del self._buffer[:start]

    def _decode(self, body: bytes) -> _F:
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # Not with what it holds: this goes to the log, and it may be anybody's payload.
            raise BadFrame(f"{len(body)} bytes that are no frame: {error}") from None


def child_frames() -> FrameReader[FromChild]:
    """Return a reader of what a child says."""
    return FrameReader(msgspec.msgpack.Decoder(FromChild))


def server_frames() -> FrameReader[FromServer]:
    """Return a reader of what the server says."""
    return FrameReader(msgspec.msgpack.Decoder(FromServer))


class FrameConnection(asyncio.Protocol, Generic[_F]):
    """One end of the socket. `on_closed` is called once, with what was wrong or None.

    A transport closes when a write fails, and drops what it has not read yet. But the other end may
    have said a lot before it went, so a second descriptor is kept to read the rest from.
    """

    def __init__(
        self,
        reader: FrameReader[_F],
        on_frame: Callable[[_F], None],
        on_closed: Callable[[str | None], None],
    ) -> None:
        self._reader = reader
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._rest: socket.socket | None = None
        self._has_finished = False
        self._fault: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it
        descriptor = transport.get_extra_info("socket").fileno()
        self._rest = socket.socket(fileno=os.dup(descriptor))

    def data_received(self, data: bytes) -> None:
        if self._fault is not None:
            return
        try:
            for frame in self._reader.feed(data):
                self._on_frame(frame)
        except BadFrame as error:
            self._fault = str(error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._read_rest()
        self._on_closed(self._fault)

    def _read_rest(self) -> None:
        assert self._rest is not None, "the connection was made"
        with self._rest as rest, contextlib.suppress(OSError):  # empty, or reset by the other end
            for _ in range(_REST_READS_MAX):
                data = rest.recv(_READ_BYTES)
                if not data:
                    break
                self.data_received(data)

    def send(self, frame: FromChild | FromServer) -> None:
        """Write the frame; harmless once the connection is closed."""
        if self._transport is not None and not self._has_finished:
            self._transport.write(encode_frame(frame))

    def finish(self) -> None:
        """Send no more. The other end closes the connection when it has read everything."""
        if self._transport is not None and not self._has_finished:
            self._has_finished = True
            self._transport.write_eof()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()
