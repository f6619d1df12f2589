"""Schedules and queues through the engine, on a real file."""

import asyncio
from pathlib import Path

import pytest

from schedo.core.commands import PutEffect
from schedo.core.limits import MINUTE, SECOND
from schedo.core.model import JobSpec, Overlap, Queue, Rule, ScheduleSpec
from schedo.core.queue_pause import QueuePause
from schedo.core.states import State
from schedo.errors import NotFound
from tests.engine.world import T0, running
from tests.store.steps import all_jobs


def every_minute(name: str = "s", **fields: object) -> ScheduleSpec:
    rule = Rule(every_us=MINUTE)
    return ScheduleSpec(name=name, rule=rule, job=JobSpec("work"), **fields)  # type: ignore[arg-type]


async def test_a_schedule_fires_each_instant_once_across_a_restart(path: Path) -> None:
    async with running(path) as world:
        await world.engine.put_schedule(every_minute(overlap=Overlap.ALLOW))
        await world.run_until(T0 + MINUTE)
    async with running(path, now=T0 + MINUTE) as world:
        await world.run_until(T0 + MINUTE + SECOND)

        jobs = await all_jobs(world.store)
        assert [job.scheduled_for for job in jobs] == [T0 + MINUTE, T0]


async def test_putting_the_same_schedule_again_changes_nothing(path: Path) -> None:
    async with running(path, now=T0 + 1) as world:
        first, created = await world.engine.put_schedule(every_minute())
        commits = world.store.commits
        again, repeated = await world.engine.put_schedule(every_minute())

        assert (created, repeated) == (PutEffect.CREATED, PutEffect.UNCHANGED)
        assert again.updated_at == first.updated_at
        assert world.store.commits == commits


async def test_a_paused_schedule_does_not_fire_but_can_be_triggered(path: Path) -> None:
    async with running(path, now=T0 + 1) as world:
        await world.engine.put_schedule(every_minute())
        await world.engine.pause_schedule("s", "holidays")
        await world.run_until(T0 + 5 * MINUTE)
        assert not world.worker.leases

        triggered = await world.engine.trigger_schedule("s")
        await world.engine.flush()

        assert triggered.job is not None
        assert [lease.key.job_id for lease in world.worker.leases] == [triggered.job.id]
        assert (await world.engine.get_schedule("s")).note == "holidays"


async def test_a_deleted_schedule_is_not_found_and_fires_no_more(path: Path) -> None:
    async with running(path) as world:
        await world.engine.put_schedule(every_minute())
        await world.engine.delete_schedule("s")
        await world.run_until(T0 + 5 * MINUTE)

        with pytest.raises(NotFound):
            await world.engine.get_schedule("s")


async def test_a_paused_queue_holds_its_jobs_until_it_is_resumed(path: Path) -> None:
    async with running(path) as world:
        await world.engine.pause_queue("default")
        job = await world.submit()
        assert (await world.engine.get(job.id)).state is State.QUEUED
        assert world.engine.why(await world.engine.get(job.id)).reasons == [
            "queue default is paused"
        ]

        await world.engine.resume_queue("default")

        assert len(world.worker.leases) == 1


async def test_a_queue_runs_no_more_than_its_concurrency(path: Path) -> None:
    async with running(path) as world:
        await world.engine.change_queue("default", concurrency=2)
        for _ in range(5):
            await world.submit()

        assert len(world.worker.leases) == 2
        (status,) = await world.engine.list_queues()
        assert (status.running, status.waiting) == (2, {"queued": 3})


async def test_two_concurrent_changes_of_a_queue_both_take_effect(path: Path) -> None:
    async with running(path) as world:
        engine = world.engine

        await asyncio.gather(engine.pause_queue("q"), engine.change_queue("q", weight=5))

        assert engine.get_queue("q") == Queue("q", paused=True, weight=5, pause=QueuePause(T0))
