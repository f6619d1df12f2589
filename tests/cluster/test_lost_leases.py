"""A lease that is lost between its owner and the gateway of the worker."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from schedo.client.messages import HttpResponse
from schedo.cluster import worker_call
from schedo.cluster.peers import ReadLost
from schedo.core.limits import SECOND
from schedo.core.states import State
from schedo.protocol.leases import parse_lease
from schedo.testing.clock import VirtualClock
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.cluster.test_unreachable import standing_in, stay_silent
from tests.cluster.workers import HandWorker, holds, lease_of, result

IN_FLIGHT_S = 2  # for so long an owner believes that a lease may be on its way


class BrokenWay:
    """Takes the first response with a lease that a server gets of another one."""

    def __init__(self, world: MemberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self._send = world.router.servers.peers.send
        self.is_lost = asyncio.Event()
        self.lease = ""
        self.parts = 0  # that came after that
        self.hangs = False  # instead of an error
        monkeypatch.setattr(world.router.servers.peers, "send", self.send)

    async def send(self, member: Any, hop: Any, *arguments: Any, **fields: Any) -> HttpResponse:
        response = await self._send(member, hop, *arguments, **fields)
        if hop.purpose != "work":
            return response
        if self.is_lost.is_set():
            self.parts += 1
            return response
        leases = msgspec.json.decode(response.body)["leases"]
        if leases:
            self.lease = leases[0]["lease"]
            self.is_lost.set()
            if self.hangs:
                await asyncio.get_running_loop().create_future()
            raise ReadLost("the connection broke")
        return response


@pytest.fixture
def way(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> BrokenWay:
    """The way from the first server to the second one."""
    return BrokenWay(cluster[2], monkeypatch)


async def pass_time(cluster: Cluster, seconds: int) -> None:
    for world in cluster[1:]:
        clock = world.engine.clock
        assert isinstance(clock, VirtualClock)
        await clock.run_until(world.engine, clock.now() + seconds * SECOND)


async def lose_lease(cluster: Cluster, worker: HandWorker, way: BrokenWay) -> None:
    """Let a job of the first server start for the worker, and give the worker's poll up."""
    polling = worker.begin_poll(cluster[2])
    await cluster[1].submit(task="demo", delivery="at_most_once")
    await way.is_lost.wait()
    polling.cancel()
    await asyncio.wait([polling])


async def until_told(way: BrokenWay, world: MemberWorld, parts: int) -> None:
    """Wait until another server has got parts since the lease was lost."""
    while way.parts < parts:
        await world.engine.flush()


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_lease_that_its_gateway_has_not_got_starts_again_and_is_no_loss(
    cluster: Cluster, way: BrokenWay, hangs: bool
) -> None:
    _, first, second = cluster
    way.hangs = hangs  # until the worker gives its poll up
    worker = HandWorker(slots=1)
    await lose_lease(cluster, worker, way)
    await pass_time(cluster, IN_FLIGHT_S + 1)

    lease = lease_of(await worker.begin_poll(second))

    assert lease != way.lease
    job = await first.engine.get(parse_lease(lease).job_id)
    assert (job.id, job.state, job.losses) == (
        parse_lease(way.lease).job_id,
        State.RUNNING,
        0,
    )


async def test_a_lease_that_may_still_be_on_its_way_is_not_taken_back(
    cluster: Cluster, way: BrokenWay
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    await lose_lease(cluster, worker, way)
    await pass_time(cluster, IN_FLIGHT_S - 1)

    await worker.poll(second)
    await until_told(way, second, 1)

    assert holds(first, way.lease)


async def test_a_request_that_does_not_say_what_runs_takes_nothing_back(
    cluster: Cluster, way: BrokenWay
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    await lose_lease(cluster, worker, way)
    await pass_time(cluster, IN_FLIGHT_S + 1)

    await worker.ask(second, max_leases=0)
    await pass_time(cluster, 1)

    assert way.parts == 0
    assert holds(first, way.lease)


async def test_an_owner_that_has_had_a_later_list_is_not_told_again(
    cluster: Cluster, way: BrokenWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, second = cluster
    monkeypatch.setattr(worker_call, "DOUBTED_S", 0.0)
    worker = HandWorker(slots=1)
    await lose_lease(cluster, worker, way)
    await worker.ask(second, running=[], max_leases=0)
    await until_told(way, second, 1)

    await worker.ask(second, running=[], max_leases=0)
    await second.engine.flush()

    assert way.parts == 1
    assert "w" not in second.router._gateway._workers


async def test_an_owner_that_has_died_is_not_told_any_more(
    cluster: Cluster, way: BrokenWay
) -> None:
    everything, _, second = cluster
    worker = HandWorker(slots=1)
    await lose_lease(cluster, worker, way)
    everything.members[0] = everything.members[0]._replace(silent_us=None)

    await worker.ask(second, running=[], max_leases=0)

    assert way.parts == 0
    assert "w" not in second.router._gateway._workers


async def test_a_silent_owner_is_told_once_at_a_time(cluster: Cluster, way: BrokenWay) -> None:
    everything, _, second = cluster
    worker = HandWorker(slots=1)
    await lose_lease(cluster, worker, way)

    async with standing_in(everything, 1, stay_silent) as heads:
        for _ in range(3):
            await worker.ask(second, running=[], max_leases=0)
            while not heads:
                await second.engine.flush()

    assert len(heads) == 1


@pytest.mark.parametrize("early", [0, 1, 2])
async def test_a_lease_that_the_worker_has_not_got_starts_again_however_soon_it_polls(
    cluster: Cluster, early: int
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    polling = worker.begin_poll(second)
    await first.submit(task="demo")
    lost = lease_of(await polling)  # say the connection of the worker has broken
    for _ in range(early):
        await worker.poll(second)
    assert holds(first, lost)
    await pass_time(cluster, IN_FLIGHT_S + 1)

    lease = lease_of(await worker.begin_poll(second))

    job = await first.engine.get(parse_lease(lost).job_id)
    assert parse_lease(lease).job_id == job.id
    assert (lease != lost, job.state, job.losses) == (True, State.RUNNING, 0)


async def test_the_owner_of_a_job_that_has_ended_is_told_nothing_again(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    polling = worker.begin_poll(second)
    await first.submit(task="demo")
    lease = lease_of(await polling)

    await worker.poll(second, lease)
    await worker.poll(second, results=[result(lease)])

    assert worker.name not in second.router._gateway._workers


class SlowWay:
    """Keeps a list of what a worker runs on its way from a server to another one."""

    def __init__(self, world: MemberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self._send = world.router.servers.peers.send
        self.is_kept = asyncio.Event()
        self.is_open = asyncio.Event()
        self.has_arrived = asyncio.Event()
        monkeypatch.setattr(world.router.servers.peers, "send", self.send)

    async def send(self, member: Any, hop: Any, body: bytes, *arguments: Any) -> HttpResponse:
        is_list = hop.purpose == "work" and msgspec.json.decode(body).get("running")
        if not is_list or self.is_kept.is_set():
            return await self._send(member, hop, body, *arguments)
        self.is_kept.set()
        await self.is_open.wait()
        response = await self._send(member, hop, body, *arguments)
        self.has_arrived.set()
        return response


async def test_a_list_that_was_long_on_its_way_takes_no_lease_that_left_meanwhile(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=2)
    polling = worker.begin_poll(second)
    await first.submit(task="demo")
    lease = lease_of(await polling)
    way = SlowWay(second, monkeypatch)
    polling = worker.begin_poll(second, lease)
    await way.is_kept.wait()
    await first.submit(task="demo")
    later = lease_of(await polling)

    await pass_time(cluster, IN_FLIGHT_S + 1)
    way.is_open.set()
    await way.has_arrived.wait()

    assert holds(first, lease)
    assert holds(first, later)
