"""Operations on many jobs, some of which move to another server of a cluster during a step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schedo.core.bulk import BulkAction, BulkOperation
from schedo.core.bulk_commands import BeginBulk, Changed
from schedo.core.bulk_undo import JobBefore
from schedo.core.job_filter import JobFilter
from schedo.core.limits import HOUR
from schedo.core.states import State
from schedo.errors import Unavailable
from tests.engine.test_bulk_runner import begin, ended, submit
from tests.engine.test_ownership import sharing
from tests.engine.world import T0, World, running
from tests.passes import one_pass

OWN = 20
MOVED = (7, 8, 9)  # jobs that were this server's when the step was divided
MOVED_BEFORE = tuple(JobBefore(job_id, T0, State.SCHEDULED, 0, T0) for job_id in MOVED)


class Others:
    """The other servers, one of which gets jobs of this one during the first step."""

    def __init__(self, world: World, *, is_late: bool) -> None:
        """is_late: the step comes to the engine while that changes its shards, not after it."""
        self._world, self._is_late = world, is_late
        self._moving: asyncio.Task[None] | None = None

    async def change(
        self, operation: BulkOperation, ids: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Changed]:
        if self._moving is None:
            await self.move()
            return (*ids, *MOVED), Changed()
        return tuple(each for each in ids if each not in MOVED), Changed(done=len(MOVED))

    async def put_back(self, jobs: tuple[JobBefore, ...]) -> tuple[tuple[JobBefore, ...], Changed]:
        if self._moving is None:
            await self.move()
            return (*jobs, *MOVED_BEFORE), Changed()
        own = tuple(each for each in jobs if each not in MOVED_BEFORE)
        return own, Changed(done=len(jobs) - len(own))

    async def move(self) -> None:
        loop, has_begun = self._world.engine._loop, asyncio.Event()

        async def change() -> None:
            has_begun.set()
            while self._is_late and not loop._held_back:
                await one_pass()

        self._moving = asyncio.create_task(loop.restart(change))
        await (has_begun.wait() if self._is_late else self._moving)


@asynccontextmanager
async def with_jobs(path: Path) -> AsyncIterator[World]:
    async with running(path) as world:
        await submit(world, OWN, delay_us=HOUR)
        yield world


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_job_that_moves_during_a_step_is_changed_by_its_new_owner(
    path: Path, is_late: bool
) -> None:
    async with with_jobs(path) as world:
        world.engine.bulk.others = Others(world, is_late=is_late)

        operation = await ended(world, (await begin(world, BulkAction.CANCEL, task="work")).id)

    assert (operation.done, operation.skipped) == (OWN + len(MOVED), 0)


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_job_that_moves_during_a_step_of_an_undo_is_put_back_by_its_new_owner(
    path: Path, is_late: bool
) -> None:
    async with with_jobs(path) as world:
        done = await ended(world, (await begin(world, BulkAction.CANCEL, task="work")).id)
        world.engine.bulk.others = Others(world, is_late=is_late)

        undone = await ended(world, (await world.engine.bulk.undo(done.id)).id)

    assert (undone.done, undone.skipped) == (OWN + len(MOVED), 0)


class InDoubt:
    """No other server has jobs, and this one doubts for a moment whether it has any."""

    def __init__(self, world: World) -> None:
        self._world, self.asked = world, 0

    async def change(
        self, operation: BulkOperation, ids: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Changed]:
        self.asked += 1
        loop = self._world.engine._loop
        if self.asked == 1:
            loop.suspend()
            loop.loop.call_soon(loop.resume)
        return ids, Changed()

    async def put_back(self, jobs: tuple[JobBefore, ...]) -> tuple[tuple[JobBefore, ...], Changed]:
        raise NotImplementedError


async def test_a_step_that_is_refused_although_no_job_moves_is_postponed(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("schedo.engine.bulk_runner._CLOSED_S", 0.0)
    async with with_jobs(path) as world:
        others = world.engine.bulk.others = InDoubt(world)

        operation = await ended(world, (await begin(world, BulkAction.CANCEL, task="work")).id)

    assert (operation.done, others.asked) == (OWN, 2)
    assert "the operations are postponed" in caplog.text


async def test_a_server_without_a_shard_begins_no_operation(path: Path) -> None:
    async with sharing(path) as (world, shards):
        shards.mine.clear()

        with pytest.raises(Unavailable, match="has just moved"):
            await world.engine.bulk.begin(BeginBulk(BulkAction.CANCEL, JobFilter(task="work")))

        assert await world.engine.bulk.all() == []
