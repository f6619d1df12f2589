"""Polls of workers that their gateway keeps open at the servers that have jobs for them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from schedo.client.messages import HttpResponse
from schedo.cluster import relayed_polls, surplus
from schedo.cluster.parts_of_gateways import Recall
from schedo.cluster.polling_worker import RelayedPoll
from schedo.cluster.worker_call import WorkerCall
from schedo.core.states import State
from schedo.protocol.leases import parse_lease
from schedo.store.cluster import Member
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, running_cluster
from tests.cluster.test_lost_leases import pass_time
from tests.cluster.workers import HandWorker, holds, lease_of, result
from tests.passes import one_pass, until

COMES_WITHIN_S = 5.0  # much less than the wait of a poll
WATCHED_S = 0.2  # so long nothing must come; what is wrong comes within some milliseconds


class Way:
    """The way from the gateway to the other servers."""

    def __init__(self, world: MemberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self._send = world.router.servers.peers.send
        self.sent: list[str] = []  # the purposes of the requests
        self.kept = asyncio.Event()  # a response with a lease has come that the gateway has not got
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.is_old = False  # the other servers are of the version before, and hold no poll
        monkeypatch.setattr(world.router.servers.peers, "send", self.send)

    async def send(self, member: Any, hop: Any, body: bytes, *arguments: Any) -> HttpResponse:
        self.sent.append(hop.purpose)
        if self.is_old:
            body = msgspec.json.encode(msgspec.json.decode(body) | {"hold": 0})
        response = await self._send(member, hop, body, *arguments)
        if hop.purpose == "work" and msgspec.json.decode(response.body)["leases"]:
            self.kept.set()
            await self.is_open.wait()
        return response


@pytest.fixture
def way(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Way:
    return Way(cluster[2], monkeypatch)


def is_polled(world: MemberWorld, name: str = "w") -> bool:
    """Whether the engine of the server waits with a poll of the worker."""
    return any(
        each.spec.id == name and each.is_polling for each in world.engine._loop.scheduler._workers
    )


async def poll_both(
    cluster: Cluster, worker: HandWorker, **job: Any
) -> asyncio.Task[dict[str, Any]]:
    """Return a poll of a worker that waits at the second server and at the first one."""
    _, first, second = cluster
    polling = worker.begin_poll(second)
    await first.submit(task="demo", **job)
    lease = lease_of(await polling)
    polling = asyncio.create_task(worker.poll(second, results=[result(lease)], wait=20))
    await until(lambda: is_polled(first, worker.name) and is_polled(second, worker.name))
    return polling


async def test_the_next_job_of_another_server_comes_without_a_question(
    cluster: Cluster, way: Way
) -> None:
    _, first, _ = cluster
    polling = await poll_both(cluster, HandWorker())
    way.sent.clear()

    await first.submit(task="demo")

    assert lease_of(await polling)
    assert way.sent == []


async def test_a_job_of_the_gateway_comes_while_another_server_is_polled(
    cluster: Cluster,
) -> None:
    _, _, second = cluster
    polling = await poll_both(cluster, HandWorker(slots=1))

    await second.submit(task="own")

    (lease,) = (await polling)["leases"]
    assert lease["task"] == "own"


async def test_workers_that_poll_the_owner_come_first(cluster: Cluster) -> None:
    _, first, _ = cluster
    polling = await poll_both(cluster, HandWorker(slots=8))
    near = HandWorker("near", slots=1)
    waiting = near.begin_poll(first)
    await until(lambda: is_polled(first, "near"))

    await first.submit(task="demo")

    assert lease_of(await waiting)
    assert not polling.done()
    polling.cancel()


async def test_of_two_jobs_for_one_slot_that_of_another_server_goes_back_and_starts_again(
    cluster: Cluster, way: Way
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    polling = await poll_both(cluster, worker)
    way.is_open.clear()
    way.kept.clear()
    made = await first.submit(task="demo", delivery="at_most_once")
    await way.kept.wait()
    await second.submit(task="own")
    own = lease_of(await polling)

    way.is_open.set()
    await until(lambda: not first.engine.sessions.held_by("w"))

    after = worker.poll(second, results=[result(own)], wait=20)
    async with asyncio.timeout(COMES_WITHIN_S):
        lease = lease_of(await after)
    job = await first.engine.get(parse_lease(lease).job_id)
    assert lease.startswith(made["id"])
    assert (job.state, job.losses, job.failures) == (State.RUNNING, 0, 0)


async def test_a_lease_that_comes_between_two_polls_is_in_the_response_to_the_next_one(
    cluster: Cluster, way: Way
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=2)
    polling = await poll_both(cluster, worker)
    way.is_open.clear()
    way.kept.clear()
    await first.submit(task="demo")
    await way.kept.wait()
    await second.submit(task="own")
    own = lease_of(await polling)
    way.is_open.set()
    await until(lambda: second.router._gateway._workers.note_request("w").given)

    lease = lease_of(await worker.poll(second, own))

    assert holds(first, lease)


async def test_a_lease_that_no_poll_comes_for_goes_back(
    cluster: Cluster, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed_polls, "UNCLAIMED_S", 0.0)
    _, first, second = cluster
    polling = await poll_both(cluster, HandWorker(slots=2))
    way.is_open.clear()
    way.kept.clear()
    await first.submit(task="demo")
    await way.kept.wait()
    await second.submit(task="own")
    await polling

    way.is_open.set()

    await until(lambda: not first.engine.sessions.held_by("w"))


async def test_the_polls_of_a_worker_that_gives_its_own_up_end(cluster: Cluster) -> None:
    _, first, second = cluster
    polling = await poll_both(cluster, HandWorker())

    polling.cancel()

    await until(lambda: not is_polled(first))
    await until(lambda: not second.router._gateway._relayed_polls._counts[1])


async def test_the_poll_of_a_worker_that_gets_a_job_for_its_last_slot_ends(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    polling = await poll_both(cluster, HandWorker(slots=1))

    await second.submit(task="own")
    await polling

    await until(lambda: not is_polled(first))


async def test_a_server_that_has_had_jobs_lately_is_polled_again(
    cluster: Cluster, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed_polls, "HELD_S", 0.05)
    _, first, _ = cluster
    polling = await poll_both(cluster, HandWorker())
    way.sent.clear()

    await until(lambda: way.sent.count("work") > 1)
    await first.submit(task="demo")

    assert lease_of(await polling)


async def test_a_server_that_has_had_no_job_for_long_is_polled_when_it_tells_of_one(
    cluster: Cluster, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed_polls, "HELD_S", 0.05)
    monkeypatch.setattr(surplus, "GIVES_S", 0.0)
    _, first, _ = cluster
    polling = await poll_both(cluster, HandWorker())
    await until(lambda: not is_polled(first))
    way.sent.clear()
    await asyncio.wait([polling], timeout=WATCHED_S)
    assert "work" not in way.sent

    await first.submit(task="demo")

    assert lease_of(await polling)


async def test_a_server_that_holds_no_poll_is_not_polled_again_and_again(
    cluster: Cluster, way: Way
) -> None:
    way.is_old = True
    _, first, second = cluster
    polling = HandWorker().begin_poll(second)
    await first.submit(task="demo")
    lease = lease_of(await polling)
    polling = asyncio.create_task(HandWorker().poll(second, results=[result(lease)], wait=20))
    way.sent.clear()

    await asyncio.wait([polling], timeout=WATCHED_S)

    assert way.sent.count("work") <= 2  # that with the result, and one poll
    await first.submit(task="demo")
    assert lease_of(await polling)


async def test_a_worker_that_does_not_wait_gets_what_there_is(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    await worker.poll(second)
    await first.submit(task="demo")
    await until(lambda: second.router._gateway._surplus_of_others.is_any or is_asked(second))

    async with asyncio.timeout(COMES_WITHIN_S):
        while not (answer := await worker.poll(second))["leases"]:
            await one_pass()

    assert lease_of(answer)


def is_asked(world: MemberWorld) -> bool:
    return bool(world.router._gateway._surplus_of_others._known)


async def test_one_slot_is_offered_to_one_of_two_servers_with_many_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relayed_polls, "SETTLED_S", 60.0)
    async with running_cluster(3) as (_, (first, second, third)):
        way = Way(third, monkeypatch)
        worker = HandWorker(slots=1)
        for owner in (first, second):
            await owner.post("/v1/jobs:batch", [{"task": "demo"}] * 5)
        done: list[dict[str, Any]] = []
        async with asyncio.timeout(COMES_WITHIN_S):
            for _ in range(5):
                lease = lease_of(await worker.poll(third, results=done, wait=20))
                done = [result(lease)]

        assert way.sent.count("recall") == 0


async def test_one_slot_is_offered_first_to_the_server_that_gave_the_last_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_cluster(3) as (_, (first, second, third)):
        worker = HandWorker(slots=1)
        done: list[dict[str, Any]] = []
        for owner in (first, second):
            await owner.submit(task="demo")
            done = [result(lease_of(await worker.poll(third, results=done, wait=20)))]
        polls = third.router._gateway._relayed_polls
        start, polled = polls._start, []

        def note_start(call: WorkerCall, member: Member, poll: RelayedPoll) -> None:
            polled.append(member.no)
            start(call, member, poll)

        monkeypatch.setattr(polls, "_start", note_start)
        await second.submit(task="demo")
        assert lease_of(await worker.poll(third, results=done, wait=20))

        assert polled[0] == second.number


async def test_a_late_request_to_end_a_poll_leaves_the_next_one_open(cluster: Cluster) -> None:
    _, first, second = cluster
    polling = await poll_both(cluster, HandWorker())
    gateway = second.router._gateway
    (poll,) = gateway._workers.note_request("w").relayed.values()
    recall = Recall("w", number=poll.number - 1)
    (member,) = second.router.servers.others()

    found = await second.router.servers.ask(
        member, "recall", msgspec.json.encode(recall), dict, COMES_WITHIN_S
    )
    await first.engine.flush()

    assert found == {}
    assert is_polled(first)
    polling.cancel()


async def test_a_request_beside_the_poll_ends_no_poll_at_another_server(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=2)
    polling = await poll_both(cluster, worker)
    await second.submit(task="own")
    own = lease_of(await polling)

    await worker.ask(second, running=[own], max_leases=0)

    assert second.router._gateway._workers.note_request("w").relayed
    assert is_polled(first)


async def test_a_server_with_many_jobs_takes_no_job_of_another_one_that_has_to_go_back(
    cluster: Cluster, way: Way
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    polling = await poll_both(cluster, worker)
    for owner in (second, first):
        await owner.post("/v1/jobs:batch", [{"task": "demo"}] * 5)
    way.sent.clear()
    done = [result(lease_of(await polling))]
    async with asyncio.timeout(COMES_WITHIN_S):
        for _ in range(8):
            lease = lease_of(await worker.poll(second, results=done, wait=20))
            done = [result(lease)]

    assert way.sent.count("recall") <= 1  # the poll that was open before


async def test_a_lease_that_was_long_on_its_way_to_the_gateway_is_not_given_to_the_worker(
    cluster: Cluster, way: Way
) -> None:
    _, first, _ = cluster
    polling = await poll_both(cluster, HandWorker())
    way.is_open.clear()
    way.kept.clear()
    await first.submit(task="demo", delivery="at_most_once")
    await way.kept.wait()
    await pass_time(cluster, 3)
    way.is_open.set()

    lease = lease_of(await polling)

    assert holds(first, lease)
    assert parse_lease(lease).attempt == 2


async def test_a_server_that_begins_to_give_jobs_is_polled_for_all_workers_that_wait(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    waiting = [HandWorker(name).begin_poll(second) for name in ("u", "v", "w")]
    await until(lambda: all(is_polled(second, name) for name in ("u", "v", "w")))

    await first.submit(task="demo")
    done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    assert len(done) == 1
    await until(lambda: sum(is_polled(first, name) for name in ("u", "v", "w")) == len(left))
    await asyncio.wait(left, timeout=WATCHED_S)  # longer than a poll that is not held
    assert sum(is_polled(first, name) for name in ("u", "v", "w")) == len(left)
    for each in left:
        each.cancel()
