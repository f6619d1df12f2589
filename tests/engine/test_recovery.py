"""After a failed commit, a restart or a lost worker, nothing acknowledged is missing."""

import asyncio
from pathlib import Path

import pytest

from schedo.core.lifecycle import State
from schedo.core.limits import MINUTE, SECOND
from schedo.core.scheduler import Scheduler
from schedo.errors import StoreError, StoreFull
from schedo.store.base import JobFilter
from tests.engine.world import T0, leased, recovered, running


async def test_a_failed_commit_is_told_and_nothing_of_it_remains(path: Path) -> None:
    async with running(path) as world:
        world.store.fail_next(StoreFull("no room"))
        with pytest.raises(StoreFull):
            await world.submit()

        await recovered(world)

        assert await world.store.list_jobs(JobFilter(), None, 10) == []


async def test_a_running_attempt_outlives_a_failed_commit(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(delay_us=MINUTE)
        world.store.fail_next(StoreError("it flickered"))
        world.clock.step(MINUTE)  # the start is the commit that fails
        await asyncio.wait([asyncio.create_task(leased(world))], timeout=5)
        await recovered(world)

        world.worker.end()
        ended = await world.engine.wait(job.id, 5)

        assert (ended.state, ended.attempt, ended.losses) == (State.COMPLETED, 1, 0)


async def test_a_result_that_came_beside_a_command_that_broke_is_not_lost(path: Path) -> None:
    def stumble(scheduler: Scheduler, now: int) -> None:
        raise ZeroDivisionError

    async with running(path) as world:
        job = await world.submit()
        world.engine._loop.send(stumble)
        world.worker.end()

        ended = await world.engine.wait(job.id, 5)

        assert (ended.state, ended.attempt, ended.losses) == (State.COMPLETED, 1, 0)


async def test_a_result_whose_commit_failed_is_not_lost(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.store.fail_next(StoreError("it flickered"))
        world.worker.end()
        await recovered(world)

        ended = await world.engine.wait(job.id, 5)

        assert (ended.state, ended.attempt) == (State.COMPLETED, 1)


async def test_after_a_restart_an_attempt_of_the_old_server_is_lost_and_tried_again(
    path: Path,
) -> None:
    async with running(path) as world:
        job = await world.submit()
        await world.engine.settled()
    async with running(path) as world:
        again = await world.engine.get(job.id)

        assert (again.attempt, again.losses, again.failures) == (2, 1, 0)
        assert world.worker.leases[0].key.attempt == 2


async def test_after_a_restart_a_job_that_runs_at_most_once_is_not_repeated(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit(at_most_once=True)
        await world.engine.settled()
    async with running(path) as world:
        ended = await world.engine.get(job.id)

        assert (ended.state, ended.attempt) == (State.FAILED, 1)
        assert not world.worker.leases


async def test_after_a_restart_delayed_jobs_run_on_time(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE)
    async with running(path, now=T0 + SECOND) as world:
        await world.run_until(T0 + MINUTE)

        assert len(world.worker.leases) == 1


async def test_a_worker_that_leaves_loses_its_attempts(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.engine.detach("process-1", "it hung up")
        await world.engine.settled()

        again = await world.engine.get(job.id)

        assert (again.state, again.losses) == (State.QUEUED, 1)


async def test_a_stale_result_changes_nothing(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        stale = world.worker.leases[0]
        world.engine.detach("process-1", "it hung up")
        world.worker.attach()
        await world.engine.settled()

        world.worker.leases = [stale, *world.worker.leases]
        world.worker.end()
        await world.engine.settled()

        assert (await world.engine.get(job.id)).state is State.RUNNING
        assert [a.outcome for a in await world.store.list_attempts(job.id)] == ["lost", "stale"]
