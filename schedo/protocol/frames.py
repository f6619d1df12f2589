"""The frames between a server and its child processes, and their encoding.

A frame is four bytes of length, most significant first, and that many bytes of MessagePack with its
kind under "type". The kinds follow the worker protocol: attach, leases, stops, results, drain.
Bytes that are not a known frame end the connection and have no other effect.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Generic, Literal, TypeVar

import msgspec

from schedo.core.leases import AttemptResult, Lease, StopReason
from schedo.core.model import JobSpec, LeaseKey, Options, ScheduleSpec
from schedo.core.progress import ProgressUpdate
from schedo.protocol.jobs import SubmittedJob

PROTOCOL = 5
FRAME_BYTES_MAX = 4_194_304
_HEADER = struct.Struct("!I")


class BadFrame(Exception):
    """The bytes are not a frame of this protocol, or the frame is too large."""


# From the child.


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """The child is ready: the tasks that it runs, and the schedules of the application."""

    pid: int
    tasks: dict[str, Options]  # and the default options of each
    schedules: list[ScheduleSpec]
    async_tasks: frozenset[str] = frozenset()  # those that take no thread
    unused_store: str | None = None  # the one that the application names for its embedded use
    protocol: int = PROTOCOL


class CannotImport(msgspec.Struct, frozen=True, tag="cannot_import"):
    """The application cannot be imported; the last line of `text` is the reason."""

    text: str


class Results(msgspec.Struct, frozen=True, tag="results"):
    """Attempts have ended."""

    results: list[AttemptResult]


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """The handler of an attempt reported progress."""

    key: LeaseKey
    said: ProgressUpdate


class Abandoned(msgspec.Struct, frozen=True, tag="abandoned"):
    """The handler of an attempt ignores its stop: the server must replace this process."""

    key: LeaseKey


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """The response to a ping."""


class BackendRequest(msgspec.Struct, frozen=True, tag="backend_request"):
    """A call of the application's code to its backend: about new jobs (specs) or one (job_id)."""

    number: int
    verb: Literal["submit", "broadcast", "get", "wait", "cancel"]
    specs: list[JobSpec] = []
    job_id: str = ""
    timeout_s: float = 0.0


# From the server.


class Leases(msgspec.Struct, frozen=True, tag="leases"):
    """Run these leases; start none after start_by, on the monotonic clock (the same in both)."""

    leases: list[Lease]
    start_by: float


class Stops(msgspec.Struct, frozen=True, tag="stops"):
    """Stop these attempts."""

    stops: list[tuple[LeaseKey, StopReason]]


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """A check that the child's event loop is not blocked."""


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Finish the running attempts and end; no more leases follow."""


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """A SchedoError, encoded for the child."""

    code: str
    message: str


class BackendResponse(msgspec.Struct, frozen=True, tag="backend_response"):
    """The response to the request with this number: submitted jobs, a record, or one error."""

    number: int
    tickets: list[SubmittedJob | Refusal] = []
    record: dict[str, Any] = {}
    refusal: Refusal | None = None


FromChild = Attach | CannotImport | Results | Progressed | Abandoned | Pong | BackendRequest
FromServer = Leases | Stops | Ping | Drain | BackendResponse
_encoder = msgspec.msgpack.Encoder()
_results_decoder = msgspec.msgpack.Decoder(list[AttemptResult])
_RESULTS = _encoder.encode(Results([]))[:-1]  # a frame of results up to its list
_LIST = struct.Struct("!BI")
_LIST_SIGN = 0xDD  # of a list whose length follows in four bytes
_F = TypeVar("_F")


def encode_frame(frame: FromChild | FromServer) -> bytes:
    """Return the encoded frame; raise BadFrame if it is too large."""
    return _frame(_encoder.encode(frame))


def encode_result(result: AttemptResult) -> bytes:
    """Return the result as a part of a frame."""
    return _encoder.encode(result)


def frame_results(count: int, encoded: bytes) -> bytes:
    """Return the frame Results with these results; raise BadFrame if it is too large."""
    return _frame(b"".join((_RESULTS, _LIST.pack(_LIST_SIGN, count), encoded)))


def decode_results(count: int, encoded: bytes) -> list[AttemptResult]:
    """Return this number of results; raise BadFrame if they are no results."""
    return _decode(_results_decoder, _LIST.pack(_LIST_SIGN, count) + encoded)


def _frame(body: bytes) -> bytes:
    if len(body) > FRAME_BYTES_MAX:
        raise BadFrame(f"a frame of {len(body)} bytes; the limit is {FRAME_BYTES_MAX}")
    return _HEADER.pack(len(body)) + body


def _decode(decoder: msgspec.msgpack.Decoder[_F], body: bytes) -> _F:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Without the bytes: the message goes to the log, and they may be a user's payload.
        raise BadFrame(f"{len(body)} bytes are not a frame: {error}") from None


class FrameReader(Generic[_F]):
    """Splits the bytes of one direction into frames; does no I/O."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[_F]) -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[_F]:
        """Yield the frames that are complete now; raise BadFrame at the first invalid one."""
        self._buffer += data
        start, end = 0, len(self._buffer)
        try:
            while end - start >= _HEADER.size:
                (length,) = _HEADER.unpack_from(self._buffer, start)
                if length > FRAME_BYTES_MAX:
                    raise BadFrame(
                        f"the header announces {length} bytes; the limit is {FRAME_BYTES_MAX}"
                    )
                after = start + _HEADER.size + length
                if after > end:
                    break
                body = bytes(self._buffer[start + _HEADER.size : after])
                start = after
                yield _decode(self._decoder, body)
        finally:
            del self._buffer[:start]


def child_frames() -> FrameReader[FromChild]:
    """Return a reader of a child's frames."""
    return FrameReader(msgspec.msgpack.Decoder(FromChild))


def server_frames() -> FrameReader[FromServer]:
    """Return a reader of the server's frames."""
    return FrameReader(msgspec.msgpack.Decoder(FromServer))
