"""Bounds on the memory and the time that a hostile client can occupy, on real sockets."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import weakref

import pytest

from schedo.web.server import HttpServer
from tests.web.connecting import HEAD, Served, connected, open_connection, talk, turn
from tests.web.world import World

POST = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
JOB = b'{"task":"a"}'
MIB = 1_048_576


def statuses(responses: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", responses)]


async def deaf_client(port: int) -> socket.socket:
    """Connect a client with a small receive buffer that reads nothing by itself."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


async def push(sock: socket.socket, data: bytes) -> int:
    """Send as many bytes as the server accepts; return their number."""
    sent = idle = 0
    while sent < len(data) and idle < 50:
        try:
            sent += sock.send(data[sent : sent + 65_536])
            idle = 0
        except BlockingIOError:
            idle += 1
            await turn()
        except (ConnectionResetError, BrokenPipeError):
            break
    return sent


# Requests sent ahead.


async def test_ten_thousand_pipelined_requests_get_their_responses(served: Served) -> None:
    _, _, port = served
    reader, writer = await open_connection(port)
    request = HEAD + b"\r\n"

    async def send() -> None:
        for _ in range(100):
            writer.write(request * 100)
            await writer.drain()
        writer.write(HEAD + b"Connection: close\r\n\r\n")

    sending = asyncio.create_task(send())
    async with asyncio.timeout(30):
        responses = await reader.read()
    await sending

    assert responses.count(b'{"status":"ok"}') == 10_001
    writer.close()


async def test_pipelined_requests_of_a_client_that_does_not_read_are_not_received(
    served: Served,
) -> None:
    _, server, port = served
    sock = await deaf_client(port)

    sent = await push(sock, (HEAD + b"\r\n") * 500_000)

    connection = server.connections[0]
    assert sent < 24_000_000, "all else is in the buffers of two sockets"
    assert connection.held < 20_000
    sock.close()
    await connected(server, 0)


async def test_the_bytes_of_pipelined_requests_are_bounded(served: Served) -> None:
    world, server, port = served
    job = await world.submit(delay=60)
    wait = f"GET /v1/jobs/{job['id']}/wait?timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    sock = await deaf_client(port)

    await push(sock, wait.encode() + (HEAD + b"\r\n") * 5_000)
    await connected(server)
    for _ in range(5):
        await turn()

    assert server.connections[0].held <= 16_384
    sock.close()
    world.app.drain()


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"\r\n",
        HEAD,
        POST + b"Content-Length: 100\r\n\r\n{",
        POST + CHUNKED + b"5\r\n{",
        b"nonsense\r\n\r\n",
    ],
    ids=["answered", "head begun", "body begun", "chunk begun", "refused"],
)
async def test_a_closed_connection_is_freed_without_the_collector(
    served: Served, sent: bytes
) -> None:
    _, server, port = served
    gc.collect()
    gc.disable()
    try:
        _, writer = await open_connection(port)
        await connected(server)
        gone = weakref.ref(server.connections[0])
        writer.write(sent)
        for _ in range(5):
            await turn()
        writer.close()
        await connected(server, 0)
        for _ in range(1_000):  # the loop frees a closed socket some rounds later
            if gone() is None:
                break
            await turn()

        assert gone() is None, [repr(holder)[:200] for holder in gc.get_referrers(gone())]
    finally:
        gc.enable()


# Clients that do not read.


async def unread_answer(world: World, server: HttpServer, port: int) -> socket.socket:
    """Let a client request more bytes than the sockets hold, without reading."""
    job = await world.submit(payload="x" * 1_000_000)
    sock = await deaf_client(port)
    ask = f"GET /v1/jobs/{job['id']} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    async with asyncio.timeout(10):
        while not (server.connections and server.connections[0].outgoing.is_unread):
            await push(sock, ask)
            await turn()
    return sock


async def test_a_large_response_is_claimed_until_it_is_read(served: Served) -> None:
    world, server, port = served
    account = world.app.context.in_flight
    sock = await unread_answer(world, server, port)
    assert account.total >= 1_000_000

    sock.close()

    await connected(server, 0)
    while account.total:
        await turn()


async def test_a_client_that_reads_nothing_is_cut_off_after_30_seconds(served: Served) -> None:
    world, server, port = served
    sock = await unread_answer(world, server, port)
    connection = server.connections[0]
    now = asyncio.get_running_loop().time()

    connection.check_deadline(now + 29)
    await turn()
    assert server.connections == [connection]
    connection.check_deadline(now + 31)

    await connected(server, 0)
    sock.close()


async def test_unfinished_request_heads_of_all_connections_are_bounded(world: World) -> None:
    server = HttpServer()
    account = world.app.context.in_flight
    account.connections_max = 100_000
    port = await server.start(world.app, "127.0.0.1", 0)
    streams = [await open_connection(port) for _ in range(20)]
    for _, writer in streams:
        writer.write(HEAD + b"X-A: " + b"a" * 20_000)
        for _ in range(3):
            await turn()

    assert account.by_connections <= 100_000
    assert 1 <= len(server.connections) < 10
    assert (await talk(port, HEAD + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")
    for _, writer in streams:
        writer.close()
    await server.stop(grace_s=0.2)


async def test_an_idle_connection_is_closed_for_a_new_one_at_the_limit(served: Served) -> None:
    _, server, port = served
    idle = [await open_connection(port) for _ in range(3)]
    for reader, writer in idle:
        writer.write(HEAD + b"\r\n")
        await reader.readuntil(b'{"status":"ok"}')
    for connection in server.connections:
        connection._since -= 2

    answer = await talk(port, HEAD + b"Connection: close\r\n\r\n")

    assert statuses(answer) == [200]
    for _, writer in idle:
        writer.close()


# The framing of bodies.


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c", b"TLS/1.0, HTTP/1.1"])
@pytest.mark.parametrize("path", [b"/v1/jobs", b"/nope"])
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("is_split", [False, True], ids=["together", "apart"])
async def test_the_body_of_a_request_with_an_upgrade_header_is_read_as_its_body(
    served: Served, protocol: bytes, path: bytes, is_chunked: bool, is_split: bool
) -> None:
    world, _, port = served
    hidden = POST + b"Content-Length: %d\r\n\r\n" % len(JOB) + JOB
    head = POST.replace(b"/v1/jobs", path) + b"Connection: Upgrade\r\nUpgrade: " + protocol
    if is_chunked:
        head, body = (
            head + b"\r\n" + CHUNKED,
            b"%x\r\n" % len(hidden) + hidden + b"\r\n0\r\n\r\n",
        )
    else:
        head, body = head + b"\r\nContent-Length: %d\r\n\r\n" % len(hidden), hidden
    last = HEAD + b"Connection: close\r\n\r\n"
    reader, writer = await open_connection(port)

    writer.write(head if is_split else head + body + last)
    await turn()
    await turn()
    if is_split:
        writer.write(body + last)
    responses = await reader.read()

    assert statuses(responses) == [400 if path == b"/v1/jobs" else 404, 200]
    assert (await world.get("/v1/jobs")).json()["items"] == []
    writer.close()


async def test_a_job_with_an_upgrade_header_to_http_2_is_accepted(served: Served) -> None:
    _, _, port = served
    head = POST + (
        b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\nContent-Length: %d\r\n\r\n" % len(JOB)
    )

    assert statuses(await talk(port, head + JOB)) == [201]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET http://evil.example/v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n", 421),
        (b"GET http://evil.example:80?x HTTP/1.1\r\nHost: localhost\r\n\r\n", 421),
        (b"GET http://localhost/v1/info HTTP/1.1\r\nHost: evil.example\r\n\r\n", 200),
        (b"GET http://user@localhost/v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET ftp://localhost/v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET evil.example/v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET //evil.example/v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /v1/info#x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"TRACE /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /v1/info HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /v1/info\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n" + CHUNKED + b"0\r\n\r\n", 400),
        (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2, 2\r\n\r\n{}", 400),
        (POST + b"Content-Length: +2\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2\r\n" + CHUNKED + b"0\r\n\r\n", 400),
        (POST.replace(b"1.1", b"1.0") + CHUNKED + b"0\r\n\r\n", 400),
        (POST + b"X: a\x00b\r\n\r\n", 400),
        (POST + b"X: a\r\n b\r\n\r\n", 400),
        (POST + b"X : a\r\n\r\n", 400),
        (POST.replace(b"\r\n", b"\n") + b"\n", 400),
        (POST + b"X: a\n\r\nY: b\r\n\r\n", 400),
    ],
    ids=lambda value: repr(value)[:70],
)
async def test_ambiguous_framing_is_refused(served: Served, head: bytes, status: int) -> None:
    world, _, port = served

    answer = await talk(port, head + HEAD + b"Connection: close\r\n\r\n")

    assert statuses(answer)[0] == status, answer
    assert (await world.get("/v1/jobs")).json()["items"] == []


# Bytes after a refusal.


async def test_an_oversized_body_in_a_single_write_is_refused_as_too_large(served: Served) -> None:
    _, _, port = served
    head = POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % (17 * MIB)

    answer = await talk(port, head + b" " * (17 * MIB))

    assert statuses(answer) == [413]
    assert b"connection: close" in answer


async def test_the_rest_of_a_refused_body_is_not_received(served: Served) -> None:
    _, server, port = served
    sock = await deaf_client(port)

    await push(sock, HEAD + b"Content-Length: %d\r\n\r\n" % (1_024 * MIB))
    sent = await push(sock, b" " * (128 * MIB))

    assert sent < 64 * MIB
    await connected(server, 0)
    sock.close()


@pytest.mark.parametrize(
    "chunk", [b"1\r\n \r\n", b"1;" + b"e" * 1_000 + b"\r\n \r\n"], ids=["of one byte", "extended"]
)
async def test_a_body_in_nearly_empty_chunks_is_refused_soon(served: Served, chunk: bytes) -> None:
    _, server, port = served
    sock = await deaf_client(port)

    sent = await push(sock, POST + CHUNKED + chunk * (64 * MIB // len(chunk)))

    assert sent < 24 * MIB, "all else is in the buffers of two sockets"
    await connected(server, 0)
    sock.close()


async def test_a_client_that_stays_after_its_refusal_is_cut_off(served: Served) -> None:
    _, server, port = served
    reader, writer = await open_connection(port)
    writer.write(b"nonsense\r\n\r\n")
    assert statuses(await reader.read()) == [400]

    server.connections[0].check_deadline(asyncio.get_running_loop().time() + 6)

    await connected(server, 0)
    writer.close()
