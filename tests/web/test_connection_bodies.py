"""Bodies that are too large, late or broken, on real sockets against a real server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import cast

import pytest

from schedo.engine.sharing import LoopShare
from schedo.store.base import Store
from schedo.store.sqlite.store import SqliteStore
from schedo.testing.faults import FaultyStore
from schedo.web.chunked_body import Chunks
from schedo.web.server import HttpServer
from tests.web.connecting import HEAD, Served, connected, open_connection, talk, turn
from tests.web.world import World

POST = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
DELETE = b"DELETE /v1/schedules/daily HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
DAILY = {"cron": "0 5 * * *", "task": "a"}


async def test_a_body_over_the_limit_is_refused_before_it_is_read(served: Served) -> None:
    _, _, port = served

    declared = await talk(port, POST + b"Content-Length: 1048577\r\n\r\n", read_to_end=False)
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    chunked = await talk(port, POST + CHUNKED, *[chunk] * 20, read_to_end=False)

    assert declared.startswith(b"HTTP/1.1 413 ")
    assert chunked.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("sent", [b"", b"{"], ids=repr)
async def test_a_body_that_does_not_arrive_is_refused_after_30_seconds(
    served: Served, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    _, server, port = served
    reader, writer = await open_connection(port)
    writer.write(POST + b"Content-Length: 100\r\n\r\n" + sent)
    await connected(server)
    await turn()
    await turn()
    protocol = server.connections[0]
    now = asyncio.get_running_loop().time()

    protocol.check_deadline(now + 29)
    assert not protocol.transport.is_closing()
    protocol.check_deadline(now + 31)

    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert answer.count(b"\r\n\r\n") == 1
    assert b"content-type: application/problem+json" in answer
    writer.close()
    await connected(server, 0)
    assert caplog.records == []


@pytest.mark.parametrize(
    "pieces",
    [
        [POST + CHUNKED + b"zz\r\n"],
        [POST + CHUNKED, b"zz\r\n"],
        [POST + CHUNKED, b"1\r\n{\r\n", b"zz\r\n"],
        [POST + b"Expect: 100-continue\r\n" + CHUNKED + b"zz\r\n"],
        [HEAD + CHUNKED + b"zz\r\n"],
    ],
    ids=["at once", "later", "after a good one", "expecting", "for nothing"],
)
async def test_a_broken_chunk_gets_one_error_and_a_close(
    served: Served, pieces: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    world, server, port = served
    reader, writer = await open_connection(port)
    await connected(server)

    for piece in pieces:
        writer.write(piece)
        await turn()
    answer = await reader.read()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"\r\n\r\n") == 1
    assert b'"code":"bad-http"' in answer
    writer.close()
    await connected(server, 0)
    assert caplog.records == []
    assert (await world.get("/v1/jobs")).json()["items"] == []


async def test_the_client_can_send_its_whole_body_after_a_refusal(served: Served) -> None:
    _, server, port = served
    reader, writer = await open_connection(port)
    await connected(server)
    protocol = server.connections[0]

    writer.write(POST + CHUNKED + b"18000\r\n" + b" " * 98_304 + b"\r\nzz\r\n")  # pauses reading

    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    assert protocol.transport.is_reading()
    writer.close()


async def test_a_request_refused_for_its_body_has_changed_nothing(served: Served) -> None:
    world, _, port = served
    await world.put("/v1/schedules/daily", DAILY)

    answer = await talk(port, DELETE + CHUNKED + b"zz\r\n")

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert (await world.get("/v1/schedules/daily")).status == 200


async def test_a_request_that_has_begun_is_not_refused_for_its_body() -> None:
    store = FaultyStore(SqliteStore(":memory:"))
    server = HttpServer()
    async with World(store=cast(Store, store)) as world, asyncio.timeout(10):
        port = await server.start(world.app, "127.0.0.1", 0)
        await world.put("/v1/schedules/daily", DAILY)
        reader, writer = await open_connection(port)
        store.hold()
        writer.write(DELETE + CHUNKED)
        await store.wait_held()

        writer.write(b"zz\r\n")
        answer = await reader.read()

        store.release()
        writer.close()
        await server.stop()
    assert answer == b""


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (HEAD + CHUNKED, b'{"status":"ok"}'),
        (POST + CHUNKED + b"110000\r\n" + b" " * 0x110000 + b"\r\n", b'"code":"too-large"'),
    ],
    ids=["not read", "read in part"],
)
async def test_a_request_with_a_response_gets_no_second_one_for_its_body(
    served: Served, sent: bytes, answer: bytes
) -> None:
    _, _, port = served
    reader, writer = await open_connection(port)
    writer.write(sent)
    await writer.drain()
    await reader.readuntil(answer)

    writer.write(b"zz\r\n")

    assert b"HTTP" not in await reader.read()
    writer.close()


async def test_a_refusal_is_not_sent_before_an_earlier_response(served: Served) -> None:
    world, server, port = served
    job = await world.submit(delay=60)
    wait = f"GET /v1/jobs/{job['id']}/wait?timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    reader, writer = await open_connection(port)
    writer.write(wait.encode() + POST + CHUNKED + b"zz\r\n")
    await connected(server)
    await turn()
    await turn()

    world.app.drain()

    responses = await reader.read()
    assert re.findall(rb"HTTP/1.1 (\d+)", responses) == [b"202", b"400"]
    writer.close()


async def test_the_deadline_of_a_body_starts_after_the_earlier_response(served: Served) -> None:
    world, server, port = served
    job = await world.submit(delay=60)
    wait = f"GET /v1/jobs/{job['id']}/wait?timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    reader, writer = await open_connection(port)
    writer.write(wait.encode() + POST + b"Content-Length: 15\r\n\r\n")
    await connected(server)
    await turn()
    await turn()

    server.connections[0].check_deadline(asyncio.get_running_loop().time() + 1_000)
    world.app.drain()
    assert await reader.readline() == b"HTTP/1.1 202 Accepted\r\n"
    writer.write(b'{"task":"demo"}')

    await reader.readuntil(b"HTTP/1.1 201 Created\r\n")
    writer.close()


async def test_a_body_of_tiny_chunks_is_decoded_in_small_parts(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, port = served
    fed: list[int] = []
    delayed = 0
    feed, begin_later = Chunks.feed, LoopShare.begin_later

    def watch(chunks: Chunks, wire: bytes) -> tuple[list[bytes], bytes]:
        fed.append(len(wire))
        return feed(chunks, wire)

    def count(share: LoopShare, begin: Callable[[], None], *, is_urgent: bool = False) -> None:
        nonlocal delayed
        delayed += 1
        begin_later(share, begin, is_urgent=is_urgent)

    monkeypatch.setattr(Chunks, "feed", watch)
    monkeypatch.setattr(LoopShare, "begin_later", count)
    body = b"".join(b"8\r\n%b\r\n" % (b" " * 8) for _ in range(20_000)) + b"0\r\n\r\n"
    answer = await talk(port, POST + b"Connection: close\r\n" + CHUNKED + body)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert sum(fed) >= len(body)
    assert max(fed[1:]) <= 8_192 + 16
    assert delayed >= len(body) // 8_300


async def test_large_chunks_are_received_without_delay(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, port = served
    fed: list[int] = []
    feed = Chunks.feed

    def watch(chunks: Chunks, wire: bytes) -> tuple[list[bytes], bytes]:
        fed.append(len(wire))
        return feed(chunks, wire)

    monkeypatch.setattr(Chunks, "feed", watch)
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    sent = POST + b"Connection: close\r\n" + CHUNKED + chunk * 10 + b"0\r\n\r\n"
    answer = await talk(port, sent)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert max(fed) > 16_000
