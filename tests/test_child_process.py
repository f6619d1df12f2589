"""Child processes: their end is reported, and no other process ever gets their signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from schedo.child_process import ChildHandle
from tests.worker.calls import both_loops, wait_gone

MakeLoop = Callable[[], asyncio.AbstractEventLoop]


def start(*argv: str) -> ChildHandle:
    return ChildHandle(subprocess.Popen(argv, start_new_session=True))


async def run(*argv: str) -> int:
    process = start(*argv)
    async with asyncio.timeout(20):
        await process.ended
    return process.reap()


def list_zombies() -> list[int]:
    """Return the pids of the children that have ended and were not reaped."""
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
        assert runner.run(run("/bin/sh", "-c", line)) == status


@both_loops
def test_without_pidfd_a_thread_waits_for_the_process(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(run("/bin/sh", "-c", "exit 3")) == 3


async def test_without_waitid_the_thread_reports_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.delattr(os, "waitid")

    assert await run("/bin/sh", "-c", "exit 3") == 3


async def test_a_reaped_process_is_never_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    process = start("sleep", "60")
    process.signal_group(signal.SIGKILL)
    await process.ended
    assert process.reap() == -9
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: sent.append(pid))

    process.signal_group(signal.SIGTERM)
    process.abandon()

    assert sent == []  # by now another process may have the pid


async def test_a_pid_is_not_freed_before_its_process_is_reaped() -> None:
    process = start("sleep", "60")

    process.signal_group(signal.SIGKILL)
    await process.ended

    os.kill(process.pid, 0)  # this succeeds: the zombie keeps the pid
    process.reap()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_an_abandoned_process_is_killed_and_reaped() -> None:
    process = start("sleep", "60")

    process.abandon()
    async with asyncio.timeout(10):
        await process.ended

    assert wait_gone(process.pid)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@both_loops
@pytest.mark.parametrize("has_pidfd", [True, False], ids=["pidfd", "thread"])
def test_an_abandoned_process_that_is_reaped_at_once_is_reported_as_ended(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch, has_pidfd: bool
) -> None:
    if not has_pidfd:
        monkeypatch.delattr(os, "pidfd_open")

    async def abandon() -> ChildHandle:
        process = start("sleep", "60")
        process.abandon(wait_s=20)
        assert process.ended.done()
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
        return process

    with asyncio.Runner(loop_factory=make_loop) as runner:
        process = runner.run(abandon())
    assert process.reap() == -9


async def test_short_children_leave_no_zombie_and_no_descriptor() -> None:
    await run("true")
    before = os.listdir("/proc/self/fd")

    await asyncio.gather(*(run("true") for _ in range(20)))

    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert list_zombies() == []
