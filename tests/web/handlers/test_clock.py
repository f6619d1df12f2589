"""The clock of a test server: its moves, and where it is shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.clock import SystemClock
from tests.web.world import World


async def test_what_becomes_due_has_happened_when_the_response_comes(world: World) -> None:
    world.attach_worker()
    await world.post("/v1/jobs", {"task": "echo", "payload": 1, "delay": "2h"})

    early = await world.post("/v1/clock:advance", {"by": "1h", "settle": "0s"})
    before = len(world.worker.leases)
    late = await world.post("/v1/clock:advance", {"by": "1h", "settle": "0s"})

    assert (early.json()["running"], before) == (0, 0)
    assert (late.json()["running"], len(world.worker.leases)) == (1, 1)
    assert (await world.get("/v1/info")).json()["test_clock"] == late.json()["now"]


async def test_the_clock_moves_to_an_instant(world: World) -> None:
    moved = await world.post("/v1/clock:advance", {"to": "2027-01-01T00:00:00Z"})

    assert moved.json() == {"now": "2027-01-01T00:00:00.000000Z", "running": 0}


async def test_moves_at_the_same_time_follow_each_other(world: World) -> None:
    moves = [world.post("/v1/clock:advance", {"to": f"2027-01-0{n}T00:00:00Z"}) for n in (1, 2)]

    assert [each.status for each in await asyncio.gather(*moves)] == [200, 200]


async def test_a_move_ends_with_its_client(world: World) -> None:
    world.attach_worker()
    await world.post("/v1/jobs", {"task": "echo", "payload": 1, "delay": "1h"})
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b'{"by": "2h", "settle": "60s"}', "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: Any) -> None:
        raise AssertionError(f"the client has gone: {message}")

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/clock:advance",
        "query_string": b"",
        "headers": [*headers, (b"content-length", b"29")],
        "root_path": "",
    }
    async with asyncio.timeout(30):  # of the 60 s that the move would wait for the job
        await world.app(scope, receive, send)
        after = await world.post("/v1/clock:advance", {"by": "1h", "settle": "0s"})

    assert after.status == 200


async def test_a_move_ends_when_the_server_stops(world: World) -> None:
    world.attach_worker()
    await world.post("/v1/jobs", {"task": "echo", "payload": 1, "delay": "1h"})
    move = {"by": "2h", "settle": "60s"}
    moving = asyncio.create_task(world.post("/v1/clock:advance", move))
    await world.worker.first()
    world.app.drain()
    async with asyncio.timeout(30):
        reply = await moving

    assert (reply.status, reply.code) == (503, "unavailable")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/by"),
        ({"by": "1h", "to": "2027-01-01T00:00:00Z"}, "/by"),
        ({"by": "soon"}, "/by"),
        ({"to": "2001-01-01T00:00:00Z"}, "/to"),
        ({"by": "1h", "settle": "61s"}, "/settle"),
    ],
)
async def test_a_bad_move_is_refused_and_moves_nothing(
    world: World, body: dict[str, Any], pointer: str
) -> None:
    before = world.engine.clock.now()

    refused = await world.post("/v1/clock:advance", body)

    assert (refused.status, refused.json()["errors"][0]["pointer"]) == (422, pointer)
    assert world.engine.clock.now() == before


async def test_the_clock_of_the_machine_is_not_moved() -> None:
    async with World(clock=SystemClock()) as world:
        refused = await world.post("/v1/clock:advance", {"by": "1h"})
        info = (await world.get("/v1/info")).json()

    assert (refused.status, refused.code) == (409, "conflict")
    assert "start it with --test-clock" in refused.json()["detail"]
    assert "test_clock" not in info
