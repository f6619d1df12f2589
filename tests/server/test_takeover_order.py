"""A server that takes over starts jobs, then accepts requests, then looks for old commands."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from schedo.clock import SystemClock
from schedo.config import Config
from schedo.core.leases import Lease, StopRequest
from schedo.core.model import JobSpec
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.engine import Engine
from schedo.handover.listeners import ListenerPair
from schedo.server.server import Server
from schedo.server.start import PLAIN_START
from schedo.server.takeover import Takeover
from schedo.store.sqlite.store import SqliteStore
from schedo.systemd import Inherited, Notifier

HELD_S = 30.0  # much longer than the test takes


class Reaper:
    """The search for old commands, which ends when the test says so."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.has_begun = threading.Event()

    def reap(self) -> int:
        self.has_begun.set()
        self.may_end.wait(HELD_S)
        return 0


@pytest.fixture
def reaper() -> Reaper:
    return Reaper()


@pytest.fixture
async def server(
    tmp_path: Path, reaper: Reaper, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Server]:
    config = Config(store=str(tmp_path / "jobs.db"), port=0, allow_shell=True)
    server = Server(config, PLAIN_START, lambda: config)
    monkeypatch.setattr(server.workers._orphans, "reap", reaper.reap)
    listener = socket.create_server(("127.0.0.1", 0))
    server.takeover = Takeover(ListenerPair([listener]), 1, time.monotonic())
    yield server
    reaper.may_end.set()
    await server.drain()
    await server.stop()


async def ready(port: int) -> bytes:
    """Return the first line of the response to GET /readyz."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    line = await reader.readline()
    writer.close()
    return line


class Batches:
    """The transport of a worker that sends the leases of a pass of the event loop together."""

    def __init__(self) -> None:
        self.sent: list[Lease] = []

    def start(self, lease: Lease) -> None:
        asyncio.get_running_loop().call_soon(self.sent.append, lease)

    def stop(self, stop: StopRequest) -> None:
        raise AssertionError("nothing is stopped")


async def test_the_leases_of_the_first_turn_are_sent_before_the_server_does_anything_else(
    server: Server, tmp_path: Path
) -> None:
    before = Engine(SqliteStore(tmp_path / "jobs.db"), SystemClock())
    await before.start()
    await before.submit([JobSpec("noop")])
    await before.stop()
    batches = Batches()
    server.engine.attach(WorkerSpec("process-1", 1, frozenset({"noop"})), batches)

    async def sent() -> int:
        return len(batches.sent)

    await server.open()

    assert await asyncio.create_task(sent()) == 1
    await server.bind(Inherited())  # so that the stop closes the listener


async def test_requests_are_answered_while_the_commands_of_the_dead_server_are_looked_for(
    server: Server, reaper: Reaper
) -> None:
    await server.open()
    assert not reaper.has_begun.is_set()
    await server.bind(Inherited())
    await server.attach()
    assert not reaper.has_begun.is_set()
    port = server._bound[0].getsockname()[1]
    listening = asyncio.create_task(server.listen(Notifier({})))
    await asyncio.to_thread(reaper.has_begun.wait)

    assert await ready(port) == b"HTTP/1.1 200 OK\r\n"
    answers: Any = await server.engine.submit([JobSpec("shell", b'{"command": "exit 0"}')])
    job_id = answers[0].job.id
    assert (await server.engine.get(job_id)).state is State.QUEUED

    reaper.may_end.set()
    assert await listening == port
    ended = await server.engine.wait(job_id, HELD_S)
    assert ended.state is State.COMPLETED


async def test_without_a_thread_for_it_the_commands_are_looked_for_at_once(
    server: Server, reaper: Reaper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object, call: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    await server.open()
    await server.bind(Inherited())
    await server.attach()
    port = server._bound[0].getsockname()[1]
    reaper.may_end.set()
    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "run_in_executor", refuse)
        await server.listen(Notifier({}))

    assert reaper.has_begun.is_set()
    assert await ready(port) == b"HTTP/1.1 200 OK\r\n"
