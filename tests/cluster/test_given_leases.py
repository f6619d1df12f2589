"""A gateway believes that a lease is of the server that has given it, and needs no read for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from schedo.cluster import owner_pace
from schedo.core.shards import SHARDS
from schedo.core.states import State
from schedo.errors import PeerUnreachable
from schedo.protocol.leases import parse_lease
from tests.cluster.conftest import Cluster
from tests.cluster.members import Map, MemberWorld
from tests.cluster.workers import HandWorker, result
from tests.passes import one_pass

KNOWN_WITHIN_S = 1.0
SOME_PASSES = 100  # in which a read that may end has an effect


class CountedReads:
    """The reads of shards by a server, which end when the test lets them."""

    def __init__(self, world: MemberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self._read = 0, world.cluster.shards_of_jobs
        self.may_end = asyncio.Event()
        self.may_end.set()
        monkeypatch.setattr(world.cluster, "shards_of_jobs", self._count)

    async def _count(self, job_ids: Sequence[int]) -> dict[int, int]:
        self.count += 1
        await self.may_end.wait()
        return await self._read(job_ids)


async def state_of(world: MemberWorld, lease: str) -> State:
    return (await world.engine.get(parse_lease(lease).job_id)).state


async def test_a_result_goes_to_the_server_that_has_given_the_lease_without_a_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    reads = CountedReads(second, monkeypatch)

    lease = await worker.take(first, at=second, task="demo")
    await worker.poll(second, results=[result(lease)])

    assert await state_of(first, lease) is State.COMPLETED
    assert reads.count == 0


async def test_the_shard_is_read_while_the_worker_waits_with_the_attempt(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    monkeypatch.setattr(owner_pace, "LOOK_S", 0.0)
    worker = HandWorker()
    lease = await worker.take(first, at=second, task="demo")
    reads = CountedReads(second, monkeypatch)

    polling = worker.begin_poll(second, lease)
    places = second.router._gateway._workers.note_request(worker.name).elsewhere
    async with asyncio.timeout(KNOWN_WITHIN_S):
        while places[lease].shard is None:
            await one_pass()

    assert places[lease].shard == first.number - 1
    assert reads.count == 1
    polling.cancel()


async def test_an_attempt_that_ends_while_its_shard_is_read_does_not_run_any_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    monkeypatch.setattr(owner_pace, "LOOK_S", 0.0)
    worker = HandWorker()
    lease = await worker.take(first, at=second, task="demo")
    reads = CountedReads(second, monkeypatch)
    reads.may_end.clear()
    polling = worker.begin_poll(second, lease)
    async with asyncio.timeout(KNOWN_WITHIN_S):
        while not reads.count:
            await one_pass()

    await worker.ask(second, max_leases=0, results=[result(lease)])
    reads.may_end.set()
    for _ in range(SOME_PASSES):
        await one_pass()

    assert lease not in second.router._gateway._workers.note_request(worker.name).elsewhere
    polling.cancel()


async def test_the_result_waits_for_the_next_owner_if_the_giver_denies_that_it_owns_the_job(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, at=second, task="demo")
    own = [shard for shard in range(SHARDS) if first.cluster.is_mine(shard)]
    everything.give(own, None)
    with monkeypatch.context() as without_leases:
        without_leases.setattr(first.engine.sessions, "held_by", lambda _: [])
        polling = asyncio.create_task(worker.poll(second, results=[result(lease)]))
        places = second.router._gateway._workers.note_request(worker.name).elsewhere
        async with asyncio.timeout(KNOWN_WITHIN_S):
            while places[lease].shard is None:
                await one_pass()
    assert not polling.done()

    everything.give(own, first.number)

    assert (await polling)["refused"] == []
    assert await state_of(first, lease) is State.COMPLETED


async def test_the_shard_is_read_once_the_giver_has_not_taken_the_result(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, at=second, task="demo")
    reads = CountedReads(second, monkeypatch)

    async def fail(*arguments: Any) -> None:
        raise PeerUnreachable("it hangs")

    with monkeypatch.context() as hanging:
        hanging.setattr(second.router.servers.peers, "send", fail)
        polling = asyncio.create_task(worker.poll(second, results=[result(lease)]))
        async with asyncio.timeout(KNOWN_WITHIN_S):
            while not reads.count:
                await one_pass()

    await polling
    assert await state_of(first, lease) is State.COMPLETED


GIVER = 1


def lose_shards(everything: Map, gateway: MemberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway.cluster, "has_lost", lambda member: member.no == GIVER)


def die(everything: Map, gateway: MemberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    everything.members[0] = everything.members[0]._replace(silent_us=None)


def recover(everything: Map, gateway: MemberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    everything.members[0] = everything.members[0]._replace(epoch=99)


@pytest.mark.parametrize("change", [lose_shards, die, recover])
async def test_the_shard_is_read_once_the_giver_has_lost_its_shards_or_died_or_recovered(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Map, MemberWorld, pytest.MonkeyPatch], None],
) -> None:
    everything, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, at=second, task="demo")
    reads = CountedReads(second, monkeypatch)

    change(everything, second, monkeypatch)
    await worker.poll(second, lease)

    assert reads.count >= 1
