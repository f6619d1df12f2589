"""A real server on a full disk, and on files that are moved, removed or damaged."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.server import DEADLINE_S, Server, eventually, serving

STORE = ("--store", "data/jobs.db")
READS = (
    "/v1/jobs",
    "/v1/jobs/{id}",
    "/v1/jobs/{id}/why",
    "/v1/queues",
    "/v1/schedules",
    "/status?task_id={id}",
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a directory on a disk of 8 MiB; skip the test without the rights to mount one."""
    place = tmp_path / "data"
    place.mkdir(mode=0o700)
    command = ("mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "none", str(place))
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root can mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(("umount", "-l", str(place)), check=True)


def fill(place: Path) -> Path:
    """Fill the disk to the last byte."""
    ballast = place / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return ballast


def listed(server: Server) -> set[str]:
    """Return the ids of all jobs."""
    seen: set[str] = set()
    more = ""
    while True:
        status, page = server.ask("GET", f"/v1/jobs?limit=100{more}")
        assert status == 200, page
        seen |= {job["id"] for job in page["items"]}
        if not page.get("next_cursor"):
            return seen
        more = f"&cursor={page['next_cursor']}"


def test_reads_are_answered_while_the_disk_is_full(tmp_path: Path, small_disk: Path) -> None:
    with serving(tmp_path, *STORE) as server:
        ids = [server.submit(task="work", payload=n)["id"] for n in range(20)]
        ballast = fill(small_disk)
        pending = [
            server.ask("POST", "/v1/jobs", {"task": "work", "payload": "x" * 3_000})
            for _ in range(1_000)
        ]
        refused = [answer for status, answer in pending if status != 201]
        ids += [answer["id"] for status, answer in pending if status == 201]
        assert {answer["code"] for answer in refused} <= {"storage-full", "outcome-unknown"}
        assert refused

        for path in READS:
            status, answer = server.ask("GET", path.format(id=ids[-1]))
            assert status == 200, (path, answer)
        assert listed(server) == set(ids)

        ballast.unlink()
        eventually(
            lambda: server.ask("POST", "/v1/jobs", {"task": "work"})[0] == 201, "room for a job"
        )


def ended(server: Server) -> int:
    """Wait for the end of the server; return its exit code."""
    assert server._process is not None
    assert server._process.stdout is not None
    server._process.stdout.close()
    return server._process.wait(DEADLINE_S)


CHANGES: dict[str, Callable[[Path], object]] = {
    "database removed": lambda path: os.remove(path),
    "database moved": lambda path: os.rename(path, f"{path}.moved"),
    "log removed": lambda path: os.remove(f"{path}-wal"),
    "log emptied": lambda path: os.truncate(f"{path}-wal", 0),
    "index of the log emptied": lambda path: os.truncate(f"{path}-shm", 0),
    "lock file removed": lambda path: os.remove(f"{path}.lock"),
    "directory moved": lambda path: os.rename(path.parent, f"{path.parent}.moved"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_server_ends_when_its_files_are_moved_or_removed(tmp_path: Path, name: str) -> None:
    with serving(tmp_path, *STORE) as server:
        server.submit(task="work")
        began = time.monotonic()
        CHANGES[name](tmp_path / "data" / "jobs.db")

        assert ended(server) == 70
        assert time.monotonic() - began < 2.5  # one second, and some more on a busy machine
        assert "while the server ran" in server.log()


def test_a_server_that_reads_a_damaged_page_ends_with_the_code_for_damage(tmp_path: Path) -> None:
    with serving(tmp_path, *STORE) as server:
        jobs = [{"task": "work", "payload": "x" * 2_000, "delay": "1h"}] * 1_000
        status, _ = server.ask("POST", "/v1/jobs:batch", jobs)
        assert status == 200
        assert server.terminate() == 0
        database = tmp_path / "data" / "jobs.db"
        middle = database.stat().st_size // 2 // 4_096 * 4_096
        with database.open("r+b") as file:
            file.seek(middle)
            file.write(b"\xa5" * 4_096 * 40)  # no start reads these rows
        server.start()

        status, problem = server.ask("GET", "/v1/jobs?limit=500")

        assert (status, problem["code"]) == (503, "store-damaged")
        assert ended(server) == 65


def test_a_death_by_sigbus_leaves_a_traceback(tmp_path: Path) -> None:
    with serving(tmp_path, *STORE) as server:
        assert server.signal(signal.SIGBUS) == -signal.SIGBUS

        assert "Fatal Python error: Bus error" in server.log()


def refused(server: Server) -> int:
    """Return the exit code of a start that fails."""
    with pytest.raises(AssertionError, match="the server said"):
        server.start()
    return ended(server)


def test_a_start_with_an_incomplete_store_reports_what_is_missing_and_what_to_do(
    tmp_path: Path,
) -> None:
    path = tmp_path / "data" / "jobs.db"
    with serving(tmp_path, *STORE) as server:
        for _ in range(5):
            server.submit(task="work")
        server.kill()
    os.remove(f"{path}-wal")

    assert refused(server) == 65
    assert "commits are missing, the last of them made at 20" in server.log()
    accepting = Server(tmp_path, *STORE, "--accept-loss")
    accepting.start()
    assert accepting.ask("GET", "/readyz")[0] == 200
    assert accepting.terminate() == 0
    assert "the loss is accepted" in server.log()
    with serving(tmp_path, *STORE) as server:
        assert server.ask("GET", "/readyz")[0] == 200


def test_a_server_that_was_killed_under_load_starts_again(tmp_path: Path) -> None:
    ids: set[str] = set()
    for _ in range(3):
        with serving(tmp_path, *STORE) as server:
            for number in range(60):
                ids.add(server.submit(task="work", payload="x" * 4_000, tags=[f"t{number}"])["id"])
            server.kill()

    with serving(tmp_path, *STORE) as server:
        assert listed(server) == ids
