"""The limits of a connection, on real sockets against a real server."""

from __future__ import annotations

import asyncio
import socket

import pytest
from starlette.types import Receive, Scope, Send

from schedo.web.server import HttpServer
from tests.web.connecting import HEAD, Served, connected, open_connection, talk, turn
from tests.web.placing import PlacingWorld
from tests.web.world import World


async def test_a_connection_is_kept_open_after_an_ordinary_request(served: Served) -> None:
    _, _, port = served

    answer = await talk(port, HEAD + b"\r\n" + HEAD + b"Connection: close\r\n\r\n")

    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.count(b'{"status":"ok"}') == 2
    assert b"date: " in answer
    assert b"server:" not in answer


@pytest.mark.parametrize("length", [b"", b"Content-Length: 0\r\n"], ids=["none", "of 0 bytes"])
async def test_an_operation_with_an_optional_body_works_without_one(
    served: Served, length: bytes
) -> None:
    _, _, port = served
    head = b"POST /v1/queues/q:pause HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"

    assert (await talk(port, head + length + b"\r\n")).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("status", [200, 204])
async def test_a_stream_that_ends_before_its_first_piece_ends_for_the_client(
    served: Served, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    async def respond(app: object, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    monkeypatch.setattr(type(served[0].app), "__call__", respond)
    reader, writer = await open_connection(served[2])
    async with asyncio.timeout(5):
        for _ in range(2):  # the client knows where the first response ends
            writer.write(HEAD + b"\r\n")
            head = (await reader.readuntil(b"\r\n\r\n")).lower()

            assert head.startswith(b"http/1.1 %d " % status)
            assert (b"content-length: 0\r\n" in head) == (status == 200)
    writer.close()


@pytest.mark.parametrize("wish", [b"", b"Connection: Keep-Alive\r\n"])
async def test_the_connection_of_an_http_1_0_client_is_closed_after_the_response(
    served: Served, wish: bytes
) -> None:
    _, _, port = served

    answer = await talk(port, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n" + wish + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([HEAD + b"X-A: " + b"a" * 40_000 + b"\r\n\r\n"], 431),
        ([HEAD + b"X-A: "] + [b"a" * 8_000] * 6, 431),
        ([HEAD] + [b"X-%d: %s\r\n" % (n, b"a" * 1_000) for n in range(60)], 431),
        ([HEAD + b"".join(b"X-%d: a\r\n" % n for n in range(101)) + b"\r\n"], 431),
        ([HEAD + b"a" * 50_000, b"a" * 50_000], 431),
        ([b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n"], 414),
        ([b"GET /"] + [b"a" * 3_000] * 4, 414),
        ([b"GET /?q=" + b"a" * 9_000], 414),
        ([b"\x16\x03\x01\x02\x00\x01\x00"], 400),
        ([b"HELLO\r\n\r\n"], 400),
        ([b"GET /healthz HTTP/9.9\r\n\r\n"], 400),
        ([b"GET /healthz HTTP/1.1\r\nHost localhost\r\n\r\n"], 400),
        ([b"GET /healthz HTTP/1.1\r\n folded: x\r\n\r\n"], 400),
        ([b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n"], 400),
        (
            [
                b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            ],
            400,
        ),
        ([b"GET http://[ HTTP/1.1\r\n\r\n"], 400),
        ([b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\n\r\n"], 400),
    ],
    ids=lambda value: repr(value)[:50],
)
async def test_a_request_head_that_is_too_large_or_broken_gets_an_error_and_a_close(
    served: Served, pieces: list[bytes], status: int
) -> None:
    _, _, port = served

    answer = await talk(port, *pieces)

    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:80]
    assert b"content-type: application/problem+json" in answer
    assert b"connection: close" in answer


async def test_endless_headers_use_no_memory(served: Served) -> None:
    _, server, port = served
    _, writer = await open_connection(port)
    sent = 0
    try:
        for _ in range(3_200):  # 200 MiB, had it been allowed
            writer.write(b"X-A: " + b"a" * 65_529 + b"\r\n")
            await writer.drain()
            sent += 65_536
    except (ConnectionResetError, BrokenPipeError):
        pass
    finally:
        writer.close()

    assert sent < 20_000_000  # what fits into the buffers of two sockets
    await connected(server, 0)


async def test_a_request_head_within_the_limits_may_arrive_byte_by_byte(served: Served) -> None:
    _, _, port = served
    head = HEAD + b"X-A: " + b"a" * 300 + b"\r\nConnection: close\r\n\r\n"

    answer = await talk(port, *(head[n : n + 1] for n in range(len(head))))

    assert answer.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    "start",
    [
        (b"", b""),
        (b"", b"GET /heal"),
        (b"", HEAD),
        (b"", HEAD + b"X-A: b"),
        (b"", b"\r\n"),
        (HEAD + b"\r\n", b"\r\n"),
        (HEAD + b"\r\n", b"GET /"),
    ],
    ids=repr,
)
async def test_a_silent_connection_is_closed_at_its_deadline(
    served: Served, start: tuple[bytes, bytes]
) -> None:
    _, server, port = served
    reader, writer = await open_connection(port)
    await connected(server)
    if start[0]:
        writer.write(start[0])
        await reader.readuntil(b'{"status":"ok"}')
    writer.write(start[1])
    await turn()
    await turn()
    protocol = server.connections[0]
    now = asyncio.get_running_loop().time()

    protocol.check_deadline(now + 9)
    assert not protocol.transport.is_closing()
    protocol.check_deadline(now + 11)

    assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_a_long_response_is_not_cut_by_a_deadline(served: Served) -> None:
    world, server, port = served
    job = await world.submit(delay=60)
    reader, writer = await open_connection(port)
    writer.write(
        f"GET /v1/jobs/{job['id']}/wait?timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\nGET".encode()
    )
    await connected(server)
    await turn()
    await turn()
    server.connections[0].check_deadline(asyncio.get_running_loop().time() + 1_000)
    world.app.drain()

    assert (await reader.readline()) == b"HTTP/1.1 202 Accepted\r\n"
    writer.close()


async def test_a_worker_that_disconnects_ends_its_poll() -> None:
    placing = PlacingWorld()
    server = HttpServer()
    port = await server.start(placing.app, "127.0.0.1", 0)
    _, writer = await open_connection(port)
    body = b'{"worker":"w1","wait":"60s"}'
    writer.write(
        b"POST /v1/work HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    async with placing, asyncio.timeout(5):
        await placing.sessions.waiting.wait()

        writer.close()

        while not placing.sessions.ended:
            await turn()
        await server.stop()
    assert placing.sessions.ended == ["w1"]
    assert placing.app.context.polls == set()


async def test_a_connection_above_the_cap_is_served_unless_it_would_wait(served: Served) -> None:
    _, server, port = served
    held = [await open_connection(port) for _ in range(3)]
    await connected(server, 3)

    short = await talk(port, HEAD + b"\r\n")
    wait = b"GET /v1/jobs/0000000000001/wait HTTP/1.1\r\nHost: localhost\r\n\r\n"
    waiting = await talk(port, wait)

    assert short.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in short
    assert waiting.startswith(b"HTTP/1.1 429 ")
    assert b"retry-after: 1" in waiting
    assert b"connection: close" in waiting
    for _, writer in held:
        writer.close()
    await connected(server, 0)
    assert (await talk(port, HEAD + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_connection_accepted_just_before_a_stop_gets_its_response(world: World) -> None:
    server = HttpServer()
    port = await server.start(world.app, "127.0.0.1", 0)
    streams = [await open_connection(port) for _ in range(10)]
    await connected(server, 10)

    stopping = asyncio.create_task(server.stop())
    await turn()
    for _, writer in streams:
        writer.write(HEAD + b"\r\n")
    responses = [await reader.read() for reader, _ in streams]
    await stopping

    assert [answer[:15] for answer in responses] == [b"HTTP/1.1 200 OK"] * 10
    for _, writer in streams:
        writer.close()


async def test_a_request_sent_during_a_stop_gets_a_response(world: World) -> None:
    server = HttpServer()
    port = await server.start(world.app, "127.0.0.1", 0)
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
    for each in sockets:
        each.sendall(HEAD + b"\r\n")

    await server.stop()

    for each in sockets:
        assert each.recv(100).startswith(b"HTTP/1.1 200 OK")
        each.close()


async def test_idle_connections_do_not_delay_a_stop(world: World) -> None:
    server = HttpServer()
    port = await server.start(world.app, "127.0.0.1", 0)
    reader, writer = await open_connection(port)
    writer.write(HEAD + b"\r\n")
    await reader.readuntil(b'{"status":"ok"}')

    async with asyncio.timeout(1):
        await server.stop()

    assert await reader.read() == b""
    writer.close()


async def test_a_stopped_server_does_not_listen_and_may_be_stopped_again(world: World) -> None:
    server = HttpServer()
    port = await server.start(world.app, "127.0.0.1", 0)
    await server.stop()
    await server.stop()

    with pytest.raises(ConnectionRefusedError):
        await open_connection(port)


async def test_a_port_in_use_raises_an_error(served: Served) -> None:
    world, _, port = served

    with pytest.raises(OSError, match="in use"):
        await HttpServer().start(world.app, "127.0.0.1", port)


async def test_an_upgrade_to_a_web_socket_is_ignored(served: Served) -> None:
    _, _, port = served

    answer = await talk(
        port,
        HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n",
        read_to_end=False,
    )

    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"101" not in answer.split(b"\r\n")[0]


async def test_line_breaks_in_a_path_or_header_make_no_new_line_in_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    _, _, port = served

    await talk(port, b"GET /a%0d%0aforged HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

    assert all("\n" not in record.getMessage() for record in caplog.records)
