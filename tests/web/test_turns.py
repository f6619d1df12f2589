"""No request, and no crowd of them, holds the event loop for long."""

from __future__ import annotations

import asyncio
import types
from collections import Counter
from collections.abc import Awaitable, Generator
from typing import Any

import orjson
import pytest

from schedo.core.worker_messages import PollRequest, PollResponse
from schedo.engine import sharing
from schedo.engine.sharing import BEGUN_MAX, LoopShare
from schedo.engine.worker_polls import Claim
from schedo.protocol import pieces
from schedo.web.app import WebApp
from schedo.web.server import HttpServer
from tests.web.connecting import open_connection
from tests.web.world import World

DENSE = b"[" + b",".join([b"[[]]"] * 150_000) + b"]"
ROUTES = [
    ("POST", "/v1/jobs", b'{"task":"a","payload":%b}'),
    ("POST", "/v1/jobs", b'{"task":"a","x":%b}'),
    ("POST", "/v1/jobs:batch", b'[{"task":"a","payload":%b}]'),
    ("POST", "/v1/jobs:batch", b"%b"),
    ("POST", "/schedule", b'{"command":%b}'),
    ("POST", "/v1/invoke", b'{"task":"a","wait":"0s","payload":%b}'),
    ("POST", "/v1/reservations", b'{"task":"a","requires":{"labels":%b}}'),
    ("POST", "/v1/reservations/x:commit", b'{"task":"a","payload":%b}'),
    ("PUT", "/v1/schedules/s", b'{"task":"a","every":"1h","payload":%b}'),
    ("POST", "/v1/schedules/s:pause", b'{"note":%b}'),
    ("POST", "/v1/schedules/s:trigger", b'{"overlap":%b}'),
    ("PATCH", "/v1/queues/q", b'{"concurrency":%b}'),
    ("POST", "/v1/cron:explain", b'{"cron":%b}'),
    ("PATCH", "/v1/jobs/0000000000001", b'{"delay":%b}'),
    ("POST", "/v1/jobs/0000000000001:cancel", b"%b"),
    ("POST", "/v1/work", b'{"worker":"w","results":%b}'),
    ("POST", "/v1/work", b'{"worker":"w","x":%b}'),
    (
        "POST",
        "/v1/work",
        b'{"worker":"w","results":[{"lease":"0000000000001.1.1","outcome":"completed","result":%b}]}',
    ),
]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES, ids=lambda part: str(part)[:60])
async def test_a_body_of_many_small_values_is_read_in_many_turns(
    world: World, method: str, path: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    loads = orjson.loads

    def watch(text: bytes) -> object:
        read.append(len(text))
        return loads(text)

    monkeypatch.setattr(orjson, "loads", watch)
    reply = await world.send(method, path, body % DENSE)

    assert reply.status != 500
    assert max(read, default=0) < pieces.PIECE_BYTES + 1_024


@types.coroutine
def next_turn() -> Generator[None, None, None]:
    """Run all callbacks that are ready now, but none that they make ready."""
    yield


async def test_requests_that_arrive_together_begin_in_several_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = HttpServer()
    port = await server.start(world.app, "127.0.0.1", 0)
    turn = 0
    begun: Counter[int] = Counter()
    call = WebApp.__call__

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await next_turn()

    def watch(app: WebApp, *asgi: Any) -> Awaitable[None]:
        begun[turn] += 1
        return call(app, *asgi)

    monkeypatch.setattr(WebApp, "__call__", watch)
    clients = [await open_connection(port) for _ in range(400)]
    counting = asyncio.ensure_future(count_turns())
    for _, writer in clients:
        writer.write(b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n")
    responses = [await reader.readuntil(b"\r\n") for reader, _ in clients]
    counting.cancel()
    for _, writer in clients:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in clients))
    await server.stop(grace_s=0.2)

    assert responses == [b"HTTP/1.1 200 OK\r\n"] * 400
    assert begun.total() == 400
    assert max(begun.values()) <= BEGUN_MAX


async def test_a_health_check_does_not_wait_for_many_other_requests(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = HttpServer()
    port = await server.start(world.app, "127.0.0.1", 0)
    monkeypatch.setattr(LoopShare, "admits", lambda share: False)  # all of them wait for a turn
    begun: list[str] = []
    call = WebApp.__call__

    def watch(app: WebApp, *asgi: Any) -> Awaitable[None]:
        begun.append(asgi[0]["path"])
        return call(app, *asgi)

    monkeypatch.setattr(WebApp, "__call__", watch)
    clients = [await open_connection(port) for _ in range(102)]
    paths = [b"/v1/info"] * 100 + [b"/healthz", b"/readyz"]
    waiting: list[asyncio.Handle] = []
    turn = LoopShare._turn

    def hold(share: LoopShare) -> None:
        if len(share._waiting) + len(share._urgent) < len(paths) and not begun:
            waiting.append(asyncio.get_running_loop().call_later(0.001, hold, share))
        else:
            turn(share)

    monkeypatch.setattr(LoopShare, "_turn", hold)
    for path, (_, writer) in zip(paths, clients, strict=True):
        writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
    for reader, writer in clients:
        await reader.readuntil(b"\r\n")
        writer.close()
    await server.stop(grace_s=0.2)

    assert set(begun[:2]) == {"/healthz", "/readyz"}


async def test_a_workers_results_are_converted_in_many_turns(world: World) -> None:
    results = [{"lease": f"{n:013}.1.1", "outcome": "stopped"} for n in range(1_000)]
    steps = 0
    run = LoopShare.run

    async def watch(share: LoopShare, work: Generator[None, None, Any], slice_s: float) -> Any:
        def count() -> Generator[None, None, Any]:
            nonlocal steps
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    return end.value
                steps += 1
                yield

        return await run(share, count(), slice_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopShare, "run", watch)
        reply = await world.post("/v1/work", {"worker": "w", "slots": 1, "results": results})

    assert len(reply.json()["refused"]) == 1_000
    assert steps >= 1_000


async def test_the_running_attempts_of_a_worker_are_read_in_many_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "JOBS_SLICE_S", 0.0)
    turns = 0
    turn = LoopShare._turn

    def count(share: LoopShare) -> None:
        nonlocal turns
        turns += 1
        turn(share)

    monkeypatch.setattr(LoopShare, "_turn", count)
    running = [f"{n:013}.1.1" for n in range(5_000)]

    reply = await world.post("/v1/work", {"worker": "w", "slots": 1, "running": running})

    assert reply.status == 200
    assert turns > 5_000


async def test_long_reports_of_workers_are_applied_one_after_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = most = 0
    sessions = world.engine.sessions
    apply = sessions.work

    async def watch(poll: PollRequest, claim: Claim) -> PollResponse:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        try:
            await next_turn()
            return await apply(poll, claim)
        finally:
            at_once -= 1

    monkeypatch.setattr(sessions, "work", watch)
    results = [{"lease": f"{n:013}.1.1", "outcome": "stopped"} for n in range(900)]
    requests = [{"worker": f"w{n}", "slots": 1, "results": results} for n in range(5)]

    replies = await asyncio.gather(*(world.post("/v1/work", each) for each in requests))

    assert [reply.status for reply in replies] == [200] * 5
    assert most == 1
