"""The stop of the operations, whatever they do at that moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schedo.core.bulk import BulkAction
from schedo.core.limits import BULK_FAILURES_MAX, HOUR
from schedo.engine import bulk_runner
from tests.engine.test_bulk_runner import begin, fail_searches, submit
from tests.engine.world import running


async def test_a_stop_in_the_moment_in_which_an_operation_begins_is_no_wait(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_runner, "_RETRY_S", (3_600.0,) * (BULK_FAILURES_MAX - 1))
    async with running(path) as world:
        runner = world.engine.bulk
        await submit(world, 10, delay_us=HOUR)
        fail_searches(monkeypatch, world, [ValueError("a bug")])
        await begin(world, BulkAction.CANCEL, task="work")
        while not runner._retry_at:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)

        runner._wake.set()
        async with asyncio.timeout(5):
            await runner.stop()
