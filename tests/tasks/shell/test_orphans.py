"""Commands that outlive their server are found and killed; nothing else ever is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedo.tasks.shell.orphans import MARK, Leader, Orphans, find_start_time, kill_marked
from schedo.tasks.shell.spawner_process import find_ticks
from tests.worker.calls import is_running, wait_gone

# The search for marks covers the whole machine, where these tests may run twice at once.
M1, M2 = f"{os.getpid()}-1", f"{os.getpid()}-2"


def seen(pid: int) -> Leader:
    """Return the process, seen alive now."""
    ticks = find_ticks()
    assert ticks is not None, "Linux knows"
    return Leader(pid, ticks)


class Sleepers:
    """Starts processes for one test, and kills them at its end."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, mark: str) -> int:
        env = {"PATH": "/usr/bin:/bin", MARK: mark}
        # Popen returns a moment before the environment of the new program can be read; once the
        # program has said something, it can.
        sleeper = subprocess.Popen(
            ["/bin/sh", "-c", "echo; read _"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.started.append(sleeper)
        assert sleeper.stdout is not None
        assert sleeper.stdout.readline() == b"\n"
        return sleeper.pid

    def end(self) -> None:
        for sleeper in self.started:
            sleeper.kill()
            sleeper.communicate()


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    found = Sleepers()
    yield found
    found.end()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "running"


def test_commands_of_a_dead_server_are_killed(path: Path, sleepers: Sleepers) -> None:
    pid = sleepers.start(M1)
    Orphans(path).record(M1, seen(pid))

    killed = Orphans(path).reap()

    assert killed == 1
    assert wait_gone(pid)
    assert Orphans(path).reap() == 0


def test_a_process_that_ended_in_time_is_not_killed(path: Path, sleepers: Sleepers) -> None:
    pid = sleepers.start(M1)
    before = Orphans(path)
    before.announce(M1)
    before.record(M1, seen(pid))
    before.forget(M1)

    assert Orphans(path).reap() == 0
    assert is_running(pid)


def test_a_recycled_pid_is_never_killed(path: Path, sleepers: Sleepers) -> None:
    bystander = sleepers.start(M2)
    started = find_start_time(bystander)
    assert started is not None
    Orphans(path).announce(M1)
    boot, _, _ = path.read_text().partition("\n")
    # Seen alive just before the process that has the pid now was started.
    path.write_text(f"{boot}\n+ {M1} {bystander} {started - 1}\n")

    assert Orphans(path).reap() == 0
    assert is_running(bystander)


def test_a_command_whose_pid_was_not_yet_recorded_is_found_by_its_mark(
    path: Path, sleepers: Sleepers
) -> None:
    Orphans(path).announce(M1)
    pid = sleepers.start(M1)

    assert Orphans(path).reap() == 1
    assert wait_gone(pid)


def test_a_list_from_before_a_reboot_is_ignored(path: Path, sleepers: Sleepers) -> None:
    pid = sleepers.start(M1)
    Orphans(path).record(M1, seen(pid))
    _, _, rest = path.read_text().partition("\n")
    path.write_text("boot 00000000-0000-0000-0000-000000000000\n" + rest)

    assert Orphans(path).reap() == 0
    assert is_running(pid)


def test_a_descendant_in_another_session_is_found_by_its_mark(
    path: Path, sleepers: Sleepers
) -> None:
    leader, escaped = sleepers.start(M1), sleepers.start(M1)
    bystander = sleepers.start(M2)
    Orphans(path).record(M1, seen(leader))

    Orphans(path).reap()

    assert wait_gone(leader)
    assert wait_gone(escaped)
    assert is_running(bystander)


def test_a_process_is_found_only_by_a_complete_mark(sleepers: Sleepers) -> None:
    pid = sleepers.start("abcd")

    assert kill_marked({"abc", "bcd", "abcde", ""}) == set()
    assert is_running(pid)


@pytest.mark.parametrize(
    "text",
    ["", "\0\xff\n", "boot\n+\n-\n", "+ m\n+ m 1\n+ m 1 2 3\n- x\n+ m -1 5\n", "+ m 1 1\n"],
)
def test_a_damaged_file_kills_no_process(path: Path, text: str) -> None:
    Orphans(path).reap()
    Orphans(path).announce("none")
    boot, _, _ = path.read_text().partition("\n")
    path.write_bytes(f"{boot}\n{text}".encode("latin-1"))

    assert Orphans(path).reap() == 0


def test_the_list_stays_small_and_keeps_the_running_commands(
    path: Path, sleepers: Sleepers
) -> None:
    pid = sleepers.start(M1)
    orphans = Orphans(path)
    orphans.record(M1, seen(pid))

    for number in range(3_000):
        orphans.announce(f"{number:016}")
        orphans.forget(f"{number:016}")

    assert path.stat().st_size < 70_000
    assert path.stat().st_mode & 0o777 == 0o600
    assert Orphans(path).reap() == 1
    assert wait_gone(pid)


def test_a_list_that_cannot_be_written_does_not_stop_commands(tmp_path: Path) -> None:
    orphans = Orphans(tmp_path / "missing" / "running")

    orphans.record(M1, seen(os.getpid()))
    orphans.forget(M1)

    assert orphans.reap() == 0


def test_a_pid_without_a_process_has_no_start_time() -> None:
    assert find_start_time(2**22 + 1) is None
    assert find_start_time(os.getpid()) is not None


SERVER = """
import asyncio, sys
from pathlib import Path
from schedo.tasks.shell.orphans import Orphans
from schedo.tasks.shell.task import ShellRunner
from tests.worker.calls import make_context

# It says its pid only when it has left the group.
escape = "setsid sh -c 'echo $$ $PPID > " + sys.argv[2] + "; exec sleep 60' &"
line = escape + " sleep 60"
runner = ShellRunner(orphans=Orphans(Path(sys.argv[1])))
asyncio.run(runner(make_context({"command": line})))
"""


def test_the_next_start_kills_all_commands_of_a_killed_server(path: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pids")
    server = subprocess.Popen([sys.executable, "-c", SERVER, path, tmp_path / "pids"])
    escaped, leader = map(int, (tmp_path / "pids").read_text().split())
    server.send_signal(signal.SIGKILL)
    server.wait()
    assert is_running(leader)
    assert is_running(escaped)

    assert Orphans(path).reap() >= 2

    assert wait_gone(leader)
    assert wait_gone(escaped)


# A process that another one replaces.


def _list(path: Path, mark: str, pid: int) -> Orphans:
    orphans = Orphans(path)
    orphans.announce(mark)
    orphans.record(mark, seen(pid))
    return orphans


def test_the_commands_of_a_process_that_lives_on_are_not_killed(
    path: Path, sleepers: Sleepers
) -> None:
    pid = sleepers.start(M1)
    old = _list(path, M1, pid)
    old.leave()

    assert Orphans(path).reap() == 0
    assert is_running(pid)
    old.close()
    assert list(path.parent.glob(path.name + "*")) == []


def test_the_next_server_kills_what_a_process_left_that_has_died(
    path: Path, sleepers: Sleepers
) -> None:
    pid = sleepers.start(M1)
    old = _list(path, M1, pid)
    old.leave()
    (left,) = path.parent.glob(path.name + ".*")
    text = left.read_text()
    old.close()
    left.write_text(text)  # as if the process had died

    assert Orphans(path).reap_left() == 1
    wait_gone(pid)
    assert not left.exists()


def test_processes_of_several_containers_with_one_pid_keep_a_list_each(
    path: Path, sleepers: Sleepers
) -> None:
    first, second = sleepers.start(M1), sleepers.start(M2)
    olds = [_list(path, M1, first)]
    olds[0].leave()
    olds.append(_list(path, M2, second))

    olds[1].leave()

    texts = [left.read_text() for left in path.parent.glob(path.name + ".*")]
    assert [sum(f"+ {mark}" in text for text in texts) for mark in (M1, M2)] == [1, 1]
    for old in olds:
        old.close()
    assert list(path.parent.glob(path.name + "*")) == []


def test_a_process_that_goes_on_kills_what_its_successor_has_started(
    path: Path, sleepers: Sleepers
) -> None:
    mine, theirs = sleepers.start(M1), sleepers.start(M2)
    old = _list(path, M1, mine)
    old.leave()
    _list(path, M2, theirs).close()

    old.come_back()

    wait_gone(theirs)
    assert is_running(mine)
    assert f"+ {M1}" in path.read_text()
    old.close()


def test_a_process_without_commands_leaves_and_comes_back(path: Path) -> None:
    old = Orphans(path)
    old.leave()
    old.come_back()
    old.announce(M1)

    assert f"+ {M1}" in path.read_text()
    old.close()
