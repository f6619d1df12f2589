"""Requests wait while the store passes to a new process; then one of the two answers each."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import orjson
import pytest

from schedo.errors import StoreError
from schedo.protocol.roles import Role
from schedo.web import holding, server
from schedo.web.forwarding import Forwarder
from schedo.web.permissions import TokenPermission
from schedo.web.server import HttpServer
from tests.web.connecting import Served, forwarder, open_connection, post, respond, turn

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
DRY_RUN = b'{"action":"cancel","where":{"tag":"red"},"dry_run":true}'
DECLARATION = b'{"owner":"file:git","schedules":[{"name":"tick","every":"1h","task":"demo"}]}'
SUBMIT = b'{"task":"demo","payload":"%b"}' % (b"x" * 2_000)


HeldServer = tuple[HttpServer, asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def held(served: Served) -> AsyncIterator[HeldServer]:
    """A server that holds requests, and an open connection that has had a response before."""
    _, http, port = served
    reader, writer = await open_connection(port)
    writer.write(GET)
    await respond(reader)
    await http.hold(lambda: None)
    yield http, reader, writer
    writer.close()


async def test_requests_wait_and_are_answered_when_the_server_goes_on(served: Served) -> None:
    _, http, port = served
    await http.hold(lambda: None)
    reader, writer = await open_connection(port)
    writer.write(GET)
    answering = asyncio.ensure_future(respond(reader))
    await turn()
    assert not answering.done()

    await http.resume()

    assert (await answering)[:2] == (200, False)
    writer.close()


async def test_a_request_that_waits_too_long_is_refused(
    held: HeldServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "HELD_S", 0.01)
    http, reader, writer = held
    writer.write(GET)

    status, _, body = await respond(reader)

    assert (status, orjson.loads(body)["code"]) == (503, "unavailable")
    await http.resume()


async def test_an_open_connection_gets_its_next_response_from_the_next_server(
    held: HeldServer, next_served: Served
) -> None:
    http, reader, writer = held
    writer.write(post(SUBMIT))

    http.pass_on(forwarder(next_served))
    status, closes, body = await respond(reader)

    assert (status, closes) == (201, True)
    assert (await next_served[0].get(f"/v1/jobs/{orjson.loads(body)['id']}")).status == 200


async def test_pipelined_requests_are_all_answered_and_the_last_response_closes(
    held: HeldServer, next_served: Served
) -> None:
    http, reader, writer = held
    http.pass_on(forwarder(next_served))
    writer.write(GET * 3)

    answers = [await respond(reader) for _ in range(3)]

    assert [closes for _, closes, _ in answers] == [False, False, True]
    assert await reader.read() == b""


async def test_a_request_whose_body_was_arriving_is_forwarded_whole(
    served: Served, next_served: Served
) -> None:
    _, http, port = served
    data = post(SUBMIT)
    reader, writer = await open_connection(port)
    writer.write(data[:500])
    while not http.connections:
        await turn()
    await turn()
    await http.hold(lambda: None)
    writer.write(data[500:])
    await turn()
    http.pass_on(forwarder(next_served))

    status, _, body = await respond(reader)

    job = orjson.loads(body)["id"]
    assert status == 201
    assert (await next_served[0].get(f"/v1/jobs/{job}")).status == 200
    writer.close()


async def test_chunked_bodies_and_responses_without_a_body_are_forwarded(
    served: Served, next_served: Served
) -> None:
    _, http, port = served
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    pairs = [await open_connection(port) for _ in range(2)]
    for reader, writer in pairs:
        writer.write(GET)
        await respond(reader)
    await http.hold(lambda: None)
    http.pass_on(forwarder(next_served))

    pairs[0][1].write(chunked % (len(SUBMIT), SUBMIT))
    pairs[1][1].write(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert (await respond(pairs[0][0]))[0] == 201
    assert (await pairs[1][0].read()).startswith(b"HTTP/1.1 200")
    for _, writer in pairs:
        writer.close()


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize(
    ("request_", "read"),
    [
        (b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n", "list_jobs"),
        (post(DRY_RUN, path=b"/v1/operations"), "find_job_ids"),
        (post(DECLARATION, path=b"/v1/declarations"), "get_schedule"),
    ],
    ids=["a list", "a dry run", "a declaration"],
)
async def test_a_request_that_finds_the_store_closed_is_answered_by_the_server_that_goes_on(
    served: Served,
    next_served: Served,
    monkeypatch: pytest.MonkeyPatch,
    request_: bytes,
    read: str,
    passes: bool,
) -> None:
    world, http, port = served
    monkeypatch.setattr(server, "PROGRESS_S", 0.0)
    is_reading, may_go_on = asyncio.Event(), asyncio.Event()
    read_open = getattr(world.engine.store, read)

    async def find_it_closed(*args: Any, **options: Any) -> Any:
        if is_reading.is_set():
            return await read_open(*args, **options)
        is_reading.set()
        await may_go_on.wait()
        raise StoreError("the store is not open")

    monkeypatch.setattr(world.engine.store, read, find_it_closed)
    reader, writer = await open_connection(port)
    writer.write(request_)
    await is_reading.wait()
    await http.hold(lambda: None)
    may_go_on.set()
    await turn()

    if passes:
        http.pass_on(forwarder(next_served))
    else:
        await http.resume()

    assert (await respond(reader))[0] == 200
    writer.close()


async def test_a_poll_that_waits_is_ended_before_the_store_passes(served: Served) -> None:
    world, http, port = served
    reader, writer = await open_connection(port)
    poll = orjson.dumps(
        {"worker": "w", "session": "s", "tasks": ["x"], "slots": 1, "running": [], "wait": "30s"}
    )
    writer.write(post(poll, path=b"/v1/work"))
    while not world.engine.sessions.list():
        await turn()

    await http.hold(world.engine.freezing.end_waits)

    assert (await respond(reader))[0] == 200
    await http.resume()
    writer.close()


async def test_a_stream_of_events_ends_and_begins_anew_with_the_next_server(
    served: Served, next_served: Served
) -> None:
    world, http, port = served
    reader, writer = await open_connection(port)
    writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    begin = await reader.readuntil(b"\n\n")
    await http.hold(world.engine.freezing.end_waits)

    rest = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 10)
    http.pass_on(forwarder(next_served))
    writer.write(GET)

    assert b"retry:" in begin + rest
    assert (await respond(reader))[:2] == (200, True)
    writer.close()


async def test_the_store_passes_when_a_request_that_an_older_process_forwards_has_ended(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, http, _ = served
    submit, may_submit = world.engine.submit, asyncio.Event()

    async def submit_late(*args: Any, **options: Any) -> Any:
        await may_submit.wait()
        return await submit(*args, **options)

    monkeypatch.setattr(server, "PROGRESS_S", 60.0)
    monkeypatch.setattr(world.engine, "submit", submit_late)
    ours, theirs = socket.socketpair()
    await http.serve(theirs, world.app)
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    writer.write(post(SUBMIT))
    await turn()
    holding_on = asyncio.ensure_future(http.hold(lambda: None))
    for _ in range(20):
        await turn()
    assert not holding_on.done()

    may_submit.set()

    await holding_on
    assert (await respond(reader))[0] == 201
    await http.resume()
    writer.close()


async def test_connections_that_send_nothing_more_are_closed(
    held: HeldServer, next_served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_WATCH_S", 0.01)
    http, reader, _ = held
    http.pass_on(forwarder(next_served))

    await http.wait_closed(10.0, idle_s=-1.0)

    assert await reader.read() == b""


async def test_a_server_that_cannot_be_reached_is_an_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.web.forwarding.CONNECT_S", 0.0)
    _, http, port = served

    async def refuse() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise ConnectionRefusedError

    reader, writer = await open_connection(port)
    writer.write(GET)
    await respond(reader)
    await http.hold(lambda: None)
    http.pass_on(Forwarder(refuse))
    writer.write(GET)

    assert (await respond(reader))[0] == 503
    writer.close()


async def test_a_new_server_that_breaks_the_connection_breaks_that_of_the_client(
    served: Served,
) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    _, http, own = served
    reader, writer = await open_connection(own)
    writer.write(GET)
    await respond(reader)
    await http.hold(lambda: None)
    http.pass_on(Forwarder(partial(asyncio.open_connection, "127.0.0.1", port)))
    writer.write(GET)

    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await respond(reader)
    writer.close()
    listener.close()


async def test_a_client_that_leaves_ends_its_forwarded_request(
    served: Served, next_served: Served
) -> None:
    _, http, port = served
    made = await next_served[0].submit(delay="1h")
    reader, writer = await open_connection(port)
    writer.write(GET)
    await respond(reader)
    await http.hold(lambda: None)
    http.pass_on(forwarder(next_served))
    writer.write(b"GET /v1/jobs/%b/wait HTTP/1.1\r\nHost: localhost\r\n\r\n" % made["id"].encode())
    while not next_served[1].connections:
        await turn()

    writer.close()

    async with asyncio.timeout(10):
        while next_served[1].connections:
            await turn()


async def test_a_trusted_connection_needs_no_token(served: Served) -> None:
    world, http, _ = served
    ours, theirs = socket.socketpair()
    trusted = world.app.trusting(TokenPermission(Role.ADMIN, "old"), "old")
    await http.serve(theirs, trusted)
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    writer.write(post(SUBMIT))

    assert (await respond(reader))[0] == 201
    writer.close()
