"""Processes: how they start, how their end is noticed, and that nothing else is ever signalled."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import signal
import socket
from collections.abc import Callable

import pytest

from schedo.workers.capture import Tap
from schedo.workers.spawn import Command, Process, spawn
from tests.workers.calls import both_loops, wait_gone

ENV = {"PATH": "/usr/bin:/bin"}
MakeLoop = Callable[[], asyncio.AbstractEventLoop]


async def run(command: Command) -> tuple[int, bytes]:
    """Return the exit status and what was written to stdout and stderr."""
    tap = Tap("stdout")
    process = spawn(command, tap.write_end, tap.write_end)
    tap.start()
    async with asyncio.timeout(20):
        await process.ended
    tap.drain()
    status = process.reap()
    tap.close()
    return status, tap.kept.head


def start_sleeper() -> Process:
    with open(os.devnull, "wb") as null:
        return spawn(Command(["sleep", "60"], ENV), null.fileno(), null.fileno())


def list_zombies() -> list[int]:
    """Return the children that have ended and were not reaped."""
    me = str(os.getpid())
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
            if (state, parent) == ("Z", me):
                found.append(int(pid))
    return found


@both_loops
@pytest.mark.parametrize(("line", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15)])
def test_the_status_is_the_exit_code_or_minus_the_signal(
    make_loop: MakeLoop, line: str, status: int
) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(run(Command(["/bin/sh", "-c", line], ENV))) == (status, b"")


@both_loops
def test_many_at_once_all_end(make_loop: MakeLoop) -> None:
    async def run_many() -> list[tuple[int, bytes]]:
        commands = [Command(["echo", str(number)], ENV) for number in range(50)]
        return await asyncio.gather(*map(run, commands))

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(run_many()) == [(0, f"{n}\n".encode()) for n in range(50)]


@both_loops
def test_without_pidfd_a_thread_waits(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(run(Command(["/bin/sh", "-c", "echo a; exit 3"], ENV))) == (3, b"a\n")


async def test_without_waitid_too_the_thread_tells_of_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.delattr(os, "waitid")

    assert await run(Command(["/bin/sh", "-c", "echo a; exit 3"], ENV)) == (3, b"a\n")


async def test_a_child_has_three_descriptors_whatever_the_server_has_open() -> None:
    with socket.socket() as listener, socket.socket() as other:
        os.set_inheritable(listener.fileno(), True)
        os.set_inheritable(other.fileno(), True)
        status, output = await run(Command(["/bin/sh", "-c", "echo /proc/$$/fd/*"], ENV))

    names = [path.rpartition("/")[2] for path in output.decode().split()]
    # The shell opens the directory itself while it lists it.
    assert status == 0
    assert names[:3] == ["0", "1", "2"]
    assert len(names) <= 4
    assert listener.fileno() not in map(int, names[:3])


async def test_a_child_leads_its_own_session_and_has_a_tight_umask() -> None:
    line = "cut -d' ' -f1,5,6 /proc/$$/stat; umask"

    status, output = await run(Command(["/bin/sh", "-c", line], ENV))

    ids, umask, _ = output.decode().split("\n")
    assert status == 0
    assert len(set(ids.split())) == 1  # pid, process group, session
    assert umask == "0077"


async def test_a_child_leaves_no_core_dump() -> None:
    process = start_sleeper()

    limits = resource.prlimit(process.pid, resource.RLIMIT_CORE)

    assert limits == (0, 0)
    process.abandon()
    await process.ended


async def test_stdin_is_read_to_its_end() -> None:
    data = bytes(range(256)) * 2_000

    assert await run(Command(["wc", "-c"], ENV, stdin=data)) == (0, b"512000\n")
    assert await run(Command(["cat"], ENV)) == (0, b"")


async def test_the_directory_and_the_environment_are_exactly_what_was_asked() -> None:
    command = Command(["/usr/bin/env"], {"A": "ä b"}, cwd="/usr")

    assert await run(command) == (0, "A=ä b\n".encode())
    assert await run(Command(["/bin/pwd"], ENV, cwd="/usr")) == (0, b"/usr\n")


@pytest.mark.parametrize(
    ("argv", "number"),
    [(["no-such-program"], errno.ENOENT), (["/etc/passwd"], errno.EACCES), (["/"], errno.EACCES)],
)
async def test_what_cannot_start_says_so_and_leaves_nothing(argv: list[str], number: int) -> None:
    before = os.listdir("/proc/self/fd")

    with pytest.raises(OSError) as raised:  # noqa: PT011 - the number is checked below
        spawn(Command(argv, ENV, stdin=b"x"), 1, 2)

    assert raised.value.errno == number
    assert os.listdir("/proc/self/fd") == before


async def test_a_reaped_process_is_never_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    process = start_sleeper()
    process.signal_group(signal.SIGKILL)
    await process.ended
    assert process.reap() == -9
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: sent.append(pid))

    process.signal_group(signal.SIGTERM)
    process.abandon()

    assert sent == []  # by now the pid may be another process's


async def test_the_pid_is_kept_until_it_is_reaped() -> None:
    process = start_sleeper()

    process.signal_group(signal.SIGKILL)
    await process.ended

    os.kill(process.pid, 0)  # a zombie still answers
    process.reap()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_an_abandoned_process_is_killed_and_reaped() -> None:
    process = start_sleeper()

    process.abandon()
    async with asyncio.timeout(10):
        await process.ended

    assert wait_gone(process.pid)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_200_short_children_leave_no_zombie_and_no_descriptor() -> None:
    await run(Command(["true"], ENV))
    before = os.listdir("/proc/self/fd")

    for _ in range(10):
        await asyncio.gather(*(run(Command(["true"], ENV)) for _ in range(20)))

    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert list_zombies() == []
