"""A signal to stop that comes while the store passes to a new process stops both processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from schedo.config import Config
from schedo.handover.command import Command
from schedo.server import upgrade as upgrade_module
from schedo.server.server import Server
from schedo.server.start import Start

NEW_PID = 123_456_789


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    config = Config(store=str(tmp_path / "jobs.db"))
    server = Server(config, Start(command=Command(["/bin/false"], {}, "/")), lambda: config)
    yield server
    await server.leave()


class Passing:
    """An upgrade that is under way."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server = server
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.get_running_loop().create_future()
        self.passes_when_asked_to_stop = True
        self.signals: list[tuple[int, int]] = []
        self.graces = 0
        monkeypatch.setattr(upgrade_module, "upgrade", self._upgrade)
        monkeypatch.setattr(server, "begin_grace", self._begin_grace)

    async def _upgrade(self, *_: object) -> None:
        self.has_begun.set()
        try:
            await self.may_end
        finally:
            if self.passes_when_asked_to_stop:
                self.pass_store()

    def pass_store(self) -> None:
        self._server.replaced = cast("Any", self)
        self._server.upgrades.main_pid = NEW_PID

    def kill(self, pid: int, number: int) -> None:
        self.signals.append((pid, number))

    def _begin_grace(self) -> None:
        self.graces += 1


@pytest.fixture
async def passing(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Passing]:
    passing = Passing(server, monkeypatch)
    running = asyncio.create_task(server.upgrades.run(5.0))
    await passing.has_begun.wait()
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", passing.kill)
        yield passing
    await asyncio.gather(running, return_exceptions=True)


async def test_the_new_process_stops_if_the_signal_came_before_it_was_active(
    server: Server, passing: Passing
) -> None:
    server.shutdown.request()

    await server.upgrades.stop()

    assert passing.signals == [(NEW_PID, signal.SIGTERM)]
    assert passing.graces == 1


async def test_the_new_process_serves_on_if_it_was_active_before(
    server: Server, passing: Passing
) -> None:
    passing.pass_store()
    stopping = asyncio.create_task(server.upgrades.stop())
    passing.may_end.set_result(None)  # the stop runs first

    await stopping

    assert (passing.signals, passing.graces) == ([], 0)


async def test_an_upgrade_that_has_not_passed_the_store_is_given_up(
    server: Server, passing: Passing
) -> None:
    passing.passes_when_asked_to_stop = False

    await server.upgrades.stop()

    assert (passing.signals, passing.graces) == ([], 0)
    assert server.replaced is None
