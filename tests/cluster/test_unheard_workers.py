"""A lease that is lost behind a load balancer, which sends the worker to another server then."""

from __future__ import annotations

import asyncio

import pytest

from schedo.core.states import State
from schedo.protocol.leases import parse_lease
from tests.cluster.conftest import Cluster
from tests.cluster.members import running_cluster
from tests.cluster.test_lost_leases import IN_FLIGHT_S, pass_time
from tests.cluster.test_old_polls import FirstCall
from tests.cluster.workers import HandWorker, Message, holds, lease_of

COMES_WITHIN_S = 2.0


async def look(cluster: Cluster) -> None:
    """Let both servers do what they do once a second."""
    for world in cluster[1:]:
        await world.router.look()


async def expect_new_start(
    cluster: Cluster, worker: HandWorker, polling: asyncio.Task[Message], lost: str
) -> None:
    """Check that the job of a lost lease starts again with the next poll of its worker."""
    _, first, second = cluster
    async with asyncio.timeout(COMES_WITHIN_S):
        assert (await polling)["leases"] == []  # so it polls again, and says what it runs now
        lease = lease_of(await worker.begin_poll(second))

    job = await first.engine.get(parse_lease(lost).job_id)
    assert parse_lease(lease).job_id == job.id
    assert (lease != lost, job.state, job.losses) == (True, State.RUNNING, 0)


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_a_lost_lease_starts_again_although_its_worker_polls_another_server(
    cluster: Cluster, delivery: str
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    lost = await worker.take(first, task="demo", delivery=delivery)  # say it never came
    polling = worker.begin_poll(second)
    await second.engine.flush()
    await pass_time(cluster, IN_FLIGHT_S + 1)

    await look(cluster)

    await expect_new_start(cluster, worker, polling, lost)


async def test_the_list_comes_from_whichever_server_the_worker_polls_next(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    lost = await worker.take(first, task="demo")
    await pass_time(cluster, IN_FLIGHT_S + 1)

    await look(cluster)  # the second server has never heard of the worker
    async with asyncio.timeout(COMES_WITHIN_S):
        lease = lease_of(await worker.begin_poll(second))

    assert parse_lease(lease).job_id == parse_lease(lost).job_id


async def test_a_lease_that_the_worker_runs_is_kept(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    lease = await worker.take(first, task="demo")
    await pass_time(cluster, IN_FLIGHT_S + 1)

    await look(cluster)
    answer = await worker.poll(second, lease)

    assert (answer["revoked"], holds(first, lease)) == ([], True)


async def test_a_worker_of_which_a_server_hears_is_not_asked_about(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    lease = await worker.take(first, task="demo")
    await pass_time(cluster, IN_FLIGHT_S + 1)
    await worker.poll(first, lease)

    await look(cluster)

    assert "w" not in second.router._gateway._workers


async def test_a_worker_is_asked_for_its_list_once(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    await worker.take(first, task="demo")
    await pass_time(cluster, IN_FLIGHT_S + 1)
    await look(cluster)
    polling = asyncio.create_task(worker.ask(second, wait=20, tasks=["other"]))  # without a list
    await second.engine.flush()

    await look(cluster)
    await asyncio.wait([polling], timeout=0.05)

    assert not polling.done()
    polling.cancel()


async def test_a_poll_is_ended_for_its_list_also_while_its_gateway_asks_another_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_cluster(3) as (everything, (first, second, gateway)):
        worker = HandWorker(slots=2)
        await worker.take(first, task="demo")  # say it never came
        running = await worker.take(second, task="demo")
        requests = gateway.router._gateway._requests
        sending = FirstCall(requests.ask)
        monkeypatch.setattr(requests, "ask", sending)
        polling = worker.begin_poll(gateway, running)
        await sending.began.wait()
        await pass_time((everything, first, gateway), IN_FLIGHT_S + 1)

        await first.router.look()
        sending.may_go_on.set()

        async with asyncio.timeout(COMES_WITHIN_S):
            assert (await polling)["leases"] == []
