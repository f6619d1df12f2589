"""A poll that a newer one has overtaken must not take a lease that came with the newer one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.cluster import owner_pace
from schedo.core import held_leases
from schedo.core.model import JobSpec
from schedo.protocol.roles import Role
from schedo.virtual_clock import VirtualClock
from schedo.web.permissions import TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.cluster.conftest import Cluster
from tests.cluster.members import running_cluster
from tests.cluster.workers import HandWorker, holds, lease_of
from tests.passes import until

UNKNOWN = "0CRAAAE7DYK81.1.9"  # of a job that no server has
COMES_WITHIN_S = 2.0


class FirstCall:
    """Holds the first call of a function until it may go on."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.began, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, *arguments: Any, **fields: Any) -> Any:
        if not self.began.is_set():
            self.began.set()
            await self.may_go_on.wait()
        return await self._function(*arguments, **fields)


@pytest.fixture
def looking(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> FirstCall:
    """The first look of the second server for owners in the database."""
    second = cluster[2]
    found = FirstCall(second.cluster.shards_of_jobs)
    monkeypatch.setattr(second.cluster, "shards_of_jobs", found)
    return found


async def test_a_poll_that_waited_for_another_server_takes_nothing_from_the_worker(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    peers = second.router.servers.peers
    sending = FirstCall(peers.send)
    monkeypatch.setattr(peers, "send", sending)
    worker = HandWorker()
    theirs = await worker.take(first, task="demo")
    old = worker.begin_poll(second, theirs)
    await sending.began.wait()
    await second.submit(task="demo")
    lease = lease_of(await worker.begin_poll(second, theirs))

    sending.may_go_on.set()

    assert (await old)["leases"] == []
    assert holds(second, lease)


async def test_a_poll_that_waited_for_the_database_takes_nothing_from_the_worker(
    cluster: Cluster, looking: FirstCall
) -> None:
    second = cluster[2]
    worker = HandWorker()
    old = worker.begin_poll(second, UNKNOWN)
    await looking.began.wait()
    await second.submit(task="demo")
    lease = lease_of(await worker.begin_poll(second))

    looking.may_go_on.set()

    assert (await old)["leases"] == []
    assert holds(second, lease)


async def test_a_list_that_waited_for_the_database_is_as_old_as_it_is(
    cluster: Cluster, looking: FirstCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_leases, "IN_FLIGHT_US", 0)
    _, first, second = cluster
    clock = second.engine.clock
    assert isinstance(clock, VirtualClock)
    worker = HandWorker()
    old = worker.begin_poll(second, UNKNOWN)
    await looking.began.wait()
    await second.submit(task="demo")
    lease = lease_of(await worker.begin_poll(first))  # that server asks for it

    await clock.run_until(second.engine, clock.now() + 1)
    looking.may_go_on.set()

    assert (await old)["leases"] == []
    assert holds(second, lease)


async def test_a_poll_that_waited_for_the_database_frees_no_slot_of_the_worker(
    cluster: Cluster, looking: FirstCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_pace, "LOOK_S", 0.0)
    _, first, second = cluster
    worker = HandWorker(slots=1)
    old = worker.begin_poll(second, UNKNOWN)
    await looking.began.wait()
    polling = worker.begin_poll(second)
    await first.submit(task="demo")
    lease = lease_of(await polling)
    polling = worker.begin_poll(second, lease)
    await second.submit(task="demo")  # for which the worker has no slot

    looking.may_go_on.set()
    await old
    await first.post(f"/v1/jobs/{lease[:13]}:cancel")

    async with asyncio.timeout(COMES_WITHIN_S):
        answer = await polling
    assert answer["leases"] == []
    assert answer["stop"] == [{"lease": lease, "reason": "cancel"}]


@pytest.mark.parametrize("wrong", [{"wait": "x"}, {"slots": -1}, {"session": 7}])
async def test_a_poll_that_is_refused_ends_no_other_poll_of_the_worker(
    cluster: Cluster, wrong: dict[str, Any]
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    polling = worker.begin_poll(second)
    await until(lambda: second.router._gateway._workers.list_polls())

    assert (await worker.send(second, **wrong)).status == 422
    await first.submit(task="demo")

    async with asyncio.timeout(COMES_WITHIN_S):
        assert lease_of(await polling)


async def test_a_token_that_may_not_have_the_name_of_a_worker_takes_no_jobs_from_it() -> None:
    tokens = {digest(name): TokenPermission(Role.WORKER, name) for name in ("own", "other")}
    async with running_cluster(2, WebSettings(tokens=tokens, anyone=None)) as (_, worlds):
        first, second = worlds
        poll = {"worker": "w", "session": "s", "wait": 20}
        own, other = ([("authorization", f"Bearer {token}")] for token in ("own", "other"))
        polling = asyncio.create_task(second.post("/v1/work", poll, own))
        await until(lambda: second.router._gateway._workers.list_polls())
        await until(lambda: "w" in second.app.context.workers)

        assert (await second.post("/v1/work", poll, other)).status == 403
        await first.engine.submit([JobSpec(task="demo")])

        async with asyncio.timeout(COMES_WITHIN_S):
            assert len((await polling).json()["leases"]) == 1
