"""An owner that accepts the requests of a gateway and does not respond."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.cluster import gateway, part_sender
from schedo.core.states import State
from schedo.errors import StoreError
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.cluster.test_gateway import state_of
from tests.cluster.test_lost_leases import BrokenWay
from tests.cluster.test_unreachable import move, standing_in, stay_silent
from tests.cluster.workers import HandWorker, holds, lease_of, result

# A response of an owner is awaited for 10 s, unless the gateway gives up before.
IN_TIME_S = 4.0


async def take_two(worker: HandWorker, first: MemberWorld, second: MemberWorld) -> tuple[str, str]:
    """Return the leases of a job of the first server and one of the second."""
    theirs = await worker.take(first, task="demo")
    polling = worker.begin_poll(second, theirs)
    await second.submit(task="demo")
    return theirs, lease_of(await polling)


async def test_a_silent_owner_does_not_hold_what_is_about_the_jobs_of_the_gateway(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_sender, "MOVING_S", 0.1)
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
    monkeypatch.setattr(part_sender, "MOVING_S", 0.05)
    monkeypatch.setattr(part_sender, "ASK_S", 0.1)
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
        impatient.setattr(part_sender, "MOVING_S", 0.1)
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
        polling = asyncio.create_task(worker.poll(second, theirs, results=[result(mine)]))
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
        failing.setattr(part_sender.PartSender, "ask_owners", fail_there)
        failing.setattr(gateway.Gateway, "_report_here", fail_here)
        reply = await worker.send(second, running=[theirs], results=[result(mine)], wait=0)

    await asyncio.wait(asking)
    assert reply.status == 503
    assert not asking[0]._log_traceback, "asyncio logs an exception that was never retrieved"


async def test_an_owner_that_waits_for_the_gang_of_an_accepted_offer_is_not_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_sender, "MOVING_S", 0.05)
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
