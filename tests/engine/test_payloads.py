"""Large payloads on their way to a remote worker: loaded for the response that carries them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from schedo.core.leases import Lease
from schedo.core.limits import PAYLOAD_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX, SECOND
from schedo.core.model import Job
from schedo.core.states import State
from schedo.core.worker_messages import PollResponse
from schedo.errors import Overloaded, StoreError
from tests.engine.virtual_server import disconnect, make_poll
from tests.engine.world import T0, World, running

STORED = b'"' + b"x" * PAYLOAD_INLINE_BYTES_MAX + b'"'  # memory does not keep it


async def poll_at_once(world: World, *, slots: int = 2, **fields: Any) -> PollResponse:
    """Poll without waiting."""
    return await world.engine.sessions.work(
        make_poll(tasks="resize", slots=slots, **{"max_leases": None} | fields)
    )


async def submit_stored(world: World, count: int) -> list[Job]:
    return [await world.submit(task="resize", payload=STORED) for _ in range(count)]


async def test_only_the_payloads_of_one_response_are_loaded(path: Path) -> None:
    async with running(path) as world:
        await poll_at_once(world, max_leases=0, slots=6)
        await submit_stored(world, 6)

        first, second = await poll_at_once(world, slots=6), await poll_at_once(world, slots=6)

        assert [len(first.leases), len(second.leases)] == [4, 2]
        assert {lease.payload for lease in (*first.leases, *second.leases)} == {STORED}
        held = world.engine.sessions.held_by("a")
        assert [lease.payload for lease in held] == [None] * 6


async def test_a_response_claims_the_bytes_of_its_payloads_before_they_are_loaded(
    path: Path,
) -> None:
    claims: list[int] = []

    async def claim(size: int) -> None:
        claims.append(size)

    async with running(path) as world:
        await poll_at_once(world, max_leases=0)
        await submit_stored(world, 2)
        await world.engine.sessions.work(make_poll(tasks="resize", max_leases=None, slots=2), claim)

    assert claims == [2 * PAYLOAD_BYTES_MAX]


async def test_leases_whose_bytes_cannot_be_claimed_are_requeued(path: Path) -> None:
    async def refuse(_: int) -> None:
        raise Overloaded("too many")

    async with running(path) as world:
        await poll_at_once(world, max_leases=0)
        [job] = await submit_stored(world, 1)

        assert (
            await world.engine.sessions.work(
                make_poll(tasks="resize", max_leases=None, slots=2), refuse
            )
        ).leases == []

        [lease] = (await poll_at_once(world)).leases
        assert (lease.key.job_id, lease.payload) == (job.id, STORED)


async def test_without_a_claim_a_response_carries_the_first_small_leases(path: Path) -> None:
    async def refuse(_: int) -> None:
        raise Overloaded("too many")

    async with running(path) as world:
        await poll_at_once(world, max_leases=0, slots=3)
        await world.submit(task="resize")
        await submit_stored(world, 2)

        poll = make_poll(tasks="resize", max_leases=None, slots=3)
        response = await world.engine.sessions.work(poll, refuse)

        assert [lease.payload for lease in response.leases] == [b"null"]


async def test_a_payload_that_cannot_be_read_drops_only_its_own_lease(path: Path) -> None:
    async with running(path) as world:
        await poll_at_once(world, max_leases=0)
        [stored] = await submit_stored(world, 1)
        small = await world.submit(task="resize")
        world.store.fail_loads(StoreError("flicker"))

        response = await poll_at_once(world)

        assert [lease.key.job_id for lease in response.leases] == [small.id]
        await world.run_until(T0 + SECOND)
        [lease] = (await poll_at_once(world)).leases
        assert (lease.key.job_id, lease.payload) == (stored.id, STORED)


async def test_a_worker_that_disconnects_before_its_bytes_are_free_gets_no_lease(
    path: Path,
) -> None:
    waits, forever = asyncio.Event(), asyncio.Event()

    async def claim(_: int) -> None:
        waits.set()
        await forever.wait()

    async with running(path) as world:
        await poll_at_once(world, max_leases=0)
        [job] = await submit_stored(world, 1)
        poll = make_poll(tasks="resize", max_leases=None, slots=2)
        request = asyncio.create_task(world.engine.sessions.work(poll, claim))
        await asyncio.wait_for(waits.wait(), 5)

        await disconnect(request)
        await world.engine.flush()

        assert (await world.engine.get(job.id)).state is State.QUEUED


# On the way to a worker of this server.


async def started(world: World, count: int) -> None:
    """Return when the worker has this number of leases."""
    async with asyncio.timeout(30):
        while len(world.worker.leases) < count:
            await world.engine.flush()


async def test_a_worker_gets_no_large_payload_while_its_connection_has_no_room(path: Path) -> None:
    async with running(path) as world:
        room = asyncio.Event()
        world.engine.attach(world.worker.spec, world.worker, room)
        jobs = [await world.submit(payload=STORED) for _ in range(3)]
        await world.submit()

        assert [lease.payload for lease in world.worker.leases] == [b"null"]
        dispatcher = world.engine._loop.dispatcher
        assert all(lease.payload != STORED for lease in dispatcher.latest().values())

        room.set()
        await started(world, 4)
        assert [lease.key.job_id for lease in world.worker.leases[1:]] == [job.id for job in jobs]
        assert {lease.payload for lease in world.worker.leases[1:]} == {STORED}


async def test_a_payload_that_fills_the_connection_lets_the_others_wait(path: Path) -> None:
    async with running(path) as world:
        room = asyncio.Event()
        start = world.worker.start

        def start_until_full(lease: Lease) -> None:
            room.clear()
            start(lease)

        world.worker.start = start_until_full  # type: ignore[method-assign]
        world.engine.attach(world.worker.spec, world.worker, room)
        for _ in range(10):
            await world.submit(payload=STORED)
        assert world.worker.leases == []

        for number in range(1, 11):
            room.set()
            await started(world, number)
            assert len(world.worker.leases) == number
