"""The numbers of waiting jobs: they follow each commit, and outlive restarts and recoveries."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from schedo.core.leases import Failed
from schedo.core.limits import SECOND
from schedo.core.model import Failure
from schedo.errors import StoreError
from schedo.store.base import Waiting
from schedo.store.sqlite import waiting_count
from schedo.store.sqlite.connection import Connection
from tests.engine.world import THRICE, World, running
from tests.store.files import Crashed
from tests.stores import needs_sqlite

FAILED = Failed(Failure("boom", "it broke"))


async def counts(world: World) -> dict[str, dict[str, int]]:
    """Return the numbers of waiting jobs by queue and state."""
    await world.engine.flush()
    return {each.queue.name: each.waiting for each in await world.engine.list_queues()}


async def test_each_change_of_a_job_is_counted(path: Path) -> None:
    async with running(path) as world:
        later = await world.submit(delay_us=SECOND)
        assert await counts(world) == {"default": {"scheduled": 1}}
        await world.engine.pause_queue("default")
        await world.submit()
        await world.submit(queue="mail", task="other")
        assert await counts(world) == {
            "default": {"scheduled": 1, "queued": 1},
            "mail": {"queued": 1},
        }
        await world.engine.cancel(later.id)
        assert (await counts(world))["default"] == {"queued": 1}
        await world.engine.resume_queue("default")
        assert (await counts(world))["default"] == {}


async def test_a_job_is_counted_while_it_waits_for_its_retry(path: Path) -> None:
    async with running(path) as world:
        await world.submit(retry=THRICE)
        world.worker.end(FAILED)

        assert await counts(world) == {"default": {"retrying": 1}}


@needs_sqlite
async def test_counts_are_right_after_a_crash(path: Path) -> None:
    async with running(path) as world:
        await world.engine.pause_queue("mail")
        for _ in range(3):
            await world.submit(queue="mail")
        await world.submit(delay_us=SECOND)
        crashed = Crashed(path)

    async with running(crashed.path, worker="process-2") as after:
        assert await counts(after) == {"default": {"scheduled": 1}, "mail": {"queued": 3}}
        await after.run_until(after.clock.now() + SECOND)
        assert await counts(after) == {"default": {}, "mail": {"queued": 3}}


@needs_sqlite
async def test_overdue_jobs_that_the_store_queues_itself_are_counted(path: Path) -> None:
    async with running(path, window=4) as world:
        await world.engine.pause_queue("default")
        for _ in range(40):
            await world.submit(delay_us=SECOND)
        crashed = Crashed(path)
        now = world.clock.now()

    async with running(crashed.path, window=4, now=now + 60 * SECOND) as after:
        await after.run_until(now + 61 * SECOND)

        assert await counts(after) == {"default": {"queued": 40}}


@needs_sqlite
async def test_changes_during_the_count_of_the_store_are_counted_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:
        await world.submit(delay_us=SECOND)
    go_on = asyncio.Event()
    count = waiting_count._count

    async def count_late(connection: Connection) -> Waiting:
        await go_on.wait()
        return await count(connection)

    monkeypatch.setattr(waiting_count, "_count", count_late)
    async with running(path, worker="process-2") as world:
        await world.submit(delay_us=SECOND)
        listing = asyncio.ensure_future(counts(world))
        await world.submit(delay_us=SECOND)
        go_on.set()

        assert await listing == {"default": {"scheduled": 3}}


@needs_sqlite
async def test_a_count_that_a_change_of_the_shards_has_cut_begins_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:
        await world.submit(delay_us=SECOND)
    has_begun = asyncio.Event()
    count = waiting_count._count

    async def count_forever(connection: Connection) -> Waiting:
        has_begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def change() -> None:
        monkeypatch.setattr(waiting_count, "_count", count)

    monkeypatch.setattr(waiting_count, "_count", count_forever)
    async with running(path, worker="process-2") as world, asyncio.timeout(20):
        listing = asyncio.ensure_future(counts(world))
        await has_begun.wait()

        await world.engine._loop.restart(change)

        assert await listing == {"default": {"scheduled": 1}}


@needs_sqlite
async def test_a_count_that_fails_is_an_error_for_each_caller(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(connection: Connection) -> Waiting:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(waiting_count, "_count", fail)
    async with running(path) as world:
        for _ in range(2):
            with pytest.raises(StoreError, match="cannot be counted: disk I/O error"):
                await counts(world)
        assert (await world.engine.gauges()).queues == {}
