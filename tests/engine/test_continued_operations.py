"""A server carries out every operation on many jobs that its store has."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from schedo.core.bulk import BulkAction, BulkOperation, BulkState
from schedo.core.bulk_commands import BeginBulk, Changed, StepBulk
from schedo.core.job_filter import JobFilter
from schedo.core.limits import HOUR
from schedo.core.shards import SHARDS
from schedo.errors import StoreError
from tests.engine.test_bulk_runner import CANCEL, begin, ended, states, submit
from tests.engine.test_cluster_clocks import Server
from tests.engine.world import T0, World, recovered, running, spec


async def test_an_operation_goes_on_when_its_server_has_left(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (Server(postgres_store_url, T0, boot) for boot in (1, 2))
    searching = asyncio.Event()

    async def search(*_: Any) -> Any:
        searching.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(before.store, "find_job_ids", search)
    async with AsyncExitStack() as stack:
        for server in (before, after):
            await server.engine.start()
        stack.push_async_callback(after.engine.stop)
        await before.owns(SHARDS // 2)
        await before.engine.submit([spec(delay_us=HOUR) for _ in range(50)])
        begun = await before.engine.bulk.begin(BeginBulk(BulkAction.CANCEL, JobFilter(task="work")))
        await searching.wait()

        await before.engine.stop()
        await after.owns(SHARDS)

        async with asyncio.timeout(20):
            while (await after.engine.bulk.all())[0].is_active:
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)
        [found] = await after.engine.bulk.all()
        assert (found.id, found.state, found.done) == (begun.id, BulkState.DONE, 50)


async def test_an_operation_that_is_stored_although_its_commit_failed_is_carried_out(
    path: Path,
) -> None:
    async with running(path) as world:
        await submit(world, 300, delay_us=HOUR)
        world.store.fail_after(StoreError("it flickered"))
        with pytest.raises(StoreError):
            await begin(world, CANCEL, task="work")
        await recovered(world)

        [found] = await world.engine.bulk.all()
        operation = await ended(world, found.id)

        assert (operation.state, operation.done) == (BulkState.DONE, 300)


class GoneOnElsewhere:
    """The operation has been at another server, which took ten jobs, during the first step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._has_been_away = False

    async def change(
        self, operation: BulkOperation, ids: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Changed]:
        if not self._has_been_away:
            self._has_been_away = True
            step = StepBulk(operation.id, operation.before, ids[:10], ids[9], Changed())
            await self._world.engine._loop.try_enqueue(step)
        return ids, Changed()


async def test_an_operation_that_comes_back_from_another_server_misses_no_job(path: Path) -> None:
    async with running(path) as world:
        await submit(world, 300, delay_us=HOUR)
        world.engine.bulk.others = GoneOnElsewhere(world)  # type: ignore[assignment]

        operation = await ended(world, (await begin(world, CANCEL, task="work")).id)

        assert await states(world) == {"cancelled": 300}
        assert (operation.state, operation.done) == (BulkState.DONE, 300)


class MovedAway:
    """The operation has moved to another server since the last step began."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.has_moved = asyncio.Event()

    async def change(
        self, operation: BulkOperation, ids: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Changed]:
        if not self.has_moved.is_set():
            self._world.engine._loop.scheduler._bulk.restore([])
            self.has_moved.set()
        return ids, Changed()


async def test_an_operation_that_moves_to_another_server_has_not_failed(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(path) as world:
        await submit(world, 10, delay_us=HOUR)
        others = world.engine.bulk.others = MovedAway(world)  # type: ignore[assignment]
        await begin(world, CANCEL, task="work")
        await others.has_moved.wait()

        await ended(world, (await begin(world, CANCEL, task="work")).id)

    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []
