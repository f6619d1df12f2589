"""Commands of a killed worker: the next one ends them, and only them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedo.tasks.shell.orphan_lists import OrphanList, find_directory
from schedo.tasks.shell.orphans import MARK
from tests.worker.calls import is_running, wait_gone


@pytest.fixture
def command() -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs until it is killed, with the mark "m1"."""
    pipe = subprocess.PIPE
    words = ["/bin/sh", "-c", "echo begun; read never"]
    with subprocess.Popen(words, env={MARK: "m1"}, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()  # until it has begun, its environment cannot be read
        yield process
        process.kill()


def kill(leftovers: OrphanList, directory: Path) -> None:
    """Do to a worker's list what kill -9 does: the lock is gone, the files stay."""
    kept = {path: path.read_bytes() for path in directory.iterdir()}
    leftovers.close()
    for path, content in kept.items():
        path.write_bytes(content)


def test_commands_of_a_dead_worker_are_killed(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    dead = OrphanList(tmp_path)
    dead.orphans.announce("m1")
    kill(dead, tmp_path)

    OrphanList(tmp_path).close()

    assert wait_gone(command.pid) or command.wait(10) == -9
    assert list(tmp_path.iterdir()) == []


def test_commands_of_a_living_worker_are_not_killed(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    living = OrphanList(tmp_path)
    living.orphans.announce("m1")

    OrphanList(tmp_path).close()

    assert is_running(command.pid)
    assert len(list(tmp_path.iterdir())) == 2
    living.close()


def test_a_worker_that_ends_removes_its_list(tmp_path: Path) -> None:
    OrphanList(tmp_path / "new").close()

    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({"XDG_STATE_HOME": "/state"}, "/state/schedo/workers")],
)
def test_the_lists_are_in_the_directory_for_the_state_of_programs(
    environ: dict[str, str], expected: str
) -> None:
    assert find_directory(environ) == Path(expected)
    assert find_directory({}) == Path.home() / ".local/state/schedo/workers"
