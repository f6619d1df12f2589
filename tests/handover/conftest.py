"""An active server for the tests of the control socket; they run on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from tests.handover.active import FakeActive, Served, serving

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Use both loops: they watch descriptors in their own ways."""
    return LOOPS


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    with FakeActive() as active:
        async with serving(active, tmp_path / "jobs.db") as served:
            yield served
