"""Workers whose polls wait on while servers come and go get the jobs of the new ones."""

from __future__ import annotations

import asyncio

from schedo.core.shards import SHARDS
from tests.cluster.conftest import Cluster
from tests.cluster.members import running_cluster
from tests.cluster.workers import HandWorker, lease_of
from tests.passes import one_pass

COMES_WITHIN_S = 5.0


async def test_a_worker_that_waits_gets_the_jobs_of_a_server_that_has_started_again(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    polling = HandWorker().begin_poll(second)
    surplus = second.router._gateway._surplus_of_others
    while not surplus._questions:
        await one_pass()

    everything.members[0] = everything.members[0]._replace(epoch=99)
    everything.give([], None)
    await first.submit(task="demo")

    async with asyncio.timeout(COMES_WITHIN_S):
        assert lease_of(await polling)


async def test_a_worker_of_the_only_server_gets_the_jobs_of_one_that_joins() -> None:
    async with running_cluster(2) as (everything, (first, second)):
        joining = everything.members.pop(0)
        owners = [*everything.owners]
        everything.give(range(SHARDS), second.number)
        polling = HandWorker().begin_poll(second)
        while not second.engine.sessions.list():
            await one_pass()

        everything.members.insert(0, joining)
        everything.owners[:] = owners
        everything.give([], None)  # nothing but the news
        await first.submit(task="demo")

        async with asyncio.timeout(COMES_WITHIN_S):
            await polling
            assert lease_of(await HandWorker().begin_poll(second))


async def test_a_worker_gets_the_jobs_of_a_server_whose_shards_were_taken_before_its_session_ended(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    owners, silent = [*everything.owners], everything.members[0]
    everything.give(range(SHARDS), second.number)
    everything.members[0] = silent._replace(silent_us=None)  # no change is announced
    polling = HandWorker().begin_poll(second)
    while not second.engine.sessions.list():
        await one_pass()

    everything.members[0] = silent._replace(epoch=99)
    everything.owners[:] = owners
    everything.give([], None)
    await first.submit(task="demo")

    async with asyncio.timeout(COMES_WITHIN_S):
        await polling
        assert lease_of(await HandWorker().begin_poll(second))
