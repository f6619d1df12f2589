"""A server whose start ends when its engine runs, before it accepts requests."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from schedo.config import Config
from schedo.server.server import Server
from schedo.server.start import PLAIN_START
from schedo.store.sqlite.store import SqliteStore


async def test_a_signal_stops_the_engine_before_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(store=str(tmp_path / "jobs.db"))
    server = Server(config, PLAIN_START, lambda: config)
    has_begun = asyncio.Event()

    async def wait() -> None:
        """Wait, as for a database that does not answer."""
        has_begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(server.others, "open", wait)
    opening = asyncio.create_task(server.shutdown.interrupts(server.open()))
    await has_begun.wait()
    server.shutdown.request()

    assert not await opening
    await server.leave()
    assert server.engine.health().reasons == ["the server has stopped"]
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    again = SqliteStore(config.store)
    await again.open()
    await again.close()
