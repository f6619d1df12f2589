"""A standby: what it gets of the active server, and what it does when that is silent."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from schedo.errors import Invalid
from schedo.handover import socket_file
from schedo.handover.client import read_status
from schedo.handover.fencing import CannotFence, Fence
from schedo.handover.link import Link, LinkRefused
from schedo.handover.listeners import ListenerPair, close_sockets
from schedo.handover.standby import Standby
from tests.handover.active import (
    SCHEMA,
    FakeActive,
    Served,
    make_status,
    no_notes,
    serving,
    take_all,
)

# A process that listens on a control socket, signs a lock file, and answers nothing.
SILENT = """
import os, sys
from schedo.handover import socket_file
path, holder = sys.argv[1:]
sock = socket_file.listen(path + ".ctl")
with open(path + ".lock", "w") as lock:
    lock.write(f"pid {holder or os.getpid()} on host\\n")
print("listens", flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def standing_by(
    path: str,
    find_notes: Callable[[Sequence[str]], Awaitable[list[str]]] = no_notes,
    **status: object,
) -> AsyncIterator[Standby]:
    standby = Standby(path, SCHEMA, make_status(**status), find_notes, take_all)
    running = asyncio.create_task(standby.run())
    try:
        yield standby
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        standby.listeners.close()


@contextmanager
def silent_server(path: Path, holder: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run the process that answers nothing; holder: the pid in the lock file, by default its."""
    with subprocess.Popen(
        [sys.executable, "-c", SILENT, str(path), holder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"
        try:
            yield process
        finally:
            process.kill()


async def until(check: Callable[[], bool]) -> None:
    """Let the loop run until the check holds."""
    async with asyncio.timeout(20):
        while not check():
            await asyncio.to_thread(os.sched_yield)


async def test_a_standby_has_the_listener_and_the_number_of_take_overs(served: Served) -> None:
    async with standing_by(served.path) as standby:
        await until(lambda: bool(standby.listeners.http))

        address = served.active.sockets[0].getsockname()
        assert [sock.getsockname() for sock in standby.listeners.http] == [address]
        assert standby.takeovers == 2


async def test_a_standby_reports_that_it_is_warm(served: Served) -> None:
    async def find_note(found: Sequence[str]) -> list[str]:
        return [f"not {found[0]}"]

    async with standing_by(served.path, find_note) as standby:
        await until(lambda: bool(standby._status.notes))
        standby.note_warm(123.0)
        (seen,) = (await read_status(served.control_path)).standbys

    port = served.active.sockets[0].getsockname()[1]
    assert (seen.is_warm, seen.warmed_ms, seen.notes) == (True, 123.0, [f"not 127.0.0.1:{port}"])


async def test_a_standby_is_registered_while_it_waits_for_a_name_server(served: Served) -> None:
    async def find_none(found: Sequence[str]) -> list[str]:
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        return await answer

    async with standing_by(served.path, find_none) as standby:
        await until(lambda: bool(standby.listeners.http))
        standby.note_warm(123.0)
        (seen,) = (await read_status(served.control_path)).standbys

    assert (seen.is_warm, seen.notes) == (True, [])


async def test_a_standby_registers_at_the_next_active_server_and_keeps_its_listener(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    with FakeActive() as first, FakeActive() as second:
        async with standing_by(str(path)) as standby:
            async with serving(first, path):
                await until(lambda: bool(standby.listeners.http))
            kept = [sock.getsockname() for sock in standby.listeners.http]
            assert kept == [first.sockets[0].getsockname()]
            async with serving(second, path):
                await until(lambda: second.counts == [1])
                await until(lambda: standby.listeners.http[0].getsockname() != kept[0])


async def test_a_standby_waits_for_a_server_that_has_no_control_socket_yet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeActive() as active:
        async with standing_by(f"{tmp_path}/jobs.db"):
            caplog.set_level("INFO")
            await until(lambda: "no server answers at" in caplog.text)
            async with serving(active, tmp_path / "jobs.db"):
                await until(lambda: active.counts == [1])

    assert caplog.text.count("no server answers at") == 1


async def test_a_silent_server_is_stuck_until_it_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.handover.watch.STUCK_AFTER_S", 0.01)
    path = str(tmp_path / "jobs.db")
    with FakeActive() as active, socket_file.listen(path + ".ctl") as listening:
        async with standing_by(path):
            await until(lambda: f"(pid {os.getpid()}) is stuck" in caplog.text)
            connection = (await asyncio.get_running_loop().sock_accept(listening))[0]
            connection.close()
            os.unlink(path + ".ctl")
            async with serving(active, tmp_path / "jobs.db"):
                await until(lambda: active.counts == [1])


async def test_a_stuck_server_is_killed_by_a_standby_that_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jobs.db"
    with silent_server(path) as process:
        async with standing_by(str(path), kill_stuck_s=0.01):
            assert await asyncio.to_thread(process.wait, 20) == -9

    assert f"killed the active server (pid {process.pid})" in caplog.text


async def test_a_server_that_does_not_hold_the_store_is_not_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jobs.db"
    with silent_server(path, holder="1") as process:
        async with standing_by(str(path), kill_stuck_s=0.01):
            await until(lambda: "cannot be killed" in caplog.text)
        assert process.poll() is None

    assert "the lock file names pid 1" in caplog.text


async def test_a_pid_that_is_used_again_is_not_killed(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with silent_server(path) as process:
        link = Link(socket_file.connect(f"{path}.ctl"))
        fence = Fence(link, f"{path}.lock")
        had_ended = fence.has_ended
        process.kill()
        await asyncio.to_thread(process.wait, 20)

        fence.kill()  # the pidfd is still of the process that has ended
        assert (had_ended, fence.has_ended) == (False, True)
        with pytest.raises(CannotFence, match=r"cannot be opened|has just ended"):
            Fence(link, f"{path}.lock")
    fence.close()
    link.close()


async def test_a_listener_without_streams_is_refused(served: Served) -> None:
    strange = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    strange.bind("")
    strange.listen()
    close_sockets(served.active.sockets)
    served.active.sockets[:] = [strange]
    async with standing_by(served.path) as standby:
        await until(lambda: 0 in served.active.counts)
        assert standby.listeners.http == ()


async def test_a_standby_that_must_not_have_the_listeners_ends_with_the_reason(
    served: Served,
) -> None:
    def refuse(_: ListenerPair) -> None:
        raise Invalid("without a token")

    standby = Standby(served.path, SCHEMA, make_status(), no_notes, refuse)

    with pytest.raises(Invalid, match="without a token"):
        await standby.run()
    standby.listeners.close()


async def test_a_standby_that_is_refused_ends_with_the_reason(served: Served) -> None:
    standby = Standby(served.path, SCHEMA - 1, make_status(), no_notes, take_all)

    with pytest.raises(LinkRefused, match="the store needs 7"):
        await standby.run()
