"""Waits for the ends of jobs that another server of a cluster has meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from schedo.core.limits import MINUTE
from schedo.core.model import Job
from schedo.core.states import State
from schedo.errors import NotFound, StoreError
from tests.engine.test_ownership import Shards, sharing
from tests.engine.world import World
from tests.passes import one_pass

LONG_S = 10.0


class Moved(NamedTuple):
    world: World
    shards: Shards
    jobs: list[Job]
    waits: list[asyncio.Task[Job]]


@asynccontextmanager
async def waiting_for_moved(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Moved]:
    """Begin to wait for two jobs, the first of which then moves to another server."""
    monkeypatch.setattr("schedo.engine.moved_waits.LOOK_S", 0.001)
    async with sharing(path) as (world, shards):
        jobs = [await world.submit(delay_us=MINUTE) for _ in range(2)]
        waits = [asyncio.create_task(world.engine.wait(job.id, 60.0)) for job in jobs]
        await one_pass()
        shards.moved, shards.mine = {jobs[0].id}, {0}
        await world.engine._loop.restart(shards.change_shards)
        try:
            yield Moved(world, shards, jobs, waits)
        finally:
            for wait in waits:
                wait.cancel()


async def end_elsewhere(moved: Moved, monkeypatch: pytest.MonkeyPatch, job: Job | None) -> None:
    """End the first job; the store has this record of it then."""

    async def get_job(job_id: int) -> Job | None:
        assert job_id == moved.jobs[0].id
        return job

    monkeypatch.setattr(moved.world.engine.store, "get_job", get_job)
    moved.shards.ended = [each.id for each in moved.jobs]


async def test_a_wait_ends_when_another_server_has_ended_the_job(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting_for_moved(path, monkeypatch) as moved:
        moved.shards.failures = [StoreError("the database is away")]
        ended = moved.jobs[0].copy()
        ended.state = State.COMPLETED

        await end_elsewhere(moved, monkeypatch, ended)

        assert (await moved.waits[0]).state is State.COMPLETED
        assert not moved.waits[1].done()


async def test_a_wait_ends_for_a_job_that_is_gone_before_the_first_look(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(path) as (world, shards):
        job = await world.submit(delay_us=MINUTE)
        wait = asyncio.create_task(world.engine.wait(job.id, 3_600.0))
        await one_pass()

        async def find_no_job(*_: object) -> None:
            return None

        monkeypatch.setattr(shards, "shards_of_jobs", find_no_shard)
        monkeypatch.setattr(world.engine.store, "get_job", find_no_job)
        monkeypatch.setattr(world.engine, "find", find_nothing)
        shards.ended = [job.id]

        await world.engine._loop.restart(shards.change_shards)

        with pytest.raises(NotFound):
            async with asyncio.timeout(LONG_S):
                await wait


async def find_no_shard(job_ids: Sequence[int]) -> dict[int, int]:
    return {}


def find_nothing(job_id: int) -> None:
    """Find no record in memory."""


async def test_a_wait_for_a_job_that_another_server_has_ended_and_not_kept_finds_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting_for_moved(path, monkeypatch) as moved:
        await moved.world.engine.flush()
        monkeypatch.setattr(moved.world.engine._loop.scheduler, "find_job", lambda _: None)

        await end_elsewhere(moved, monkeypatch, None)

        with pytest.raises(NotFound):
            await moved.waits[0]
