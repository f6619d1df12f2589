"""The encoding of frames, frames in several pieces, and invalid frames."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from schedo.core.leases import AttemptResult, Completed, Failed, Lease, StopReason
from schedo.core.model import (
    PLAIN,
    Failure,
    JobSpec,
    LeaseKey,
    Options,
    Retry,
    Rule,
    ScheduleSpec,
    Trigger,
    Unique,
)
from schedo.protocol import frames
from schedo.protocol.frames import (
    BadFrame,
    child_frames,
    encode_frame,
    server_frames,
)
from schedo.protocol.jobs import SubmittedJob
from schedo.worker.process.connection import FrameConnection
from schedo.worker.process.lease_batch import LEASE_BYTES_MAX, measure_options
from tests.worker.calls import both_loops

KEY = LeaseKey(job_id=2**62, attempt=1, epoch=3)
LEASE = Lease(
    KEY, "w", "task", "default", b'{"a":"\xc3\xa9"}', Options(tags=("x",)), 17, Trigger.SCHEDULE, 2
)
SPEC = JobSpec("task", b"[1]", options=Options(retry=Retry(max_attempts=2)))

FROM_CHILD: list[frames.FromChild] = [
    frames.Attach(7, {"task": Options()}, [ScheduleSpec("s", Rule(cron="* * * * *"), SPEC)]),
    frames.CannotImport("why"),
    frames.Results([AttemptResult(KEY, Completed(b'{"x":1}')), AttemptResult(KEY, Completed())]),
    frames.Results([AttemptResult(KEY, Failed(Failure("ValueError", "no"), retryable=False))]),
    frames.Abandoned(KEY),
    frames.Pong(),
    frames.BackendRequest(1, "submit", specs=[SPEC]),
]
FROM_SERVER: list[frames.FromServer] = [
    frames.Leases([LEASE, LEASE], 12.5),
    frames.Stops([(KEY, StopReason.TIMEOUT)]),
    frames.Ping(),
    frames.Drain(),
    frames.BackendResponse(1, [SubmittedJob(1), frames.Refusal("conflict", "no")], {"state": "x"}),
]


def test_a_frame_is_its_length_and_messagepack() -> None:
    assert encode_frame(frames.Ping()) == b"\x00\x00\x00\x0b\x81\xa4type\xa4ping"


def test_every_frame_of_a_child_can_be_written_and_read_back() -> None:
    sent = b"".join(map(encode_frame, FROM_CHILD))

    assert list(child_frames().feed(sent)) == FROM_CHILD


def test_every_frame_of_the_server_can_be_written_and_read_back() -> None:
    sent = b"".join(map(encode_frame, FROM_SERVER))

    assert list(server_frames().feed(sent)) == FROM_SERVER


def test_frames_may_arrive_byte_by_byte() -> None:
    reader = server_frames()
    sent = b"".join(map(encode_frame, FROM_SERVER))

    got = [frame for byte in sent for frame in reader.feed(bytes([byte]))]

    assert got == FROM_SERVER


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x01\x80",
        b"\x00\x00\x00\x09\x81\xa4type\xa2\xff\xfe",
        b"\x00\x00\x00\x0c\x81\xa4type\xa5bogus",
        b"\x00\x00\x00\x0d\x81\xa4type\xa6leases",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x9c\x40" + b"\x91" * 40_000,
    ],
    ids=["http", "no type", "not UTF-8", "unknown", "a server's", "empty", "deep"],
)
def test_an_invalid_frame_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        list(child_frames().feed(data))


def test_a_frame_that_is_too_long_is_refused_at_its_header() -> None:
    with pytest.raises(BadFrame, match="the header announces 4194305 bytes"):
        list(child_frames().feed(b"\x00\x40\x00\x01"))
    with pytest.raises(BadFrame, match="the limit is 4194304"):
        encode_frame(frames.CannotImport("x" * 4_194_304))


TEXT = "x" * 1_000
HEAVY = Options(
    tags=tuple(f"{n:0128}" for n in range(20)),
    meta={"numbers": [0.5] * 1_000},
    traceparent="0" * 55,
    tracestate="x" * 512,
    unique=Unique("\u20ac" * 255),
)
SHORT = Options(
    retry=Retry(1_000, "ladder", 2**53, 99.99, 2**53, 0.123456789, (2**53,) * 25, 2**53),
    timeout_us=2**53,
    at_most_once=True,
)


@pytest.mark.parametrize(
    "lease",
    [
        Lease(KEY, "w", "task", "default", TEXT.encode(), PLAIN, 17, Trigger.SUBMIT, 0),
        Lease(KEY, "w" * 64, "t" * 128, "q" * 128, b"1", SHORT, 2**62, Trigger.CATCHUP, 10_000),
        Lease(KEY, "w" * 64, "t" * 128, "q" * 128, b"1", HEAVY, 2**62, Trigger.CATCHUP, 10_000),
    ],
    ids=["a payload", "short options", "every option"],
)
def test_a_lease_takes_no_more_bytes_than_it_is_measured_at(lease: Lease) -> None:
    measured = LEASE_BYTES_MAX + measure_options(lease.options) + len(lease.payload or b"")

    assert len(encode_frame(frames.Leases([lease], 12.5))) <= measured


class End:
    """One end of a real socket pair, which records the received frames."""

    def __init__(self) -> None:
        self.frames: list[frames.FromChild] = []
        self.closed: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.connection = FrameConnection(
            child_frames(), self.frames.append, self.closed.set_result
        )

    async def read_from(self, sent: bytes) -> str | None:
        """Return the protocol error after the other end has sent the bytes and closed."""
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self.connection, sock=ours)
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(30):
            fault = await self.closed
        theirs.close()
        return fault


async def test_a_connection_has_no_room_until_the_other_end_reads() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop, rooms, closed = asyncio.get_running_loop(), asyncio.Queue[bool](), asyncio.Event()
    connection = FrameConnection(
        child_frames(), print, lambda fault: closed.set(), rooms.put_nowait
    )
    await loop.create_unix_connection(lambda: connection, sock=ours)
    large = frames.BackendResponse(1, refusal=frames.Refusal("x", "y" * 4_000_000))

    connection.send(large)
    assert rooms.get_nowait() is False
    left = len(encode_frame(large))
    while left:
        left -= len(await loop.sock_recv(theirs, left))

    async with asyncio.timeout(30):
        assert await rooms.get() is True
        theirs.close()
        await closed.wait()


async def test_the_end_of_a_connection_is_no_error() -> None:
    end = End()

    assert await end.read_from(encode_frame(frames.Pong())) is None
    assert end.frames == [frames.Pong()]
    end.connection.send(frames.Ping())  # harmless by now


async def test_an_invalid_frame_closes_the_connection_and_earlier_frames_count() -> None:
    end = End()

    fault = await end.read_from(encode_frame(frames.Pong()) + b"garbage, garbage")

    assert fault == "the header announces 1734439522 bytes; the limit is 4194304"
    assert end.frames == [frames.Pong()]


@both_loops
def test_frames_sent_before_a_close_are_read_although_a_write_fails(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> tuple[str | None, list[frames.FromChild]]:
        end = End()
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: end.connection, sock=ours)
        end.connection.send(frames.Ping())  # never read there, so that closing is a reset
        theirs.sendall(encode_frame(frames.Pong()) * 100)
        theirs.close()
        end.connection.send(frames.Ping())  # the loop closes the connection because of this
        async with asyncio.timeout(30):
            return await end.closed, end.frames

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(main()) == (None, [frames.Pong()] * 100)
