"""A server that stops while no standby takes its store goes on, so that it can drain."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schedo.config import Config
from schedo.core.limits import HOUR
from schedo.core.model import JobSpec
from schedo.handover.client import read_status
from schedo.server import to_standby
from schedo.server.server import Server
from schedo.server.start import PLAIN_START
from schedo.systemd import Inherited, Notifier


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    config = Config(store=str(tmp_path / "jobs.db"), port=0)
    server = Server(config, PLAIN_START, lambda: config)
    await server.open()
    await server.attach()
    await server.bind(Inherited())
    await server.listen(Notifier({}))
    yield server
    await server.stop()


async def test_a_store_that_no_standby_takes_is_taken_back(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(to_standby, "LOCK_S", 0.0)
    before = server.engine.health().epoch

    await to_standby.pass_to_standby(server)

    assert server.replaced is None
    assert "the store was still free" in caplog.text
    await server.engine.submit([JobSpec("later", delay_us=HOUR)])
    assert (await read_status(f"{server.store.path}.ctl")).epoch == before + 1


async def test_without_a_standby_a_stop_changes_nothing(server: Server) -> None:
    before = server.engine.health().epoch

    await server.pass_to_standby()

    assert (server.replaced, server.engine.health().epoch) == (None, before)


async def test_a_server_that_does_not_serve_yet_may_keep_the_store(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(to_standby, "ACTIVE_S", 0.2)
    with await asyncio.to_thread(Path(f"{server.store.path}.lock").open, "rb") as next_holder:
        waiting = asyncio.create_task(asyncio.to_thread(fcntl.flock, next_holder, fcntl.LOCK_EX))

        await to_standby.pass_to_standby(server)

        await waiting
        assert server.replaced is not None
