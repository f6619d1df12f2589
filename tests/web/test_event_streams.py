"""Event streams over real sockets: who gets what, and what slow clients cost."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from schedo.web import events
from schedo.web.events import STREAM_BYTES_MAX, STREAMS_MAX, EventHub
from schedo.web.server import HttpServer
from schedo.web.sessions import SESSION_US
from schedo.web.settings import WebSettings
from tests.web.connecting import Served, open_connection, talk, turn
from tests.web.handlers.test_timeseries import pass_second
from tests.web.test_events import parse
from tests.web.test_sessions import SETTINGS, log_in
from tests.web.world import World

READERS = 300
_HEAD = b"HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
async def served(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(events, "FRAME_S", 3_600.0)  # only the test renders
    server = HttpServer()
    port = await server.start(world.app, "127.0.0.1", 0)
    yield world, server, port
    await server.stop(grace_s=0.2)


def hub_of(world: World) -> EventHub:
    hub = world.app.context.events
    assert hub is not None
    return hub


class Subscriber:
    """The clients of one test."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writers: list[asyncio.StreamWriter] = []

    async def __call__(self, query: str = "", **headers: str) -> asyncio.StreamReader:
        """Open a stream and return its reader behind the head of the response."""
        reader, writer = await open_connection(self.port)
        self.writers.append(writer)
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(f"GET /v1/events{query} ".encode() + _HEAD + more.encode() + b"\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        assert b"content-type: text/event-stream\r\n" in head
        assert b"cache-control: no-store\r\n" in head
        return reader


@pytest.fixture
async def subscribe(served: Served) -> AsyncIterator[Subscriber]:
    _, _, port = served
    subscriber = Subscriber(port)
    yield subscriber
    for writer in subscriber.writers:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def read_until(reader: asyncio.StreamReader, text: bytes) -> bytes:
    """Return what the stream has sent up to a text, without the framing of chunks."""
    async with asyncio.timeout(10):
        found = await reader.readuntil(text)
    return b"\n".join(line for line in found.split(b"\r\n"))


async def test_a_stream_ends_with_its_session(served: Served, subscribe: Subscriber) -> None:
    world, _, _ = served
    world.app.use(SETTINGS)
    reader = await subscribe(cookie=await log_in(world))
    hub_of(world).render(with_tick=True)
    await read_until(reader, b"event: tick\n")
    world.clock.stall(SESSION_US)

    hub_of(world).render(with_tick=True)

    assert b"event" not in await read_until(reader, b"\r\n0\r\n\r\n")
    assert hub_of(world).streams == 0


async def test_a_stream_brings_a_tick_with_the_verdict_and_changed_jobs(
    served: Served, subscribe: Subscriber
) -> None:
    world, _, _ = served
    reader = await subscribe()
    assert b"retry: 2000\n\n" in await read_until(reader, b"retry: 2000\n\n")
    await world.submit(queue="mail")
    world.engine.series.sample()
    hub_of(world).render(with_tick=True)

    text = await read_until(reader, b'"timer":')

    assert b"event: jobs\n" in text
    assert b'"queue":"mail"' in text
    assert b"event: tick\n" in text
    assert b'"verdict":{"level":"' in text


async def test_an_interrupted_stream_goes_on_where_it_ended(
    served: Served, subscribe: Subscriber
) -> None:
    world, _, _ = served
    await subscribe("?topics=tick")
    hub = hub_of(world)
    hub.render(with_tick=True)
    last = hub.ident(hub.newest)
    hub.render(with_tick=True)

    again = await subscribe("?topics=tick", Last_Event_ID=last)
    old = await subscribe("?topics=tick", Last_Event_ID="77-5")

    assert f"id: {hub.ident(hub.newest)}\n".encode() in await read_until(again, b"event: tick")
    assert b"event: reset" in await read_until(old, b"event: reset")


async def test_a_client_that_missed_a_change_of_the_tokens_reads_everything_again(
    served: Served, subscribe: Subscriber
) -> None:
    world, _, _ = served
    await subscribe("?topics=jobs")
    await world.submit()
    hub = hub_of(world)
    hub.render(with_tick=False)
    last = hub.ident(hub.newest)

    world.app.use(SETTINGS)
    world.app.use(WebSettings())
    await subscribe("?topics=jobs")
    for _ in range(2):
        await world.submit()
        hub_of(world).render(with_tick=False)

    again = await subscribe("?topics=jobs", Last_Event_ID=last)
    assert b"event: reset" in await read_until(again, b"\ndata")


async def test_each_figure_is_in_one_tick(served: Served, subscribe: Subscriber) -> None:
    world, _, _ = served
    pass_second(world)
    await subscribe("?topics=tick")
    hub = hub_of(world)
    hub._read_second()
    for _ in range(2):
        await world.submit(delay="1h")
        pass_second(world)

    both, none = hub._read_second()[0], hub._read_second()[0]

    assert both["figures"]["submitted"] == 2
    assert "figures" not in none
    assert none["verdict"] == both["verdict"]


async def test_a_tick_after_the_clock_was_set_back_has_the_present_figures(
    served: Served, subscribe: Subscriber
) -> None:
    world, _, _ = served
    await subscribe("?topics=tick")
    hub = hub_of(world)
    pass_second(world, 100)
    hub._read_second()
    await world.submit(delay="1h")
    pass_second(world, -50)

    assert hub._read_second()[0]["figures"]["submitted"] == 1


async def test_a_stream_follows_those_of_several_jobs_that_exist(
    served: Served, subscribe: Subscriber
) -> None:
    world, _, _ = served
    first, second = await world.submit(delay="1h"), await world.submit(delay="1h")
    reader = await subscribe(f"?job={first['id']},0CR6HNY34Y28H,{second['id']}")

    await world.post(f"/v1/jobs/{second['id']}:cancel")
    hub_of(world).render(with_tick=False)

    assert second["id"].encode() in await read_until(reader, b"cancelled")


async def test_a_stream_of_what_does_not_exist_is_refused(world: World) -> None:
    assert (await world.get("/v1/events?job=0CR6HNY34Y28H")).status == 404
    assert (await world.get("/v1/events?schedule=nosuch")).status == 404
    many = "job=" + ",".join(["0CR6HNY34Y28H"] * 17)
    bad = [("topics=nosuch", "topics"), ("job=x", "job"), (many, "job"), ("topics=", "topics")]
    for query, parameter in bad:
        reply = await world.get(f"/v1/events?{query}")
        assert reply.status == 400
        assert reply.json()["errors"][0]["parameter"] == parameter
    refused = await world.send("HEAD", "/v1/events")
    assert (refused.status, refused.headers["allow"]) == (405, "GET")


async def test_a_client_that_leaves_is_forgotten(served: Served, subscribe: Subscriber) -> None:
    world, _, _ = served
    await subscribe("?topics=tick")
    hub = hub_of(world)
    assert hub.streams == 1
    subscribe.writers[0].transport.abort()

    async with asyncio.timeout(10):
        while hub.streams:
            hub.render(with_tick=True)
            await turn()


async def test_streams_end_at_the_drain(served: Served, subscribe: Subscriber) -> None:
    world, _, port = served
    reader = await subscribe()
    await read_until(reader, b"retry: 2000\n\n")

    world.app.drain()

    async with asyncio.timeout(10):
        end = await reader.readuntil(b"\r\n0\r\n\r\n")
    assert end == b"\r\nd\r\nretry: 2000\n\n\r\n0\r\n\r\n"
    assert b" 503 " in await talk(port, b"GET /v1/events " + _HEAD + b"\r\n", read_to_end=False)


async def test_hundreds_of_readers_that_never_read_harm_no_other(
    served: Served, subscribe: Subscriber
) -> None:
    world, server, port = served
    sockets = [await _connect_deaf(port) for _ in range(READERS)]
    async with asyncio.timeout(30):
        while (hub := world.app.context.events) is None or hub.streams < STREAMS_MAX:
            await turn()
    hub._read_second = lambda: ({"text": "x" * (STREAM_BYTES_MAX // 2)}, [])

    most = 0
    for _ in range(200):  # 6 MB for each of them
        hub.render(with_tick=True)
        for _ in range(5):
            await turn()
        most = max(most, *(connection.held for connection in server.connections))

    assert hub.streams <= STREAMS_MAX
    assert most <= 2 * STREAM_BYTES_MAX
    assert world.app.context.in_flight.by_connections <= STREAMS_MAX * 2 * STREAM_BYTES_MAX
    assert hub._bytes <= events.FRAMES_BYTES_MAX
    assert b" 200 " in await talk(port, b"GET /healthz " + _HEAD + b"\r\n", read_to_end=False)
    for sock in sockets[: READERS // 2]:
        sock.close()
    async with asyncio.timeout(30):
        while hub.streams > STREAMS_MAX - 100:
            hub.render(with_tick=True)
            await turn()
    reader = await subscribe("?topics=tick")
    hub._read_second = lambda: ({"n": 1}, [])
    hub.render(with_tick=True)
    assert parse(b"id" + (await read_until(reader, b'{"n":1}\n\n')).partition(b"id")[2])
    for sock in sockets:
        sock.close()


async def _connect_deaf(port: int) -> socket.socket:
    """Ask for a stream and read nothing; the kernel keeps little for this client."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", port))
    await loop.sock_sendall(sock, b"GET /v1/events?topics=tick " + _HEAD + b"\r\n")
    return sock
