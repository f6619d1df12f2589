"""Many workers of a gateway look for the owners of their attempts at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from schedo.cluster.lease_owners import LeaseOwners
from schedo.errors import SchedoError, StoreError
from schedo.protocol.leases import parse_lease
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.cluster.workers import HandWorker, holds
from tests.passes import one_pass

WORKERS = 8
FIRST, OTHER = "0CRAAAE7DYK81.1.9", "0CRAAAE7DYK82.1.9"  # of jobs that no server has


class SlowReads:
    """Holds each read of a server until a test lets it go on."""

    def __init__(self, world: MemberWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self._read = world.cluster.shards_of_jobs
        self.asked: list[Sequence[int]] = []
        self.error: SchedoError | None = None
        self.may_go_on = asyncio.Event()
        monkeypatch.setattr(world.cluster, "shards_of_jobs", self.read)

    async def read(self, job_ids: Sequence[int]) -> dict[int, int]:
        self.asked.append(job_ids)
        await self.may_go_on.wait()
        if self.error is not None:
            raise self.error
        return await self._read(job_ids)


@pytest.fixture
def slow(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> SlowReads:
    return SlowReads(cluster[2], monkeypatch)


@pytest.fixture
def owners(cluster: Cluster) -> LeaseOwners:
    return cluster[2].router._gateway._owners


async def pass_often() -> None:
    for _ in range(5):
        await one_pass()


async def test_workers_that_look_for_owners_while_a_read_runs_share_the_next_one(
    cluster: Cluster, slow: SlowReads
) -> None:
    _, first, second = cluster
    workers = [HandWorker(f"w{number}", slots=1) for number in range(WORKERS)]
    leases = [await each.take(first, task="demo") for each in workers]
    polls = [
        asyncio.create_task(worker.poll(second, lease))
        for worker, lease in zip(workers, leases, strict=True)
    ]
    while len(second.router._gateway._workers.list_polls()) < WORKERS:
        await one_pass()
    await pass_often()

    slow.may_go_on.set()

    assert [each["revoked"] for each in await asyncio.gather(*polls)] == [[]] * WORKERS
    assert len(slow.asked) <= 2
    named = zip(workers, leases, strict=True)
    assert all(holds(first, lease, each.name) for each, lease in named)


async def test_a_question_gets_no_answer_of_a_read_that_has_begun_before(
    slow: SlowReads, owners: LeaseOwners
) -> None:
    asking = [asyncio.create_task(owners.find_owned([FIRST]))]
    await pass_often()
    asking += [asyncio.create_task(owners.find_owned([lease])) for lease in (FIRST, OTHER)]
    await pass_often()
    assert slow.asked == [[parse_lease(FIRST).job_id]]

    slow.may_go_on.set()

    assert await asyncio.gather(*asking) == [{FIRST}, {FIRST}, {OTHER}]  # there is no such job
    assert sorted(slow.asked[1]) == sorted(parse_lease(lease).job_id for lease in (FIRST, OTHER))
    assert len(slow.asked) == 2


async def test_all_who_share_a_read_hear_that_it_has_failed(
    slow: SlowReads, owners: LeaseOwners
) -> None:
    slow.error = StoreError("the database does not respond")
    slow.may_go_on.set()
    asking = [asyncio.create_task(owners.find_owned([lease])) for lease in (FIRST, OTHER)]

    assert await asyncio.gather(*asking, return_exceptions=True) == [slow.error] * 2
    slow.error = None
    assert await owners.find_owned([FIRST]) == {FIRST}
