"""The end of an embedded server that is cancelled: whatever it is at, the store is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schedo import Schedo
from schedo.engine.engine import Engine
from tests.app.example import LONG_S
from tests.passes import one_pass


async def run(app: Schedo) -> None:
    async with app:
        pass


async def test_a_program_that_is_cancelled_in_its_shutdown_still_closes_its_store(
    tmp_path: Path,
) -> None:
    leaving = asyncio.Event()

    async def lifespan(_: Schedo) -> AsyncIterator[None]:
        yield
        leaving.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(LONG_S):
        task = asyncio.create_task(run(Schedo(tmp_path / "jobs.db", lifespan=lifespan)))
        await leaving.wait()
        task.cancel()
        await asyncio.wait([task])

    assert task.cancelled()
    await run(Schedo(tmp_path / "jobs.db"))


async def test_a_program_that_is_cancelled_while_its_engine_stops_still_closes_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping, may_stop = asyncio.Event(), asyncio.Event()

    async def stop(engine: Engine) -> None:
        stopping.set()
        await may_stop.wait()
        await honest(engine)

    honest = Engine.stop
    async with asyncio.timeout(LONG_S):
        with monkeypatch.context() as patched:
            patched.setattr(Engine, "stop", stop)
            task = asyncio.create_task(run(Schedo(tmp_path / "jobs.db")))
            await stopping.wait()
            task.cancel()
            await one_pass()
            may_stop.set()
            await asyncio.wait([task])

        assert task.cancelled()
        await run(Schedo(tmp_path / "jobs.db"))
