"""One server holds a database; a second one gets the holder in its error."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from schedo.errors import StoreError, StoreLocked
from schedo.store.sqlite.lock import BOOT_ID, FileLock, find_living

HOLD = """
import sys
from schedo.store.sqlite.lock import FileLock
FileLock(sys.argv[1]).acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lock_file_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db.lock"
    lock = FileLock(str(path))
    lock.acquire()

    text, boot = path.read_text().splitlines()
    lock.release()

    assert text.startswith(f"pid {os.getpid()} on {socket.gethostname()} since 20")
    assert text.endswith("+00:00")
    assert boot == f"boot {BOOT_ID.read_text().strip()}"


def test_the_error_for_a_second_server_names_the_holder(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db.lock")
    first = FileLock(path)
    first.acquire()

    with pytest.raises(
        StoreLocked, match=rf"another server holds .*jobs\.db: pid {os.getpid()} on"
    ):
        FileLock(path).acquire()
    first.release()

    second = FileLock(path)
    second.acquire()
    second.release()
    second.release()


def test_the_lock_is_free_when_its_holder_is_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db.lock")
    program = [sys.executable, "-c", HOLD, path]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked, match=f"pid {holder.pid} "):
            FileLock(path).acquire()
        holder.kill()
        holder.wait()

    lock = FileLock(path)
    lock.acquire()
    lock.release()


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db.lock")
    lock = FileLock(path)
    lock.acquire()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        lock.release()
        second = FileLock(path)
        second.acquire()
        second.release()
        child.kill()


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "jobs.db.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoreError, match="cannot open the lock file"):
        FileLock(str(tmp_path / "jobs.db.lock")).acquire()

    assert (tmp_path / "elsewhere").read_text() == "precious"


def taken_anew(path: Path) -> FileLock:
    lock = FileLock(str(path))
    lock.acquire()
    return lock


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Return the lock of a holder that was killed."""
    path = tmp_path / "jobs.db.lock"
    program = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    return path


def test_the_next_holder_is_notified_that_the_previous_one_was_killed(killed: Path) -> None:
    lock = taken_anew(killed)

    assert lock.was_killed
    lock.release()


def test_a_refused_start_restores_the_text_of_the_lock_file(killed: Path) -> None:
    before = killed.read_text()
    refused = taken_anew(killed)
    refused.release()
    assert killed.read_text() == before

    served = taken_anew(killed)
    assert served.was_killed
    served.has_taken_over = True
    served.release()

    last = taken_anew(killed)
    assert not last.was_killed
    last.release()


def test_an_orderly_shutdown_does_not_count_as_killed(tmp_path: Path) -> None:
    first = taken_anew(tmp_path / "jobs.db.lock")
    first.release()
    second = taken_anew(tmp_path / "jobs.db.lock")

    assert (first.was_killed, second.was_killed) == (False, False)
    second.release()


def test_a_crash_of_the_host_does_not_count_as_killed(
    killed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("schedo.store.sqlite.lock.BOOT_ID", tmp_path / "boot")
    (tmp_path / "boot").write_text("another\n")
    lock = taken_anew(killed)

    assert not lock.was_killed
    lock.release()


def test_a_kill_during_the_shutdown_counts_as_orderly(
    tmp_path: Path,
) -> None:
    first = taken_anew(tmp_path / "jobs.db.lock")
    first.clear()
    os.close(first._descriptor or 0)  # as its death does
    second = taken_anew(tmp_path / "jobs.db.lock")

    assert not second.was_killed
    second.release()


@pytest.mark.parametrize(
    ("text", "is_living"),
    [
        ("pid {pid} on host since now\nboot {boot}\n", True),
        ("pid {pid} on host since now\nboot another\n", False),
        ("pid 4194305 on host since now\nboot {boot}\n", False),
        ("", False),
    ],
)
def test_a_holder_lives_if_its_number_runs_since_this_boot(
    tmp_path: Path, text: str, is_living: bool
) -> None:
    path = tmp_path / "jobs.db.lock"
    path.write_text(text.format(pid=os.getpid(), boot=BOOT_ID.read_text().strip()))

    assert find_living(str(path)) == (os.getpid() if is_living else None)


def test_a_holder_of_another_user_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = FileLock(str(tmp_path / "lock"))
    lock.acquire()

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)

    assert find_living(str(tmp_path / "lock")) == os.getpid()
    lock.release()


def test_without_a_lock_file_no_holder_lives(tmp_path: Path) -> None:
    assert find_living(str(tmp_path / "lock")) is None
