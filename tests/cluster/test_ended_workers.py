"""A remote worker that ends has ended at all servers, whichever of them it polls."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from schedo.core.limits import SECOND
from schedo.core.worker_session import RECONNECT_US
from schedo.errors import NotFound
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, running_cluster
from tests.cluster.test_lost_leases import pass_time
from tests.cluster.workers import HandWorker, holds, result
from tests.passes import until


async def end(worker: HandWorker, at: MemberWorld, *running: str, **fields: Any) -> None:
    """Let the worker send its last request, and wait until the other servers know of it."""
    before = set(at.router.servers.background)
    await worker.poll(at, *running, draining=True, **fields)
    await asyncio.gather(*at.router.servers.background - before)


async def state_of(worker: HandWorker, asked: MemberWorld) -> str:
    (found,) = (await asked.get("/v1/workers")).json()["items"]
    assert found["name"] == worker.name
    state: str = found["state"]
    return state


async def run_one(worker: HandWorker, owner: MemberWorld, gateway: MemberWorld) -> None:
    """Let the worker run a job of the owner, with its result sent to the gateway."""
    lease = await worker.take(owner, task="demo")
    await worker.poll(gateway, lease)
    await worker.poll(gateway, results=[result(lease)])


async def test_a_worker_that_has_run_jobs_of_two_servers_has_ended_at_both(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    await run_one(worker, first, second)
    assert await state_of(worker, first) == "active"

    await end(worker, second)

    assert [await state_of(worker, each) for each in (first, second)] == ["disconnected"] * 2


async def test_the_last_request_of_a_worker_may_bring_a_result(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    await run_one(worker, first, second)
    lease = await worker.take(second, task="demo")

    await end(worker, second, results=[result(lease)])

    assert await state_of(worker, first) == "disconnected"


async def test_a_server_that_does_not_know_the_worker_does_not_learn_of_its_end() -> None:
    async with running_cluster(3) as (_, (first, second, third)):
        worker = HandWorker()
        await run_one(worker, first, second)

        await end(worker, second)

        with pytest.raises(NotFound):
            third.engine.sessions.get(worker.name)


async def test_a_worker_that_still_runs_a_job_has_not_ended(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    await worker.poll(second, lease)

    await end(worker, second, lease)

    assert await state_of(worker, second) == "draining"
    assert holds(first, lease)


async def test_a_lease_on_its_way_to_a_worker_that_ends_is_kept_until_it_may_have_arrived(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    await worker.poll(second)
    lease = await worker.take(first, task="demo")

    await end(worker, second)

    assert holds(first, lease)


async def test_the_end_of_an_earlier_process_is_not_that_of_the_next_one(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    earlier, later = HandWorker(), HandWorker(session="s2")
    await earlier.poll(second)
    lease = await later.take(first, task="demo")

    await end(earlier, second)

    assert await state_of(later, first) == "active"
    await later.poll(first, lease)


async def test_the_owners_of_the_jobs_of_a_killed_worker_notice_it_as_soon_as_its_gateway(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    await worker.poll(second, lease)
    port = int(second.cluster.me.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    body = msgspec.json.encode({**worker.description, "running": [lease], "wait": 30})
    head = f"POST /v1/work HTTP/1.1\r\nhost: localhost:8080\r\ncontent-length: {len(body)}\r\n"
    writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + body)
    await until(lambda: second.router._gateway._workers.list_polls())

    writer.close()
    await until(lambda: state_at(first) == "broken")
    await pass_time(cluster, RECONNECT_US // SECOND + 1)

    await until(lambda: not holds(first, lease))


def state_at(world: MemberWorld) -> str:
    return world.engine._loop.scheduler._session_table.by_name["w"].state
