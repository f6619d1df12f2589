"""The periodic tasks of the engine: an error in one of them does not end it."""

import asyncio
from pathlib import Path

import pytest

from schedo.engine import maintenance
from tests.engine.world import running


async def test_a_sweep_that_fails_is_logged_and_the_next_one_comes(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(maintenance, "SWEEP_S", 0.01)
    is_first, has_come = True, asyncio.Event()

    def note(*_: object) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            raise ValueError("a bug")
        has_come.set()

    async with running(path) as world:
        monkeypatch.setattr(world.engine._maintenance._unserved, "note", note)
        async with asyncio.timeout(10):
            await has_come.wait()

    assert "a sweep failed" in caplog.text
