"""Commands and their spawner: their environment, their ends, and the end of the spawner."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from schedo.tasks.shell.output import PipeReader
from schedo.tasks.shell.spawner import Command, Running, Spawner, SpawnerDied
from tests.worker.calls import both_loops, is_running, wait_gone

ENV = {"PATH": "/usr/bin:/bin"}
MakeLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture
async def commands() -> AsyncIterator[Spawner]:
    starts = Spawner()
    yield starts
    starts.close()


async def run(commands: Spawner, command: Command) -> tuple[int, bytes]:
    """Return the exit status and what was written to stdout and stderr."""
    tap = PipeReader("stdout")
    running = commands.start(command, tap.write_end, tap.write_end)
    tap.start()
    try:
        async with asyncio.timeout(20):
            status = await running.ended
        tap.drain()
    finally:
        tap.close()
    return status, tap.kept.head


async def start_sleeper(commands: Spawner) -> tuple[Running, int]:
    """Return a command that runs, and its pid."""
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    running = commands.start(
        Command(["sleep", "60"], ENV), 1, 2, lambda pid, ticks: started.set_result(pid)
    )
    async with asyncio.timeout(20):
        return running, await started


def find_parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def measure_own_kib(pid: int) -> int:
    """Return the memory that the process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def list_children(pid: int) -> list[int]:
    return [
        int(each) for each in filter(str.isdigit, os.listdir("/proc")) if _is_child(int(each), pid)
    ]


def _is_child(child: int, pid: int) -> bool:
    try:
        return find_parent(child) == pid
    except OSError:
        return False


@both_loops
@pytest.mark.parametrize(("line", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15)])
def test_the_status_is_the_exit_code_or_minus_the_signal(
    make_loop: MakeLoop, line: str, status: int
) -> None:
    async def run_line() -> tuple[int, bytes]:
        commands = Spawner()
        try:
            return await run(commands, Command(["/bin/sh", "-c", line], ENV))
        finally:
            commands.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(run_line()) == (status, b"")


@both_loops
def test_many_concurrent_commands_all_end(make_loop: MakeLoop) -> None:
    async def run_many() -> list[tuple[int, bytes]]:
        commands = Spawner()
        # More than the socket holds at once.
        env = ENV | {"LONG": "x" * 10_000}
        asked = [Command(["echo", str(number)], env) for number in range(100)]
        try:
            return await asyncio.gather(*(run(commands, each) for each in asked))
        finally:
            commands.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(run_many()) == [(0, f"{n}\n".encode()) for n in range(100)]


async def test_a_command_has_three_descriptors_whatever_the_server_has_open(
    commands: Spawner,
) -> None:
    with socket.socket() as listener, socket.socket() as other:
        os.set_inheritable(listener.fileno(), True)
        os.set_inheritable(other.fileno(), True)
        command = Command(["/bin/sh", "-c", "echo /proc/$$/fd/*"], ENV)
        status, output = await run(commands, command)

    names = [path.rpartition("/")[2] for path in output.decode().split()]
    # The shell opens the directory itself while it lists it.
    assert status == 0
    assert names[:3] == ["0", "1", "2"]
    assert len(names) <= 4
    assert listener.fileno() not in map(int, names[:3])


async def test_a_command_leads_its_own_session_and_has_a_tight_umask(commands: Spawner) -> None:
    line = "cut -d' ' -f1,5,6 /proc/$$/stat; umask"

    status, output = await run(commands, Command(["/bin/sh", "-c", line], ENV))

    ids, umask, _ = output.decode().split("\n")
    assert status == 0
    assert len(set(ids.split())) == 1  # pid, process group, session
    assert umask == "0077"


async def test_a_command_leaves_no_core_dump(commands: Spawner) -> None:
    _, pid = await start_sleeper(commands)

    limits = resource.prlimit(pid, resource.RLIMIT_CORE)

    assert limits == (0, 0)
    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def ignored_signals() -> Iterator[None]:
    """Ignore what a shell ignores in a program that it starts in the background, and SIGUSR1."""
    numbers = (signal.SIGQUIT, signal.SIGUSR1)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


async def test_a_command_starts_without_ignored_or_blocked_signals(
    ignored_signals: None, commands: Spawner
) -> None:
    command = Command(["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"], ENV)

    status, output = await run(commands, command)

    masks = [int(mask, 16) for mask in output.split()[1::2]]
    assert status == 0
    # The C library ignores its own two, 32 and 33, in what it starts.
    assert [mask & 0x7FFF_FFFF for mask in masks] == [0, 0]


async def test_a_command_can_read_its_stdin_to_the_end(commands: Spawner) -> None:
    data = bytes(range(256)) * 2_000

    assert await run(commands, Command(["wc", "-c"], ENV, stdin=data)) == (0, b"512000\n")
    assert await run(commands, Command(["cat"], ENV)) == (0, b"")


async def test_a_command_gets_the_given_directory_and_environment(
    commands: Spawner,
) -> None:
    command = Command(["/usr/bin/env"], {"A": "ä b"}, cwd="/usr")

    assert await run(commands, command) == (0, "A=ä b\n".encode())
    assert await run(commands, Command(["/bin/pwd"], ENV, cwd="/usr")) == (0, b"/usr\n")
    here = f"{os.getcwd()}\n".encode()
    assert await run(commands, Command(["/bin/pwd"], ENV)) == (0, here)


@pytest.mark.parametrize(
    ("argv", "cwd", "number", "filename"),
    [
        (["no-such-program"], None, errno.ENOENT, None),
        (["/etc/passwd"], "/usr", errno.EACCES, None),
        (["/"], None, errno.EACCES, None),
        (["true"], "/none", errno.ENOENT, "/none"),
        (["/none"], "/etc/passwd", errno.ENOTDIR, "/etc/passwd"),
        (["true", *["x" * 130_000] * 40], None, errno.E2BIG, None),
    ],
)
async def test_a_command_that_cannot_start_raises_and_leaves_no_descriptor(
    commands: Spawner, argv: list[str], cwd: str | None, number: int, filename: str | None
) -> None:
    await run(commands, Command(["true"], ENV))
    before = os.listdir("/proc/self/fd")

    with pytest.raises(OSError) as raised:  # noqa: PT011 - the number is checked below
        await run(commands, Command(argv, ENV, cwd, stdin=b"x"))

    assert (raised.value.errno, raised.value.filename) == (number, filename)
    assert os.listdir("/proc/self/fd") == before
    assert await run(commands, Command(["echo", "next"], ENV)) == (0, b"next\n")


async def test_the_pid_of_a_command_is_not_freed_before_it_is_released(
    commands: Spawner,
) -> None:
    running, pid = await start_sleeper(commands)

    running.signal_group(signal.SIGKILL)
    assert await running.ended == -9
    await run(commands, Command(["true"], ENV))  # other commands start and end meanwhile

    os.kill(pid, 0)  # a zombie still answers
    running.release()
    await run(commands, Command(["true"], ENV))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_an_ended_process_is_never_signalled(commands: Spawner) -> None:
    running = commands.start(Command(["true"], ENV), 1, 2)
    await running.ended
    other, pid = await start_sleeper(commands)

    running.signal_group(signal.SIGKILL)
    running.release()
    running.abandon()
    await run(commands, Command(["true"], ENV))

    assert is_running(pid)
    other.abandon()


async def test_an_abandoned_command_is_killed_and_reaped(commands: Spawner) -> None:
    running, pid = await start_sleeper(commands)

    running.abandon()
    assert await running.ended == -9
    await run(commands, Command(["true"], ENV))

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_200_short_commands_leave_no_zombie_and_no_descriptor(commands: Spawner) -> None:
    _, pid = await start_sleeper(commands)
    spawner = find_parent(pid)
    before = os.listdir("/proc/self/fd"), os.listdir(f"/proc/{spawner}/fd")

    for _ in range(10):
        asked = [Command(["true"], ENV)] * 20
        await asyncio.gather(*(run(commands, each) for each in asked))

    assert list_children(spawner) == [pid]
    assert (os.listdir("/proc/self/fd"), os.listdir(f"/proc/{spawner}/fd")) == before
    os.kill(pid, signal.SIGKILL)


async def test_the_spawner_outlives_the_signals_that_end_a_server(commands: Spawner) -> None:
    running, pid = await start_sleeper(commands)
    spawner = find_parent(pid)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(spawner, number)

    assert await run(commands, Command(["echo", "on"], ENV)) == (0, b"on\n")
    assert find_parent(pid) == spawner
    running.abandon()


async def test_a_dead_spawner_is_replaced(commands: Spawner) -> None:
    running, pid = await start_sleeper(commands)

    os.kill(find_parent(pid), signal.SIGKILL)
    with pytest.raises(SpawnerDied):
        await running.ended
    running.abandon()

    assert await run(commands, Command(["echo", "again"], ENV)) == (0, b"again\n")
    os.kill(pid, signal.SIGKILL)


@both_loops
@pytest.mark.parametrize("has_begun", [True, False], ids=["a command runs", "none has begun"])
def test_a_spawner_that_does_not_answer_is_killed_and_replaced(
    make_loop: MakeLoop, has_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.tasks.shell.spawner.PULSE_S", 0.1)
    monkeypatch.setattr("schedo.tasks.shell.spawner.STALLED_S", 0.5)

    async def stop_it() -> tuple[list[str], tuple[int, bytes]]:
        commands = Spawner()
        running, pid = await start_sleeper(commands)
        spawner = find_parent(pid)
        assert commands.not_ready_reasons() == []
        os.kill(spawner, signal.SIGSTOP)
        if not has_begun:
            running.abandon()
            running = commands.start(Command(["sleep", "60"], ENV), 1, 2)
        async with asyncio.timeout(20):
            while not (reasons := commands.not_ready_reasons()):
                await asyncio.to_thread(int)
            with pytest.raises(SpawnerDied):
                await running.ended
        running.abandon()
        assert wait_gone(spawner)
        assert commands.not_ready_reasons() == []
        try:
            return reasons, await run(commands, Command(["echo", "again"], ENV))
        finally:
            os.kill(pid, signal.SIGKILL)
            commands.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        (reason,), again = runner.run(stop_it())

    assert reason.startswith("the spawner of commands has not answered for 0.")
    assert again == (0, b"again\n")


async def test_a_busy_spawner_is_not_killed(
    commands: Spawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.tasks.shell.spawner.PULSE_S", 0.01)
    monkeypatch.setattr("schedo.tasks.shell.spawner.STALLED_S", 0.2)
    env = ENV | {"LONG": "x" * 50_000}

    asked = [Command(["true"], env)] * 500

    assert await asyncio.gather(*(run(commands, each) for each in asked)) == [(0, b"")] * 500


async def test_the_spawner_uses_little_memory(commands: Spawner) -> None:
    _, pid = await start_sleeper(commands)

    assert measure_own_kib(find_parent(pid)) < 8_192
    os.kill(pid, signal.SIGKILL)


SERVER = """
import asyncio, sys
from schedo.tasks.shell.spawner import Command, Spawner

async def serve():
    running = Spawner().start(
        Command(["sh", "-c", "echo $$ $PPID; exec sleep 60"], {"PATH": "/usr/bin:/bin"}), 1, 2
    )
    await running.ended

asyncio.run(serve())
"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as it:
        yield it
        it.kill()


def test_the_spawner_ends_with_the_server_and_running_commands_continue(
    server: subprocess.Popen[str],
) -> None:
    assert server.stdout is not None
    pid, spawner = map(int, server.stdout.readline().split())

    server.kill()

    assert wait_gone(spawner)
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)
