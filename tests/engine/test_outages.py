"""A store that is away for a while: what ends meanwhile keeps its times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schedo.core.leases import Failed
from schedo.core.limits import MINUTE, SECOND
from schedo.core.model import ONCE, Failure, Job
from schedo.core.sketch import find_quantiles
from schedo.core.states import State
from schedo.core.tallies import Dimension, TallyFilter
from schedo.engine import loop
from schedo.errors import StoreError
from schedo.store.base import Snapshot
from tests.engine.world import T0, World, recovered, running
from tests.passes import one_pass


@asynccontextmanager
async def outage(world: World) -> AsyncIterator[None]:
    """Let the commit that is held fail, and no recovery succeed before the end of the block."""
    is_back = asyncio.Event()

    async def snapshot() -> Snapshot:
        await is_back.wait()
        return await store.snapshot()

    store = world.store._store
    world.store.snapshot = snapshot  # type: ignore[attr-defined]
    world.store.fail_next(StoreError("it is away"))
    world.store.release()
    while world.engine.health().ready:
        await one_pass()
    yield
    is_back.set()
    await recovered(world)


async def longest(world: World) -> tuple[float, float]:
    """Return the longest run and the longest lateness of the stats, in seconds."""
    found = await world.engine.read_tallies(TallyFilter(Dimension.TASK, 0, T0 + MINUTE * 60))
    tally = found[0]["work"]
    ((run,), (late,)) = (find_quantiles(each, [1]) for each in (tally.run, tally.late))
    return run / SECOND, late / SECOND


def is_as_it_was(job: Job) -> bool:
    return (job.started_at, job.ended_at) == (T0, T0 + SECOND)


async def test_a_job_that_ends_during_an_outage_keeps_its_times(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.store.hold()
        other = asyncio.create_task(world.submit(delay_us=MINUTE))
        await world.store.wait_held()
        async with outage(world):
            with pytest.raises(StoreError):
                await other
            world.clock.stall(SECOND)
            world.worker.end(ran_us=SECOND)
            await one_pass()
            world.clock.stall(30 * SECOND)

        assert is_as_it_was(await world.engine.wait(job.id, 5))
        assert await longest(world) == pytest.approx((1, 0), abs=0.05)


async def test_a_job_whose_end_is_not_durable_before_an_outage_keeps_its_times(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.clock.stall(SECOND)
        world.store.hold()
        world.worker.end(ran_us=SECOND)
        await world.store.wait_held()
        async with outage(world):
            world.clock.stall(30 * SECOND)

        assert is_as_it_was(await world.engine.wait(job.id, 5))
        assert await longest(world) == pytest.approx((1, 0), abs=0.05)


async def test_a_second_outage_during_the_recovery_changes_no_time(path: Path) -> None:
    async with running(path) as world:
        job = await world.submit()
        world.clock.stall(SECOND)
        world.store.hold()
        world.worker.end(ran_us=SECOND)
        await world.store.wait_held()
        async with outage(world):
            world.clock.stall(30 * SECOND)
            world.store.fail_next(StoreError("it is away again"))
        await recovered(world, 2)

        assert is_as_it_was(await world.engine.wait(job.id, 5))


@pytest.mark.parametrize(("before", "after"), [(3, 0), (0, 1), (2, 1)])
async def test_an_end_counts_once_however_often_its_commit_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    monkeypatch.setattr(loop, "RECOVERY_PAUSE_S", 0.01)
    async with running(path) as world:
        await world.submit(retry=ONCE)
        world.store.fail_next(*[StoreError("it is away")] * before)
        world.store.fail_after(*[StoreError("it is away")] * after)
        world.worker.end(Failed(Failure("boom", "it broke")))
        await recovered(world, before + after)

        assert world.engine.metrics.ended[State.FAILED] == 1


async def test_a_failure_is_logged_and_counted_once_however_often_its_commit_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "RECOVERY_PAUSE_S", 0.01)
    async with running(path) as world:
        await world.submit(retry=ONCE)
        world.store.fail_next(*[StoreError("it is away")] * 3)
        world.worker.end(Failed(Failure("boom", "it broke")))
        await recovered(world, 3)
        await world.submit(retry=ONCE)
        world.worker.end(Failed(Failure("boom", "it broke")))
        await world.engine.flush()

        [group] = world.engine.failures.latest()
        assert (group.count, group.failed_jobs) == (2, 2)
        assert caplog.text.count("attempt 1 failed: boom") == 2
