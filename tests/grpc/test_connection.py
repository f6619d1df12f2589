"""A connection has bounds: hostile and dead clients lose it, and the others notice nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import pytest

from schedo.client.aio import AsyncClient
from schedo.errors import SchedoError
from schedo.grpc import connection as limits
from schedo.grpc import schedo_pb2 as pb
from tests.grpc.calling import DEADLINE_S, Client, Served
from tests.web.world import World

HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "localhost"),
    (":path", "/schedo.v1.Schedo/Submit"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


class RawClient:
    """A client that does with HTTP/2 what the test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()

    def send(self) -> None:
        self.writer.write(self.h2.data_to_send())

    def begin(self, *more: tuple[str, str], path: str = HEADERS[3][1]) -> int:
        """Begin a call, and return the number of its stream."""
        stream: int = self.h2.get_next_available_stream_id()
        headers = [(name, path if name == ":path" else value) for name, value in HEADERS]
        self.h2.send_headers(stream, [*headers, *more])
        return stream

    async def events(self) -> AsyncIterator[h2.events.Event]:
        """Yield what the server sends, until it closes the connection."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    data = await self.reader.read(65_536)
                except ConnectionError:
                    return
                if not data:
                    return
                for event in self.h2.receive_data(data):
                    yield event
                self.send()

    async def closed(self) -> None:
        """Return when the server has closed the connection."""
        async for _ in self.events():
            pass

    async def ended(self, stream: int) -> dict[str, str]:
        """Return the last headers of a call."""
        headers: dict[str, str] = {}
        async for event in self.events():
            if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                headers |= {str(name): str(value) for name, value in event.headers}
            if getattr(event, "stream_id", None) == stream and headers.get("grpc-status"):
                return headers
        raise AssertionError("the connection is closed")


@asynccontextmanager
async def connected(served: Served) -> AsyncIterator[RawClient]:
    host, _, port = served.client.address.rpartition(":")
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    client.send()
    try:
        yield client
    finally:
        client.writer.close()


async def still_serves(client: Client) -> bool:
    return bool((await client.call("Submit", task="resize")).id)


async def test_an_endless_frame_closes_the_connection(served: Served) -> None:
    async with connected(served) as raw:
        raw.writer.write(b"\xff\xff\xff\0\0\0\0\0\1" + b"x" * limits.FRAME_BYTES_MAX)
        async with asyncio.timeout(DEADLINE_S):
            assert await raw.reader.read() != b""  # it says why, and closes

    assert await still_serves(served.client)


async def test_the_command_line_learns_that_the_port_is_that_of_grpc(served: Served) -> None:
    async with AsyncClient(f"http://{served.client.address}") as client:
        with pytest.raises(SchedoError, match="This port speaks gRPC") as refused:
            await client.list_names()

    assert refused.value.code == "grpc-port"
    assert await still_serves(served.client)


async def test_bytes_that_are_neither_http_2_nor_http_1_are_refused(served: Served) -> None:
    host, _, port = served.client.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x16\x03\x01\x02\x00")  # the begin of a handshake of TLS
    async with asyncio.timeout(DEADLINE_S):
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()

    assert await still_serves(served.client)


@pytest.mark.parametrize(
    ("prefix", "code", "why"),
    [
        (b"\0\x7f\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT, "larger than 8388608 bytes"),
        (b"\1\0\0\0\1x", grpc.StatusCode.UNIMPLEMENTED, "compressed"),
        (b"\0\0\0\0\x09ab", grpc.StatusCode.INVALID_ARGUMENT, "in the middle of a message"),
        (b"\0\0", grpc.StatusCode.INVALID_ARGUMENT, "in the middle of a message"),
        (b"", grpc.StatusCode.INVALID_ARGUMENT, "has no message"),
    ],
    ids=["huge", "compressed", "truncated", "no length", "empty"],
)
async def test_a_message_that_cannot_be_received_ends_its_call_only(
    served: Served, prefix: bytes, code: grpc.StatusCode, why: str
) -> None:
    async with connected(served) as raw:
        first = raw.begin()
        raw.h2.send_data(first, prefix, end_stream=True)
        raw.send()
        ended = await raw.ended(first)
        second = raw.begin(path="/grpc.health.v1.Health/Check")
        raw.h2.send_data(second, b"\0\0\0\0\0", end_stream=True)
        raw.send()

        assert (await raw.ended(second))["grpc-status"] == "0"

    assert (int(ended["grpc-status"]), why in ended["grpc-message"]) == (code.value[0], True)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (("grpc-timeout", "soon"), "grpc-timeout"),
        (("content-type", "text/html"), "speaks gRPC"),
    ],
    ids=lambda each: each if isinstance(each, str) else each[0],
)
async def test_bad_headers_end_the_call(served: Served, header: tuple[str, str], why: str) -> None:
    async with connected(served) as raw:
        stream = raw.begin(header)
        raw.send()

        assert why in (await raw.ended(stream))["grpc-message"]


async def test_headers_above_the_limit_close_the_connection(served: Served) -> None:
    async with connected(served) as raw:
        raw.begin(("x-large", "x" * limits.HEADERS_BYTES_MAX))
        raw.send()
        await raw.closed()

    assert await still_serves(served.client)


async def test_a_client_that_leaves_its_calls_too_often_loses_its_connection(
    served: Served,
) -> None:
    async with connected(served) as raw:
        for _ in range(limits.RESETS_MAX + 1):
            raw.h2.reset_stream(raw.begin())
        raw.send()
        await raw.closed()

    assert await still_serves(served.client)


async def test_a_client_that_does_not_answer_pings_loses_its_connection(served: Served) -> None:
    async with connected(served) as raw:
        stream = raw.begin(path="/schedo.v1.Schedo/Work")
        message = pb.WorkRequest(seq=1, worker="w1", session_timeout=6).SerializeToString()
        raw.h2.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message)
        raw.send()
        async for event in raw.events():
            if isinstance(event, h2.events.DataReceived):
                break
        (connection,) = served.server.connections
        now = asyncio.get_running_loop().time()

        for seconds in (3, 6, 9):  # a third of the session each; no ping is answered meanwhile
            connection.check(now + seconds)
        await raw.closed()

    assert not served.server.connections


async def test_a_suspended_server_does_not_blame_its_clients(served: Served) -> None:
    assert await still_serves(served.client)
    (connection,) = served.server.connections
    now = asyncio.get_running_loop().time()

    connection.check(now + limits.PING_S)
    connection.check(now + 100 * limits.PING_S)

    assert await still_serves(served.client)
    assert served.server.connections == {connection}


async def test_a_client_that_does_not_read_loses_its_connection(
    served: Served, world: World
) -> None:
    job = await world.submit(payload="x" * 900_000, delay="1h")
    async with connected(served) as raw:
        request = pb.GetRequest(id=job["id"]).SerializeToString()
        stream = raw.begin(path="/schedo.v1.Schedo/Get")
        raw.h2.send_data(stream, b"\0\0\0\0\x0f" + request, end_stream=True)
        raw.send()
        async for event in raw.events():
            if isinstance(event, h2.events.DataReceived):
                break  # it gives no new window
        (connection,) = served.server.connections
        connection.check(asyncio.get_running_loop().time() + limits.STALL_S + 1)
        await raw.closed()

    assert world.app.context.in_flight.total == 0


async def test_the_account_is_balanced_after_all_calls(client: Client, world: World) -> None:
    calls: list[Any] = [
        client.call("Submit", task="a", payload='"' + "x" * size + '"')
        for size in (10, 10_000, 100_000, 900_000)
    ]

    await asyncio.gather(*calls)

    assert (world.app.context.in_flight.total, world.app.context.in_flight.by_connections) == (0, 0)
