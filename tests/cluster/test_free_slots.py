"""What a server has promised takes a slot of a worker, also before the worker knows of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.cluster import gateway
from schedo.engine.workers import Workers
from schedo.errors import NotFound
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, delay_start
from tests.cluster.workers import HandWorker, lease_of, result
from tests.passes import one_pass

Message = dict[str, Any]
# So long nothing must come; what is wrong comes within some milliseconds.
WATCHED_S = 0.2
GIVEN_WITHIN_S = 5.0  # much less than the wait of the poll


async def begin_poll(worker: HandWorker, world: MemberWorld) -> asyncio.Task[Message]:
    """Begin a poll, and return when the server waits for jobs for it."""
    polling = worker.begin_poll(world)
    while True:
        try:
            world.engine.sessions.get(worker.description["worker"])
        except NotFound:
            await world.engine.flush()
        else:
            return polling


async def reserve(world: MemberWorld) -> Message:
    reply = await world.post("/v1/reservations", {"task": "demo", "ttl": "60s"})
    assert reply.status == 201
    made: Message = reply.json()
    return made


async def test_a_reserved_slot_gets_no_job_of_another_server(cluster: Cluster) -> None:
    _, first, second = cluster
    polling = await begin_poll(HandWorker(slots=1), second)
    await reserve(second)

    await first.submit(task="demo")
    await asyncio.wait([polling], timeout=WATCHED_S)

    assert not polling.done()
    polling.cancel()


async def test_a_slot_beside_a_reserved_one_gets_a_job_of_another_server(cluster: Cluster) -> None:
    _, first, second = cluster
    polling = await begin_poll(HandWorker(slots=2), second)
    await reserve(second)

    await first.post("/v1/jobs:batch", [{"task": "demo"}] * 2)

    assert lease_of(await polling)


async def test_a_slot_that_is_reserved_no_longer_gets_the_job_that_waits_at_another_server(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "PROMISED_S", 0.0)
    _, first, second = cluster
    worker = HandWorker(slots=1)
    await worker.poll(second)
    made = await reserve(second)
    await first.submit(task="demo")
    polling = worker.begin_poll(second)
    await asyncio.wait([polling], timeout=WATCHED_S)
    assert not polling.done()

    nonce = [("schedo-lease-nonce", made["nonce"])]
    released = await second.post(f"/v1/reservations/{made['id']}:release", {}, nonce)

    assert released.status < 300
    assert lease_of(await polling)


async def test_a_start_that_is_not_durable_yet_takes_a_slot(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    polling = await begin_poll(worker, second)

    async def offer_another() -> None:
        await first.submit(task="demo")
        await asyncio.wait([polling], timeout=WATCHED_S)

    delay_start(second, monkeypatch, offer_another)
    await second.submit(task="demo", delivery="at_most_once")
    running = lease_of(await polling)
    polling = worker.begin_poll(second, running)
    await asyncio.wait([polling], timeout=WATCHED_S)

    assert not polling.done()
    polling.cancel()


async def test_a_cordoned_worker_gets_no_job_of_another_server(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    polling = await begin_poll(worker, second)
    await second.engine.sessions.cordon("w", True)

    await first.submit(task="demo")
    await asyncio.wait([polling], timeout=WATCHED_S)

    assert not polling.done()
    polling.cancel()


async def test_a_worker_that_an_engine_does_not_know_has_all_its_slots(cluster: Cluster) -> None:
    sessions: Workers = cluster[1].engine.sessions

    assert sessions.count_taken("w") == 0


async def begin_poll_with_lease(
    worker: HandWorker, owner: MemberWorld, gateway: MemberWorld
) -> tuple[asyncio.Task[Message], str]:
    """Begin a poll of a worker that runs a job of the owner; return it with the lease."""
    polling = worker.begin_poll(gateway)
    await owner.submit(task="demo")
    lease = lease_of(await polling)
    polling = worker.begin_poll(gateway, lease)
    find = gateway.router._gateway._workers.note_request
    while (call := find(worker.name).poll) is None or not call.is_here:
        await one_pass()
    return polling, lease


@pytest.mark.parametrize("owner", [0, 1])
async def test_a_slot_that_a_result_beside_the_poll_frees_gets_a_later_job_of_another_server(
    cluster: Cluster, owner: int
) -> None:
    _, *worlds = cluster
    first, second = worlds
    worker = HandWorker(slots=1)
    polling, lease = await begin_poll_with_lease(worker, worlds[owner], second)

    await worker.ask(second, max_leases=0, results=[result(lease)])
    await first.post("/v1/jobs:batch", [{"task": "demo"}] * 2)

    async with asyncio.timeout(GIVEN_WITHIN_S):
        assert lease_of(await polling)


@pytest.mark.parametrize("owner", [0, 1])
async def test_a_slot_that_a_result_beside_the_poll_frees_gets_a_job_that_has_waited_for_it(
    cluster: Cluster, owner: int
) -> None:
    _, *worlds = cluster
    first, second = worlds
    worker = HandWorker(slots=1)
    polling, lease = await begin_poll_with_lease(worker, worlds[owner], second)
    await first.submit(task="demo")
    while not second.router._gateway._surplus_of_others.is_any:
        await one_pass()
    assert not polling.done()

    await worker.ask(second, max_leases=0, results=[result(lease)])

    async with asyncio.timeout(GIVEN_WITHIN_S):
        assert lease_of(await polling)
