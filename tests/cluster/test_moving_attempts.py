"""A job gets another owner while the gateway of its worker looks for the owner or asks it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from schedo.cluster import owner_requests
from schedo.cluster.polling_worker import Place
from schedo.cluster.worker_call import WorkerCall
from schedo.core.shards import SHARDS
from schedo.core.states import State
from tests.cluster.conftest import Cluster
from tests.cluster.test_gateway import state_of
from tests.cluster.workers import HandWorker, result


async def test_a_result_is_not_lost_when_another_request_finds_that_its_job_has_come_here(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")

    async def find_here(call: WorkerCall) -> None:
        everything.give(range(SHARDS), 2)
        call.worker.elsewhere.clear()

    monkeypatch.setattr(second.router._gateway._requests, "ask", find_here)
    answer = await worker.poll(second, results=[result(lease)])

    # The store here has no such job.
    assert [each["lease"] for each in answer["refused"]] == [lease]


async def test_a_result_is_not_lost_when_another_request_believes_that_its_job_is_elsewhere(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    own = await worker.take(second, task="demo")
    theirs = await worker.take(first, task="demo")
    ask = second.router._gateway._requests.ask

    async def ask_and_believe(call: WorkerCall) -> None:
        await ask(call)
        call.worker.elsewhere[own] = Place()

    monkeypatch.setattr(second.router._gateway._requests, "ask", ask_and_believe)
    answer = await worker.poll(second, results=[result(own), result(theirs)])

    assert answer["refused"] == []
    assert await state_of(second, own) is State.COMPLETED
    assert await state_of(first, theirs) is State.COMPLETED


async def test_a_request_that_gets_no_answer_about_a_job_leaves_it_where_another_one_has_found_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    calls: list[WorkerCall] = []

    async def come_here(call: WorkerCall, *_: Any) -> None:
        call.worker.elsewhere.clear()
        calls.append(call)

    monkeypatch.setattr(second.router._gateway._sender, "_send", come_here)
    await worker.poll(second, lease)

    assert [call.worker.elsewhere for call in calls] == [{}]


async def test_a_result_waits_for_the_next_owner_of_its_job(cluster: Cluster) -> None:
    everything, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    own = [shard for shard in range(SHARDS) if first.cluster.is_mine(shard)]
    everything.give(own, None)
    polling = asyncio.create_task(worker.poll(second, results=[result(lease)]))
    await asyncio.wait([polling], timeout=0.05)
    assert not polling.done()

    everything.give(own, 1)

    assert (await polling)["refused"] == []
    assert await state_of(first, lease) is State.COMPLETED


async def test_a_result_whose_shard_comes_to_the_gateway_is_applied_there(
    cluster: Cluster,
) -> None:
    everything, _, second = cluster
    worker = HandWorker()
    stale = f"{await worker.take(second, task='demo')}9"
    everything.give(range(SHARDS), None)
    polling = asyncio.create_task(worker.poll(second, results=[result(stale)]))
    await asyncio.wait([polling], timeout=0.05)
    assert not polling.done()

    everything.give(range(SHARDS), 2)

    assert [each["lease"] for each in (await polling)["refused"]] == [stale]


async def test_a_result_that_finds_no_owner_in_time_is_not_confirmed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_requests, "MOVING_S", 0.05)
    everything, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    everything.give(range(SHARDS), None)

    reply = await worker.send(second, running=[], results=[result(lease)])

    assert (reply.status, reply.code) == (503, "unavailable")
    assert await state_of(first, lease) is State.RUNNING


@pytest.fixture
async def misplaced(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> tuple[HandWorker, str]:
    """A worker, and its lease of a job of the first server that the second takes for its own."""
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    owners = second.router._gateway._owners
    place = owners.place

    async def place_here(call: WorkerCall, leases: Any) -> None:
        monkeypatch.setattr(owners, "place", place)

    monkeypatch.setattr(owners, "place", place_here)
    return worker, lease


async def test_a_result_for_a_server_that_has_just_lost_the_job_reaches_the_next_owner(
    cluster: Cluster, misplaced: tuple[HandWorker, str]
) -> None:
    _, first, second = cluster
    worker, lease = misplaced

    answer = await worker.poll(second, results=[result(lease)])

    assert answer["refused"] == []
    assert await state_of(first, lease) is State.COMPLETED


async def test_a_result_for_a_job_that_has_left_and_come_back_is_not_confirmed(
    cluster: Cluster, misplaced: tuple[HandWorker, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    worker, lease = misplaced

    async def come_back(call: WorkerCall) -> None:
        if call.has_waited:
            everything.give(range(SHARDS), 2)

    monkeypatch.setattr(second.router._gateway._requests, "ask", come_back)
    reply = await worker.send(second, running=[], results=[result(lease)])

    assert (reply.status, reply.code) == (503, "unavailable")
    assert await state_of(first, lease) is State.RUNNING


@pytest.fixture
def coming(
    cluster: Cluster, misplaced: tuple[HandWorker, str], monkeypatch: pytest.MonkeyPatch
) -> tuple[HandWorker, str]:
    """The same, but the job comes to the second server after that has denied the lease."""
    everything, _, second = cluster
    look = second.cluster.shards_of_jobs

    async def look_later(job_ids: Sequence[int]) -> dict[int, int]:
        everything.give(range(SHARDS), 2)
        return await look(job_ids)

    monkeypatch.setattr(second.cluster, "shards_of_jobs", look_later)
    return misplaced


async def test_a_result_for_a_job_that_comes_just_after_its_denial_is_sent_again(
    cluster: Cluster, coming: tuple[HandWorker, str]
) -> None:
    worker, lease = coming

    reply = await worker.send(cluster[2], running=[], results=[result(lease)])

    assert (reply.status, reply.code) == (503, "unavailable")


async def test_an_attempt_of_a_job_that_comes_just_after_its_denial_is_not_revoked(
    cluster: Cluster, coming: tuple[HandWorker, str]
) -> None:
    worker, lease = coming

    assert (await worker.poll(cluster[2], lease))["revoked"] == []
