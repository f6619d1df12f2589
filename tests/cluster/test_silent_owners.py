"""An owner that accepts the requests of a gateway and does not respond."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.client.messages import HttpResponse
from schedo.cluster import gateway, owner_requests, part_sender
from schedo.core.states import State
from schedo.errors import StoreError
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, running_cluster
from tests.cluster.test_gateway import state_of
from tests.cluster.test_lost_leases import BrokenWay
from tests.cluster.test_unreachable import move, standing_in, stay_silent
from tests.cluster.workers import HandWorker, holds, lease_of, result
from tests.passes import one_pass

# A response of an owner is awaited for 10 s, unless the gateway gives up before.
IN_TIME_S = 4.0
SHARD_OF_SECOND = 1


class SilentOwner:
    """Says nothing to a gateway about attempts until a test lets it."""

    def __init__(
        self, gateway: MemberWorld, owner: MemberWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._send, self._name = gateway.router.servers.peers.send, owner.name
        self.asked = 0
        self.may_respond = asyncio.Event()
        monkeypatch.setattr(gateway.router.servers.peers, "send", self.send)

    async def send(self, member: Any, hop: Any, *arguments: Any, **fields: Any) -> HttpResponse:
        response = self._send(member, hop, *arguments, **fields)
        if hop.purpose == "work" and member.name == self._name:
            self.asked += 1
            answer = await response
            await self.may_respond.wait()
            return answer
        return await response


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no request of a gateway to an owner be given up."""
    for limit in ("RESULT_S", "LIST_S"):
        monkeypatch.setattr(part_sender, limit, 600.0)


@pytest.mark.usefixtures("patient")
async def test_jobs_of_other_servers_do_not_wait_for_a_silent_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_cluster(3) as (_, (first, second, gateway)):
        worker = HandWorker(slots=3)
        theirs = await worker.take(first, task="demo")
        SilentOwner(gateway, first, monkeypatch)
        async with asyncio.timeout(IN_TIME_S):
            polling = worker.begin_poll(gateway, theirs)
            await second.submit(task="demo")
            of_another = lease_of(await polling)
            polling = worker.begin_poll(gateway, theirs, of_another)
            await gateway.submit(task="demo")
            own = lease_of(await polling)

        assert (holds(second, of_another), holds(gateway, own)) == (True, True)


@pytest.mark.usefixtures("patient")
async def test_the_next_owner_of_a_job_hears_that_it_runs_although_another_owner_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_cluster(4) as (everything, (first, second, _, gateway)):
        worker = HandWorker(slots=2)
        leases = [await worker.take(each, task="demo") for each in (first, second)]
        silent = SilentOwner(gateway, first, monkeypatch)
        polling = worker.begin_poll(gateway, *leases)
        while not silent.asked:
            await one_pass()
        gateway.cluster.believed[SHARD_OF_SECOND] = 3
        everything.give([SHARD_OF_SECOND], None)  # so the third one is not ready at first
        (call,) = gateway.router._gateway._workers.list_polls()
        while not call.worker.paces[3]._is_unheard:
            await one_pass()

        everything.owners[SHARD_OF_SECOND] = 3  # it has never heard of the job

        async with asyncio.timeout(IN_TIME_S):
            assert (await polling)["revoked"] == [leases[1]]


async def take_stopped(worker: HandWorker, owner: MemberWorld) -> str:
    """Return a lease of the owner, which is to stop; the worker has not heard that yet."""
    lease = await worker.take(owner, task="demo")
    await owner.post(f"/v1/jobs/{lease[:13]}:cancel")
    return lease


@pytest.mark.usefixtures("patient")
async def test_what_a_silent_owner_says_at_last_ends_the_poll_that_waits(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    theirs = await take_stopped(worker, first)
    silent = SilentOwner(second, first, monkeypatch)
    async with asyncio.timeout(IN_TIME_S):
        assert (await worker.poll(second, theirs))["stop"] == []
        polling = worker.begin_poll(second, theirs)
        while not second.router._gateway._workers.list_polls():
            await one_pass()

        silent.may_respond.set()

        assert (await polling)["stop"] == [{"lease": theirs, "reason": "cancel"}]


@pytest.mark.usefixtures("patient")
async def test_what_a_silent_owner_says_between_two_polls_comes_with_the_second_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    theirs = await take_stopped(worker, first)
    silent = SilentOwner(second, first, monkeypatch)
    await worker.poll(second, theirs)
    silent.may_respond.set()
    while not second.router._gateway._workers.note_request("w").late:
        await one_pass()
    silent.may_respond.clear()

    answer = await worker.poll(second, theirs)

    assert answer["stop"] == [{"lease": theirs, "reason": "cancel"}]


@pytest.mark.usefixtures("patient")
async def test_a_silent_owner_is_asked_for_one_poll_of_a_worker_at_a_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    theirs = await worker.take(first, task="demo")
    silent = SilentOwner(second, first, monkeypatch)

    for _ in range(3):
        await worker.poll(second, theirs)

    assert silent.asked == 1


@pytest.mark.usefixtures("patient")
async def test_results_do_not_wait_for_what_many_workers_say_to_their_owner(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_requests, "AT_ONCE", 2)
    _, first, second = cluster
    workers = [HandWorker(name) for name in ("a", "b", "c", "d")]
    leases = [await each.take(first, task="demo") for each in workers]
    silent = SilentOwner(second, first, monkeypatch)
    for worker, lease in zip(workers, leases, strict=True):
        await worker.poll(second, lease)
    assert silent.asked == 2

    ended = [result(leases[3])]
    reporting = asyncio.create_task(workers[3].send(second, running=[], results=ended, wait=0))
    while silent.asked != 3:
        await one_pass()

    silent.may_respond.set()
    assert (await reporting).status == 200
    assert await state_of(first, leases[3]) is State.COMPLETED


async def take_two(worker: HandWorker, first: MemberWorld, second: MemberWorld) -> tuple[str, str]:
    """Return the leases of a job of the first server and one of the second."""
    theirs = await worker.take(first, task="demo")
    polling = worker.begin_poll(second, theirs)
    await second.submit(task="demo")
    return theirs, lease_of(await polling)


async def test_a_silent_owner_does_not_hold_what_is_about_the_jobs_of_the_gateway(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_sender, "RESULT_S", 0.1)
    everything, first, second = cluster
    worker = HandWorker()
    theirs, mine = await take_two(worker, first, second)

    async with standing_in(everything, 1, stay_silent), asyncio.timeout(IN_TIME_S):
        answer = await worker.poll(second, theirs, results=[result(mine)])

    assert (answer["refused"], answer["revoked"]) == ([], [])
    assert await state_of(second, mine) is State.COMPLETED
    assert holds(first, theirs)


async def test_a_silent_server_that_was_asked_for_jobs_does_not_hold_those_of_the_gateway(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_sender, "RESULT_S", 0.05)
    _, first, second = cluster
    way = BrokenWay(second, monkeypatch)
    way.hangs = True
    worker = HandWorker(slots=2)
    polling = worker.begin_poll(second)
    await first.submit(task="demo")
    await way.is_lost.wait()

    await second.submit(task="demo")

    async with asyncio.timeout(IN_TIME_S):
        assert holds(second, lease_of(await polling))


async def test_a_result_for_a_silent_owner_is_not_confirmed_but_those_of_the_gateway_count(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    worker = HandWorker()
    theirs, mine = await take_two(worker, first, second)
    ended, url = [result(theirs), result(mine)], first.cluster.me.url

    with monkeypatch.context() as impatient:
        impatient.setattr(part_sender, "RESULT_S", 0.1)
        async with standing_in(everything, 1, stay_silent), asyncio.timeout(IN_TIME_S):
            reply = await worker.send(second, running=[], results=ended, wait=0)

    assert (reply.status, reply.code) == (503, "unavailable")
    assert await state_of(second, mine) is State.COMPLETED
    assert await state_of(first, theirs) is State.RUNNING
    move(everything, 1, url)
    again = await worker.poll(second, results=ended)
    assert again["refused"] == []
    assert await state_of(first, theirs) is State.COMPLETED


async def test_a_result_of_the_gateway_counts_while_an_owner_is_still_awaited(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    worker = HandWorker()
    theirs, mine = await take_two(worker, first, second)

    async with standing_in(everything, 1, stay_silent), asyncio.timeout(IN_TIME_S):
        ended = [result(theirs), result(mine)]
        polling = asyncio.create_task(worker.send(second, running=[], results=ended, wait=0))
        while await state_of(second, mine) is not State.COMPLETED:
            await asyncio.wait([polling], timeout=0.01)
        assert not polling.done()
        await polling


async def test_when_both_servers_fail_a_result_the_error_of_one_is_not_left_behind(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    theirs, mine = await take_two(worker, first, second)
    asking: list[asyncio.Task[Any]] = []

    async def fail_there(*_: object) -> None:
        asking.extend(filter(None, [asyncio.current_task()]))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # its response has come in this moment
            raise StoreError("the owner fails") from None

    async def fail_here(*_: object) -> None:
        raise StoreError("the gateway fails")

    with monkeypatch.context() as failing:
        failing.setattr(owner_requests.OwnerRequests, "ask", fail_there)
        failing.setattr(gateway.Gateway, "_report_here", fail_here)
        reply = await worker.send(
            second, running=[], results=[result(theirs), result(mine)], wait=0
        )

    await asyncio.wait(asking)
    assert reply.status == 503
    assert not asking[0]._log_traceback, "asyncio logs an exception that was never retrieved"


async def test_an_owner_that_waits_for_the_gang_of_an_accepted_offer_is_not_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_sender, "RESULT_S", 0.05)
    _, first, second = cluster
    workers = [HandWorker(name, slots=1) for name in ("a", "b")]
    polls = [asyncio.create_task(each.poll(first, wait=20, offers=True)) for each in workers]
    for poll in polls:
        await asyncio.wait([poll], timeout=0.01)
    body = {"task": "demo", "count": 2, "wait": "60s"}
    invoking = asyncio.ensure_future(first.post("/v1/invoke", body))
    offers = [lease_of(await poll) for poll in polls]

    through_gateway = asyncio.create_task(
        workers[0].poll(second, offers[0], accept=[offers[0]], offers=True)
    )
    await asyncio.wait([through_gateway], timeout=0.2)
    assert not through_gateway.done()
    await workers[1].poll(first, offers[1], accept=[offers[1]], offers=True)

    assert (await through_gateway)["revoked"] == []
    assert await state_of(first, offers[0]) is State.RUNNING
    invoking.cancel()
