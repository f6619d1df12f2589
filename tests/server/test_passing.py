"""A server whose store does not pass to another process serves on, whatever the reason."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from schedo.config import Config
from schedo.core.limits import HOUR
from schedo.core.model import JobSpec
from schedo.errors import StoreFull, StoreUnsuitable
from schedo.handover.client import read_status
from schedo.handover.command import Command
from schedo.handover.messages import Hello, Message, Ready, UpgradeFailed
from schedo.handover.successor import Successor
from schedo.server import to_standby
from schedo.server.passing import pass_store
from schedo.server.server import Server
from schedo.server.start import PLAIN_START, Start
from schedo.server.upgrade import upgrade
from schedo.systemd import Inherited, Notifier
from schedo.tasks.shell.orphans import Orphans
from tests.handover.active import open_descriptors


class Recipient:
    """A process that does not take the store."""

    pid = None

    def __init__(self, error: BaseException) -> None:
        self._error = error
        self.has_given_up = False
        self.worker = ""  # the name of the old process

    async def take(self, held_at: float, worker: str) -> None:
        self.worker = worker
        raise self._error

    async def give_up(self) -> None:
        self.has_given_up = True


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    config = Config(store=str(tmp_path / "jobs.db"), port=0, allow_shell=True)
    server = Server(config, PLAIN_START, lambda: config)
    await server.workers.prepare()
    await server.open()
    await server.attach()
    await server.bind(Inherited())
    await server.listen(Notifier({}))
    yield server
    await server.stop()


async def check_served(server: Server) -> None:
    """Check that it accepts jobs, requests and clients of its control socket."""
    async with asyncio.timeout(5):
        await server.engine.submit([JobSpec("later", delay_us=HOUR)])
        reader, writer = await asyncio.open_connection(*server.http.sockets[0].getsockname())
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        assert (await read_status(f"{server.store.path}.ctl")).handover is None


async def run_command(server: Server) -> None:
    submitted: Any = await server.engine.submit([JobSpec("shell", b'{"command":"true"}')])
    await server.engine.wait(submitted[0].job.id, 10)


@pytest.mark.parametrize(
    "error", [UpgradeFailed("no"), RuntimeError("can't start new thread"), StoreUnsuitable("no")]
)
async def test_an_error_after_the_freeze_is_the_reason_and_the_server_serves_on(
    server: Server, error: Exception
) -> None:
    recipient = Recipient(error)

    with pytest.raises(UpgradeFailed, match=str(error)):
        await pass_store(server, recipient)

    assert recipient.has_given_up
    await check_served(server)


async def test_a_passing_that_is_cancelled_is_taken_back(server: Server) -> None:
    with pytest.raises(asyncio.CancelledError):
        await pass_store(server, Recipient(asyncio.CancelledError()))

    await check_served(server)


@pytest.mark.parametrize("is_taken", [True, False])
async def test_a_process_has_a_name_that_no_older_process_has(
    server: Server, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    monkeypatch.setattr(server.engine.sessions, "held_by", lambda _: [1] * is_taken)
    recipient = Recipient(UpgradeFailed("no"))

    with pytest.raises(UpgradeFailed, match="no"):
        await pass_store(server, recipient)

    assert recipient.worker == f"handover-{os.getpid()}" + "-1" * is_taken


async def test_a_list_of_commands_that_was_removed_does_not_disturb_the_passing(
    server: Server,
) -> None:
    await run_command(server)
    listed = f"{server.store.path}.children"
    os.unlink(listed)

    with pytest.raises(UpgradeFailed, match="no"):
        await pass_store(server, Recipient(UpgradeFailed("no")))

    assert os.path.exists(listed)  # noqa: ASYNC240  # it blocks nothing
    await check_served(server)


async def test_a_list_of_commands_that_cannot_be_renamed_ends_the_passing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Orphans) -> None:
        raise PermissionError("not allowed")

    monkeypatch.setattr(Orphans, "leave", fail)
    recipient = Recipient(AssertionError("it is not asked"))

    with pytest.raises(UpgradeFailed, match="not allowed"):
        await pass_store(server, recipient)

    await check_served(server)


async def test_a_standby_gets_its_time_if_the_locks_cannot_be_tried(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = iter([StoreUnsuitable("no descriptor is left"), OSError("no"), None])
    hold_again = server.file_store.hold_again

    def hold() -> bool:
        error = next(tries)
        if error is not None:
            raise error
        return hold_again()

    monkeypatch.setattr(to_standby, "LOCK_S", 0.0)
    monkeypatch.setattr(server.file_store, "hold_again", hold)

    await to_standby.pass_to_standby(server)

    assert next(tries, "all are used") == "all are used"
    await check_served(server)


async def test_an_unexpected_error_of_an_upgrade_by_signal_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    command = Command([sys.executable], {}, "/")
    config = Config(store=str(tmp_path / "jobs.db"))
    server = Server(config, Start(command=command), lambda: config)

    def fail(_: Command) -> Successor:
        raise ValueError("a bug")

    monkeypatch.setattr(Successor, "start", fail)

    server.upgrades.begin()
    async with asyncio.timeout(5):
        while "a bug" not in caplog.text:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)

    await server.leave()


class ReadyProcess:
    """A new process that is ready for the store."""

    pid = 123_456_789
    was_killed = False

    def __init__(self, server: Server) -> None:
        store = server.store.path or ""
        self._hello = Hello(role="successor", version="1", schema=1, pid=self.pid, store=store)

    async def expect(self, kind: type[Message]) -> Message:
        return self._hello if kind is Hello else Ready()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Do nothing."""

    async def kill(self) -> None:
        self.was_killed = True


async def test_a_log_that_cannot_be_copied_is_the_reason_and_the_server_serves_on(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = ReadyProcess(server)

    async def fail() -> None:
        raise StoreFull("no room on the disk")

    monkeypatch.setattr(Successor, "start", lambda _: process)
    monkeypatch.setattr(server.store, "shorten_log", fail)

    with pytest.raises(UpgradeFailed, match="no room on the disk"):
        await upgrade(server, Command([], {}, "/"), 5.0)

    assert process.was_killed
    await check_served(server)


async def test_a_new_process_is_ended_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio, "to_thread", refuse)
    processes: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        processes.append(popen(*arguments, **options))  # type: ignore[call-overload]
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    successor = Successor.start(Command(["/bin/sleep", "60"], {}, "/"))

    await successor.kill()

    assert processes[0].returncode == -9


@pytest.mark.parametrize("call", ["dup", "memfd_create"])
def test_a_new_process_that_cannot_be_started_leaves_no_descriptor_open(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    before = open_descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        with pytest.raises(OSError, match="Too many open files"):
            Successor.start(Command(["/bin/true"], {}, "/"))

    assert open_descriptors() == before


# The list of commands itself.


def make_list(tmp_path: Path) -> tuple[Orphans, Path]:
    path = tmp_path / "children"
    orphans = Orphans(path)
    orphans.announce("mark")
    return orphans, path


def test_a_removed_list_is_written_anew_under_the_name_of_the_process(tmp_path: Path) -> None:
    orphans, path = make_list(tmp_path)
    path.unlink()

    orphans.leave()

    (left,) = tmp_path.iterdir()
    assert left != path
    assert "+ mark" in left.read_text()
    assert Orphans(path).reap_left() == 0  # it is locked, so its process lives
    orphans.close()


def test_a_removed_list_is_written_anew_under_the_ordinary_name(tmp_path: Path) -> None:
    orphans, path = make_list(tmp_path)
    orphans.leave()
    (left,) = tmp_path.iterdir()
    left.unlink()

    orphans.come_back()

    assert list(tmp_path.iterdir()) == [path]
    assert "+ mark" in path.read_text()
    orphans.close()


def test_a_process_that_has_not_left_keeps_its_commands_when_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphans, path = make_list(tmp_path)

    def fail(*_: object) -> None:
        raise PermissionError("not allowed")

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", fail)
        with pytest.raises(PermissionError):
            orphans.leave()
    monkeypatch.setattr("schedo.tasks.shell.orphans._kill_listed", fail)

    orphans.come_back()

    assert "+ mark" in path.read_text()
    orphans.close()
