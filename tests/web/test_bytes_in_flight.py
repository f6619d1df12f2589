"""All bytes in flight have one bound; claims share it by size, and a slow client loses its own."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from schedo.core.leases import AttemptResult, Completed
from schedo.core.limits import BYTES_IN_FLIGHT_MAX, CLAIMED_BYTES
from schedo.errors import Overloaded
from schedo.web.bytes_in_flight import RECEIVING, SENDING, BytesInFlight, Claim, Pace, TooSlow
from schedo.web.server import HttpServer
from tests.web.connecting import Served, connected, open_connection, turn
from tests.web.world import World

LARGE, _ = CLAIMED_BYTES[-1]
POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def claim(account: BytesInFlight, size: int) -> Claim:
    made = Claim(account)
    await made.take(size)
    return made


async def move(account: BytesInFlight, size: int, pace: Pace, leave: asyncio.Event) -> None:
    made = await claim(account, size)
    try:
        async with made.moving(pace):
            await leave.wait()
    finally:
        made.release()


async def started(*tasks: asyncio.Task[None]) -> None:
    await asyncio.wait(tasks, timeout=0)


def test_the_claims_cannot_take_the_whole_limit_of_bytes_in_flight() -> None:
    account = BytesInFlight()

    assert 0 < account.connections_max < BYTES_IN_FLIGHT_MAX
    assert all(size <= share for size, share in CLAIMED_BYTES)


async def test_bytes_in_flight_are_those_claimed_and_those_that_connections_hold() -> None:
    account = BytesInFlight()
    first, second = await claim(account, 100_000), await claim(account, 5_000)
    account.by_connections += 7

    assert account.total == 105_007
    first.release()
    first.release()
    assert account.total == 5_007
    await second.take(2_000_000)
    assert account.total == 2_000_007


async def test_a_small_body_does_not_wait_for_large_ones() -> None:
    account = BytesInFlight()
    await claim(account, LARGE)

    async with asyncio.timeout(1):
        await claim(account, 10_000)
        await claim(account, 1_000_000)


async def test_a_claim_that_grows_does_not_wait_for_itself() -> None:
    account = BytesInFlight()
    made = await claim(account, 1_048_577)

    async with asyncio.timeout(1):
        await made.take(LARGE)

    assert account.total == LARGE


@pytest.mark.parametrize("pace", [RECEIVING, SENDING])
async def test_a_stalled_client_loses_its_claim_when_another_client_waits(pace: Pace) -> None:
    account, never = BytesInFlight(), asyncio.Event()
    stalled = asyncio.create_task(move(account, LARGE, pace, never))
    await started(stalled)

    async with asyncio.timeout(5):
        await claim(account, LARGE)
        with pytest.raises(TooSlow):
            await stalled


async def test_a_stalled_client_keeps_its_bytes_while_no_other_client_waits() -> None:
    account, leave = BytesInFlight(), asyncio.Event()
    stalled = asyncio.create_task(move(account, LARGE, RECEIVING, leave))
    await asyncio.wait([stalled], timeout=4 * RECEIVING.pause_s_max)
    assert not stalled.done()

    leave.set()
    await stalled


async def test_a_claim_that_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    account = BytesInFlight()
    held = await claim(account, LARGE)

    with pytest.raises(Overloaded) as caught:
        await Claim(account).take(LARGE, 0.01)

    assert caught.value.retry_after_s == 1
    held.release()
    await claim(account, LARGE)


async def test_a_claim_without_a_limit_waits_until_the_bytes_are_free() -> None:
    account = BytesInFlight()
    held = await claim(account, LARGE)
    waiting = asyncio.ensure_future(Claim(account).take(LARGE, None))
    await started(waiting)
    held.release()

    async with asyncio.timeout(1):
        await waiting


@pytest.mark.parametrize(
    "request_line",
    [
        *("POST /s:trigger", "POST /s:pause", "POST /s:resume", "DELETE /s", "GET /s/decisions"),
        "PUT /s",
    ],
)
async def test_a_request_that_loads_a_schedule_claims_the_bytes_of_its_payload(
    world: World, request_line: str
) -> None:
    schedule = {"task": "shell", "payload": {"command": "x"}, "every": "1h"}
    await world.put("/v1/schedules/s", schedule)
    method, path = request_line.split(" /")
    body = orjson.dumps(schedule) if method == "PUT" else b""
    holders = [await claim(world.app.context.in_flight, 1_048_576) for _ in range(4)]
    waiting = asyncio.create_task(world.send(method, f"/v1/schedules/{path}", body))
    for _ in range(20):
        await turn()
    assert not waiting.done()

    for each in holders:
        each.release()

    assert (await waiting).status in (200, 201, 204)


async def test_a_large_body_is_not_received_before_it_is_claimed(served: Served) -> None:
    world, server, port = served
    held = await claim(world.app.context.in_flight, 4_194_304)
    other = await claim(world.app.context.in_flight, 1_048_576)
    for _ in range(3):
        await claim(world.app.context.in_flight, 1_048_576)
    reader, writer = await open_connection(port)
    job = b'{"task":"a","delay":60,"payload":"' + b"x" * 1_000_000 + b'"}'
    writer.write(POST % b"/v1/jobs" + b"Content-Length: %d\r\n\r\n" % len(job) + job)
    await connected(server, 1)
    for _ in range(20):
        await turn()

    (connection,) = server.connections
    assert 0 < connection.held <= 20_000
    other.release()
    held.release()
    assert await reader.readline() == b"HTTP/1.1 201 Created\r\n"
    writer.close()


async def test_bodies_that_wait_are_refused_when_connections_hold_too_much(world: World) -> None:
    server = HttpServer()
    port = await server.start(world.app, "127.0.0.1", 0)
    account = world.app.context.in_flight
    account.connections_max = 100_000
    for _ in range(4):
        await claim(account, 1_048_576)
    streams = [await open_connection(port) for _ in range(20)]
    for _, writer in streams:
        writer.write(POST % b"/v1/jobs" + b"Content-Length: 100000\r\n\r\n" + b" " * 60_000)
    async with asyncio.timeout(5):
        first = [await reader.readline() for reader, _ in streams[:5]]

    assert first == [b"HTTP/1.1 429 Too Many Requests\r\n"] * 5
    assert account.by_connections <= 100_000
    for _, writer in streams:
        writer.close()
    await server.stop(grace_s=0.2)


async def test_the_bytes_of_a_request_count_until_its_response_is_sent(served: Served) -> None:
    world, server, port = served
    account = world.app.context.in_flight
    reader, writer = await open_connection(port)
    job = await world.submit(delay=60)
    writer.write(b"GET /v1/jobs/%b/wait?timeout=60s HTTP/1.1\r\n" % job["id"].encode())
    writer.write(b"Host: localhost\r\nX-Long: %b\r\n\r\n" % (b"x" * 1_000))
    await connected(server, 1)
    while not account.by_connections:
        await turn()
    assert account.by_connections > 1_060

    world.app.drain()
    await reader.readuntil(b"}")
    while account.by_connections:
        await turn()
    writer.close()


async def test_incomplete_batches_do_not_block_other_clients(served: Served) -> None:
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


async def test_a_request_that_waits_for_a_job_claims_no_bytes(served: Served) -> None:
    world, _, port = served
    job = b'{"task":"a","delay":60,"payload":"' + b"x" * 1_000_000 + b'"}'
    streams = [await open_connection(port) for _ in range(3)]
    head = POST % b"/v1/jobs?wait=60s" + b"Content-Length: %d\r\n\r\n" % len(job)
    account = world.app.context.in_flight
    async with asyncio.timeout(10):
        for _, writer in streams:
            writer.write(head + job)
            await writer.drain()
        while len((await world.get("/v1/jobs")).json()["items"]) < 3 or account.total > 3_000:
            await turn()
    world.app.drain()
    for reader, writer in streams:
        assert await reader.readline() == b"HTTP/1.1 202 Accepted\r\n"
        writer.close()


async def test_an_invocation_that_waits_claims_no_bytes(world: World) -> None:
    world.attach_worker()
    body = {"task": "demo", "wait": "60s", "payload": "x" * 1_000_000}
    invoking = asyncio.ensure_future(world.post("/v1/invoke", body))
    lease = await world.worker.first()
    while world.app.context.in_flight.total:
        await turn()
    assert not invoking.done()

    world.engine.report(AttemptResult(lease.key, Completed(b"1")))

    assert (await invoking).json()["result"] == 1


async def test_the_metrics_show_the_bytes_in_flight(world: World) -> None:
    made = await claim(world.app.context.in_flight, 12_345)

    text = (await world.get("/metrics")).body

    assert b"\nschedo_http_bytes_in_flight 12345\n" in text
    assert b"\nschedo_http_bytes_in_flight_max %d\n" % BYTES_IN_FLIGHT_MAX in text
    made.release()
