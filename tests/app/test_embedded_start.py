"""The start of an embedded server: jobs of its store run before the start has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schedo import Schedo
from schedo.app import embedded
from schedo.errors import StoreFull
from tests.app.example import LONG_S, Example, double


async def test_a_start_that_fails_ends_the_attempts_that_have_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Example(tmp_path)
    async with before.app, asyncio.timeout(LONG_S):
        await before.hang.enqueue()
        await before.running.wait()
    seen: list[str] = []
    running = asyncio.Event()

    async def lifespan(_: Schedo) -> AsyncIterator[None]:
        yield
        seen.append("shutdown")

    app = Schedo(tmp_path / "jobs.db", lifespan=lifespan)

    @app.task(name="_hang")
    async def hang() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("the handler ends")

    async def fail(*_: object, **__: object) -> None:
        await running.wait()
        raise StoreFull("the disk is full")

    monkeypatch.setattr(embedded, "declare_schedules", fail)
    async with asyncio.timeout(LONG_S):
        with pytest.raises(StoreFull):
            async with app:
                pass

    assert seen == ["the handler ends", "shutdown"]


async def test_a_job_that_runs_before_the_end_of_the_start_can_enqueue_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Example(tmp_path)
    async with before.app, asyncio.timeout(LONG_S):
        await before.hang.enqueue()
        await before.running.wait()
    app = Schedo(tmp_path / "jobs.db")
    twice = app.task(double)
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @app.task(name="_hang")
    async def enqueue() -> None:
        try:
            ended.set_result(await (await twice.enqueue(4)).result())
        except RuntimeError as error:
            ended.set_exception(error)

    async def wait(*_: object, **__: object) -> None:
        await ended

    monkeypatch.setattr(embedded, "declare_schedules", wait)
    async with asyncio.timeout(LONG_S), app:
        assert await ended == 8
    assert not app.is_running
