"""Jobs that are not kept: who waits for one gets its end, and then it is gone."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from schedo.core.job_filter import JobFilter
from schedo.core.keep import KeepTimes
from schedo.core.model import Job, JobSpec, Options
from schedo.core.states import State
from schedo.engine.dropped_jobs import HELD_S
from schedo.errors import NotFound, SchedoError
from tests.engine.world import leased, running

GONE = Options(keep=KeepTimes(completed_us=0))


async def test_a_waiter_gets_the_result_of_a_job_that_is_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path / "schedo.db") as world:
        job = await world.submit(options=GONE)
        waiting = asyncio.create_task(world.engine.wait(job.id, 60))
        await leased(world)
        world.worker.end()

        ended = await waiting

        assert (ended.state, ended.result) == (State.COMPLETED, b'"done"')
        world.engine.dropped.evict(asyncio.get_running_loop().time() + HELD_S)
        with pytest.raises(NotFound, match="keep"):
            await world.engine.get(job.id)
        with pytest.raises(NotFound):
            await world.engine.wait(job.id, 0)
        assert (await world.store.list_jobs(JobFilter(), None, 9)).jobs == []


async def test_who_asks_a_moment_after_the_end_gets_the_job_too(tmp_path: Path) -> None:
    async with running(tmp_path / "schedo.db") as world:
        job = await world.submit(options=GONE)
        await leased(world)
        world.worker.end()
        await world.engine.flush()

        ended = await world.engine.wait(job.id, 60)

        assert (ended.state, ended.result) == (State.COMPLETED, b'"done"')
        assert await world.engine.get(job.id) == ended
        with pytest.raises(NotFound):
            await world.engine.retry(job.id)
    async with running(tmp_path / "schedo.db") as world:
        with pytest.raises(NotFound):
            await world.engine.get(job.id)


async def test_an_end_that_was_expected_at_the_submit_is_not_missed(tmp_path: Path) -> None:
    async with running(tmp_path / "schedo.db") as world:
        waiters = []
        with ExitStack() as ends:

            def view(job: Job) -> int:
                waiters.append(ends.enter_context(world.engine.expect_end(job.id)))
                return job.id

            (accepted,) = await world.engine.submit([JobSpec("work", options=GONE)], view=view)
            assert not isinstance(accepted, SchedoError)
            await leased(world)
            world.worker.end()
            await world.engine.flush()

            ended = await world.engine.wait(accepted.job, 60, waiters[0])

        assert ended.state is State.COMPLETED


async def test_a_wait_that_looks_for_the_job_too_late_gets_its_end_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "schedo.db") as world:
        job = await world.submit(options=GONE)
        await leased(world)
        get = world.engine.get

        async def get_after_the_end(job_id: int) -> Job:
            world.worker.end()
            await world.engine.flush()
            return await get(job_id)

        monkeypatch.setattr(world.engine, "get", get_after_the_end)

        assert (await world.engine.wait(job.id, 60)).state is State.COMPLETED
