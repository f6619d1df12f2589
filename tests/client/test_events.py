"""Streams of events with both clients."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing, closing
from itertools import islice

import pytest

from schedo import AsyncClient, Client
from schedo.client.errors import NotSchedo, Unreachable
from schedo.client.events import Event, EventParser
from schedo.errors import BadRequest, SchedoError
from tests.client.server import FakeServer, Reply
from tests.passes import WITHIN_S

STREAM = {"Content-Type": "text/event-stream"}
FIRST = b'retry: 0\n\n:\n\nid: 1-1\nevent: tick\ndata: {"n": 1}\n\nid: 1-2\nevent: jo'
SECOND = b'id: 1-2\nevent: jobs\ndata: {"count": 0}\n\n'
EVENTS = [Event("tick", {"n": 1}, "1-1"), Event("jobs", {"count": 0}, "1-2")]


@pytest.fixture
def streaming(server: FakeServer) -> FakeServer:
    server.reply("GET", "/v1/events", Reply(200, FIRST, STREAM, closes=True))
    server.reply("GET", "/v1/events", Reply(200, SECOND, STREAM, closes=True))
    return server


def check(server: FakeServer) -> None:
    first, second = server.requests[:2]
    assert first.target == second.target == "/v1/events?topics=tick%2Cjobs"
    assert first.headers["accept"] == "text/event-stream"
    assert first.headers["last-event-id"] == "1-0"
    assert second.headers["last-event-id"] == "1-1"


def test_a_stream_goes_on_after_a_broken_connection(streaming: FakeServer) -> None:
    topics = ["tick", "jobs"]
    with (
        Client(streaming.url) as client,
        closing(client.events(topics=topics, last_id="1-0")) as events,
    ):
        assert [*islice(events, 2)] == EVENTS

    check(streaming)


async def test_a_stream_goes_on_with_asyncio(streaming: FakeServer) -> None:
    found = []
    async with AsyncClient(streaming.url) as client:
        topics = ["tick", "jobs"]
        async with aclosing(client.events(topics=topics, last_id="1-0")) as events:
            async for event in events:
                found.append(event)
                if len(found) == 2:
                    break

    assert found == EVENTS
    check(streaming)


def test_a_stream_that_broke_before_its_first_id_wants_a_reset(server: FakeServer) -> None:
    begin = Reply(200, b"retry: 0\n\n", STREAM, closes=True)
    server.reply("GET", "/v1/events", begin)
    server.reply("GET", "/v1/events", Reply(200, FIRST, STREAM, closes=True))

    with Client(server.url) as client, closing(client.events()) as events:
        assert next(events) == EVENTS[0]

    assert "last-event-id" not in server.requests[0].headers
    assert server.requests[1].headers["last-event-id"] == "0-0"


async def test_a_refusal_is_raised(server: FakeServer) -> None:
    problem = {"code": "bad-request", "status": 400, "detail": "no topic"}
    server.on("GET", "/v1/events", 400, problem)

    with Client(server.url) as client, pytest.raises(BadRequest):
        next(client.events(topics=["colours"]))
    async with AsyncClient(server.url) as client_2:
        with pytest.raises(BadRequest):
            await anext(client_2.events(topics=["colours"]))


async def test_a_server_that_was_never_reached_is_said(server: FakeServer) -> None:
    server.reply("GET", "/v1/events", Reply(0))

    with Client(server.url) as client, pytest.raises(Unreachable):
        next(client.events())
    async with AsyncClient(server.url) as client_2:
        with pytest.raises(Unreachable):
            await anext(client_2.events())


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"{}", {"Content-Type": "application/json"}),
        Reply(200, b"data: [1]\n\n", STREAM),
        Reply(200, b"data: \xff\n\n", STREAM),
        Reply(302, b"", {"Location": "/login"}),
    ],
    ids=["JSON", "other events", "no text", "a redirect"],
)
async def test_a_stream_of_another_program_is_not_asked_for_again(
    server: FakeServer, reply: Reply
) -> None:
    server.reply("GET", "/v1/events", reply)
    where = rf"not a schedo server: .* \(GET /v1/events at {server.url}\)"

    with Client(server.url) as client, pytest.raises(NotSchedo, match=where):
        next(client.events())
    async with AsyncClient(server.url) as other:
        with pytest.raises(NotSchedo, match=where):
            await anext(other.events())


def test_events_are_parsed_however_they_are_cut() -> None:
    whole = FIRST[:-9] + SECOND
    for size in range(1, 20):
        parser = EventParser()
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]

        assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS
        assert (parser.last_id, parser.retry_s) == ("1-2", 0)


@pytest.mark.parametrize("data", [b"data: [\n\n", b"x" * 5_000_000])
def test_what_is_no_stream_of_events_is_said(data: bytes) -> None:
    with pytest.raises(SchedoError):
        [*EventParser().feed(data)]


async def test_a_connection_for_a_stream_has_the_time_of_a_response() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and begins no TLS
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        async with AsyncClient(url, timeout=0.05) as client, asyncio.timeout(WITHIN_S):
            with pytest.raises(Unreachable, match=r"cannot reach schedo at .*: timed out"):
                await anext(client.events())
