"""Pruning deletes no job that a command has looked up and is about to change."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedo.core.changes import Changes
from schedo.core.job_filter import JobFilter
from schedo.core.leases import Failed
from schedo.core.loads import Load, LoadJob, LoadUniqueHolders
from schedo.core.model import Failure, Job, Unique
from schedo.core.states import State
from schedo.engine.pacing import IDLE_S, PRUNE_PAUSE_S, ROWS_PER_S, PrunePace, StepSize
from schedo.errors import NotFound, StoreError
from schedo.store.base import Retention
from tests.engine.world import World, running


@pytest.fixture
def prune_beside(monkeypatch: pytest.MonkeyPatch) -> Callable[[World, type[Load]], None]:
    """Return a function that lets all ended jobs be pruned just after the look-up of one."""

    def arrange(world: World, kind: type[Load]) -> None:
        do = world.store.load

        async def load_and_prune(load: Load) -> Any:
            found = await do(load)
            if not isinstance(load, kind):
                return found
            pruning.append(asyncio.create_task(housekeeping.prune()))
            await asyncio.wait(pruning, timeout=0.05)
            return found

        housekeeping = world.engine._maintenance
        monkeypatch.setattr(housekeeping, "retention", Retention(0, 0, 0, 0))
        monkeypatch.setattr(world.store, "load", load_and_prune)

    pruning: list[asyncio.Task[int]] = []
    return arrange


async def ended(world: World, **options: Any) -> Job:
    """Return a job that has failed a second ago."""
    job = await world.submit(**options)
    world.worker.end(Failed(Failure("boom", "it broke"), retryable=False))
    job = await world.engine.wait(job.id, 5)
    assert job.state is State.FAILED
    world.clock.stall(1_000_000)
    await world.engine.flush()
    return job


async def test_a_unique_key_passes_to_a_new_job_while_its_ended_holder_is_pruned(
    path: Path, prune_beside: Callable[[World, type[Load]], None]
) -> None:
    async with running(path) as world:
        before = await ended(world, unique=Unique("k", states=("queued",)))
        prune_beside(world, LoadUniqueHolders)

        after = await world.submit(unique=Unique("k", states=("queued",)))

        assert after.id != before.id
        assert world.store.failures == 0


async def test_a_retried_job_is_not_pruned_before_its_retry_is_durable(
    path: Path, prune_beside: Callable[[World, type[Load]], None]
) -> None:
    async with running(path) as world:
        job = await ended(world)
        prune_beside(world, LoadJob)

        await world.engine.retry(job.id)

        assert (await world.engine.get(job.id)).state is State.RUNNING


async def test_a_job_that_was_pruned_is_not_found(path: Path) -> None:
    async with running(path) as world:
        job = await ended(world)
        await world.store.list_jobs(JobFilter(), None, 9)  # which flushes the write buffer
        world.engine._maintenance.retention = Retention(0, 0, 0, 0)

        assert await world.engine._maintenance.prune() == 1
        with pytest.raises(NotFound):
            await world.engine.get(job.id)


async def test_a_failed_prune_raises_only_in_its_caller(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*what: Any) -> int:
        raise StoreError("it flickered")

    async with running(path) as world:
        monkeypatch.setattr(world.store, "prune", fail)
        with pytest.raises(StoreError):
            await world.engine._maintenance.prune()

        assert (await world.submit()).state is State.QUEUED
        assert world.engine.health().ready


async def test_an_ended_job_that_is_retried_while_its_end_is_committed_is_not_pruned(
    path: Path,
) -> None:
    async with running(path) as world:
        # As if much time had passed; a step of the clock would be a commit of its own.
        world.engine._maintenance.retention = Retention(0, 0, -1, 0)
        before = await world.submit(unique=Unique("k", states=("queued",)))
        world.store.hold()
        other = asyncio.create_task(world.submit())
        await world.store.wait_held()
        world.worker.end(Failed(Failure("boom", "it broke"), retryable=False))
        await asyncio.wait([other], timeout=0.05)
        pruning = asyncio.create_task(world.engine._maintenance.prune())
        await asyncio.wait([pruning], timeout=0.05)
        world.store.release()
        world.store.hold()
        await world.store.wait_held()  # with the end, and the pruning after it

        submit = asyncio.create_task(world.submit(unique=Unique("k", states=("queued",))))
        # A change of a queue makes its commit leave the write buffer, from which nothing is pruned.
        change = asyncio.create_task(world.engine.change_queue("other", weight=2))
        await asyncio.wait([submit, change], timeout=0.05)
        world.store.release()

        assert (await submit).id not in (before.id, (await other).id)
        assert await pruning == 1
        await change


def test_a_long_step_is_followed_by_a_shorter_one() -> None:
    size = StepSize(100, least=40, most=160, target_us=5_000)
    sizes = []

    for took_us in (5_001, 9_000, 9_000, 5_000, 100, 100, 100, 100):
        size.adapt(took_us)
        sizes.append(size.rows)

    assert sizes == [50, 40, 40, 60, 90, 135, 160, 160]


def busy_pace() -> PrunePace:
    """Return the pace of a store that has just made a commit and a step of pruning, at 10 s."""
    pace = PrunePace(StepSize(100, 100, 100, target_us=5_000))
    pace.committed(0, 10.0)
    pace.stepped(2_000, 10.0)
    return pace


def test_pruning_of_an_idle_store_pauses_after_each_step() -> None:
    pace = busy_pace()
    now = 10.0 + IDLE_S
    assert pace.is_due(now)

    pace.stepped(2_000, now)

    assert not pace.is_due(now + 0.9 * PRUNE_PAUSE_S)
    assert pace.is_due(now + 1.1 * PRUNE_PAUSE_S)


def test_a_step_of_pruning_beside_commits_becomes_due_after_some_time() -> None:
    pace = busy_pace()
    earned_at = 10.0 + 100 / ROWS_PER_S

    assert not pace.is_due(earned_at - 0.01)
    assert pace.is_due(earned_at + 0.01)


def test_a_busy_store_prunes_more_jobs_than_end_in_it() -> None:
    pace = busy_pace()
    steps = 0

    for _ in range(250):
        pace.committed(40, 10.0)
        while pace.is_due(10.0):
            pace.stepped(2_000, 10.0)
            steps += 1

    assert 100 * steps == 1.25 * 250 * 40


async def test_pruning_beside_commits_takes_its_steps_after_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def prune(*what: Any) -> int:
        calls.append("prune")
        return 0

    async def commit(changes: Changes) -> None:
        calls.append("commit")
        await do_commit(changes)

    calls: list[str] = []
    async with running(path) as world:
        pace = world.engine._loop._committer._pace
        now = asyncio.get_running_loop().time()
        pace.committed(0, now)
        pace.stepped(0, now + 1_000)
        do_commit = world.store.commit
        monkeypatch.setattr(world.store, "prune", prune)
        monkeypatch.setattr(world.store, "commit", commit)
        pruning = asyncio.create_task(world.engine._maintenance.prune())
        await asyncio.wait([pruning], timeout=0.05)

        await world.submit()
        assert "prune" not in calls
        pace.committed(10_000_000, now)
        await world.submit()
        await pruning

    assert calls.count("prune") == 1
    assert calls[calls.index("prune") - 1] == "commit"
