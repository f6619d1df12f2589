"""Bodies share rooms by size, and a slow one leaves while others wait."""

from __future__ import annotations

import asyncio

import pytest

from schedo.core.limits import BODY_ROOMS
from schedo.errors import Overloaded
from schedo.web import body_limiter
from schedo.web.body_limiter import Intake
from tests.web.connecting import Served, connected, open_connection, turn

LARGE, LARGE_ROOM = BODY_ROOMS[-1]
POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def stay(rooms: Intake, size: int, leave: asyncio.Event) -> None:
    async with rooms.place(size) as place, place.receiving():
        await leave.wait()


async def started(*tasks: asyncio.Task[None]) -> None:
    await asyncio.wait(tasks, timeout=0)


async def test_a_small_body_waits_for_no_large_one() -> None:
    rooms, leave = Intake(), asyncio.Event()
    held = [asyncio.create_task(stay(rooms, LARGE, leave)) for _ in range(2)]
    await started(*held)

    async with asyncio.timeout(1), rooms.place(10_000), rooms.place(1_000_000):
        pass

    leave.set()
    await asyncio.wait(held)


async def test_a_body_that_does_not_go_on_leaves_when_another_waits() -> None:
    rooms, never = Intake(), asyncio.Event()
    stalled = asyncio.create_task(stay(rooms, LARGE, never))
    await started(stalled)

    async with asyncio.timeout(5), rooms.place(LARGE):
        with pytest.raises(Overloaded, match="slow"):
            await stalled


async def test_a_stalled_body_stays_while_no_other_waits() -> None:
    rooms, leave = Intake(), asyncio.Event()
    stalled = asyncio.create_task(stay(rooms, LARGE, leave))
    await asyncio.wait([stalled], timeout=4 * body_limiter.STALLED_S)
    assert not stalled.done()

    leave.set()
    await stalled


async def test_a_body_that_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limiter, "WAIT_S_MAX", 0.01)
    rooms = Intake()

    async with rooms.place(LARGE):  # is carried out, and takes its time
        with pytest.raises(Overloaded) as caught:
            async with rooms.place(LARGE):
                pass

    assert caught.value.retry_after_s == 1
    async with rooms.place(LARGE):
        pass


async def test_a_place_is_left_once() -> None:
    rooms = Intake()
    async with rooms.place(LARGE) as place:
        place.leave()
        async with asyncio.timeout(1), rooms.place(LARGE):
            place.leave()


async def test_batches_that_lack_their_last_byte_do_not_keep_others_out(served: Served) -> None:
    _, server, port = served
    lacking = []
    for _ in range(2):
        reader, writer = await open_connection(port)
        writer.write(POST % b"/v1/jobs:batch" + b"Content-Length: %d\r\n\r\n[" % LARGE)
        lacking.append((reader, writer))
        await connected(server, len(lacking))
        await turn()

    batch = b'[{"task":"a","payload":"' + b"x" * 1_000_000 + b'"},{"task":"a"}]' + b" " * 500_000
    reader, writer = await open_connection(port)
    writer.write(POST % b"/v1/jobs:batch" + b"Content-Length: %d\r\n\r\n" % len(batch) + batch)
    async with asyncio.timeout(8):
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        refused = await lacking[0][0].readline()

    assert refused == b"HTTP/1.1 429 Too Many Requests\r\n"
    for _, each in [*lacking, (reader, writer)]:
        each.close()


async def test_a_waiting_request_takes_no_room(served: Served) -> None:
    world, _, port = served
    job = b'{"task":"a","delay":60,"payload":"' + b"x" * 1_000_000 + b'"}'
    streams = [await open_connection(port) for _ in range(3)]
    head = POST % b"/v1/jobs?wait=60s" + b"Content-Length: %d\r\n\r\n" % len(job)
    async with asyncio.timeout(10):
        for _, writer in streams:
            writer.write(head + job)
            await writer.drain()
        while len((await world.get("/v1/jobs")).json()["items"]) < 3:
            await turn()
        async with world.app.context.intake.place(1_048_576) as first:
            first.leave()
            async with asyncio.timeout(1):
                async with world.app.context.intake.place(BODY_ROOMS[1][1]):
                    pass
    world.app.drain()
    for reader, writer in streams:
        assert await reader.readline() == b"HTTP/1.1 202 Accepted\r\n"
        writer.close()
