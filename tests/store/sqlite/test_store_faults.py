"""The SQLite store when the process, the disk or the file fails."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schedo.core.loads import LoadJob
from schedo.errors import StoreBroken, StoreDamaged, StoreError, StoreFull
from schedo.store.sqlite import reads
from schedo.store.sqlite.connection import connect_reader, open_reader
from schedo.store.sqlite.store import SqliteStore
from schedo.store.sqlite.waiting_count import WaitingCount
from tests.factories import make_job
from tests.sources import ROOT
from tests.store.crashes import checkpointed, garble
from tests.store.steps import listed, of_jobs, put

MEBIBYTE = 1_048_576


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Make writes beyond the size fail, which is an I/O error for SQLite."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def lay(path: Path, content: bytes) -> None:
    """Make the file, and its directory if need be."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def contents(path: Path) -> bytes:
    """Return the file's bytes."""
    return path.read_bytes()


def check_integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        found: str = connection.execute("PRAGMA integrity_check").fetchone()[0]
        return found
    finally:
        connection.close()


async def commit_until_killed(path: Path, commits: int) -> list[int]:
    """Return the ids that the process acknowledged before it was killed."""
    program = (sys.executable, "-m", "tests.store.committer", str(path))
    process = await asyncio.create_subprocess_exec(
        *program, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(commits):
        assert await process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    rest = await process.stdout.read()
    await process.wait()
    complete = rest[: rest.rfind(b"\n") + 1]
    return [int(line) for line in complete.split()]


async def test_acknowledged_commits_survive_kill_9(path: Path) -> None:
    for commits in (1, 40, 200):
        acknowledged = await commit_until_killed(path, commits)
        newest = max(acknowledged, default=commits)

        store = SqliteStore(path)
        opening = await store.open()
        found = await listed(store, limit=100_000)
        await store.close()

        # One durable commit may be unacknowledged; no acknowledged one may be missing.
        assert opening.last_id >= newest
        assert found == list(range(opening.last_id, 0, -1))
        assert check_integrity(path) == "ok"


async def test_a_full_disk_refuses_the_commit_and_stays_readable(store: SqliteStore) -> None:
    await put(store, make_job(id=1))
    assert store._writer is not None
    await store._writer.execute("PRAGMA max_page_count = 60")

    with pytest.raises(StoreFull, match=r"no room left for .*jobs\.db"):
        await store.commit(of_jobs(make_job(id=2), make_job(id=3, payload=b"x" * MEBIBYTE)))

    assert await listed(store) == [1]
    assert await store.load(LoadJob(2)) is None


async def test_reads_on_a_full_disk_need_no_flush(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: sqlite3.Connection, count: int) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    await put(store, make_job(id=1), make_job(id=2, payload=b"[2]"))
    monkeypatch.setattr(store._buffer, "_flush", fail)
    for _ in range(2):  # what memory holds, and then what the write buffer does
        assert await listed(store) == [2, 1]
    job = await store.get_job(2)
    assert job is not None
    assert job.payload == b"[2]"
    monkeypatch.undo()

    assert await listed(store) == [2, 1]


async def test_a_disk_that_has_free_space_again_takes_commits(store: SqliteStore) -> None:
    assert store._writer is not None
    await store._writer.execute("PRAGMA max_page_count = 60")
    with pytest.raises(StoreFull):
        await store.commit(of_jobs(make_job(id=1, payload=b"x" * MEBIBYTE)))
    await store._writer.execute("PRAGMA max_page_count = 100000")

    await put(store, make_job(id=1, payload=b"x" * MEBIBYTE))

    assert await listed(store) == [1]


async def test_after_an_io_error_every_call_fails(store: SqliteStore, path: Path) -> None:
    await put(store, make_job(id=1))

    with (
        files_limited_to(os.stat(path).st_size + MEBIBYTE // 2),
        pytest.raises(StoreBroken, match="the server must stop"),
    ):
        await store.commit(of_jobs(make_job(id=2, payload=b"x" * MEBIBYTE)))

    # There is room again, and SQLite itself would say OK.
    with pytest.raises(StoreBroken):
        await store.commit(of_jobs(make_job(id=3)))
    with pytest.raises(StoreBroken):
        await store.load(LoadJob(1))


async def test_a_broken_store_keeps_its_log_for_the_next_start(
    store: SqliteStore, path: Path
) -> None:
    await put(store, make_job(id=1))
    with (
        files_limited_to(os.stat(path).st_size + MEBIBYTE // 2),
        pytest.raises(StoreBroken),
    ):
        await store.commit(of_jobs(make_job(id=2, payload=b"x" * MEBIBYTE)))

    await store.close()
    assert os.stat(f"{path}-wal").st_size > 0
    await store.open()

    assert await listed(store) == [1]
    assert check_integrity(path) == "ok"


async def test_after_a_damaged_page_every_call_reports_the_damage(
    store: SqliteStore, path: Path
) -> None:
    await put(store, *[make_job(id=number, payload=b"x" * 3_000) for number in range(1, 999)])
    await listed(store)  # flushes the write buffer
    await checkpointed(store)
    garble(path)

    with pytest.raises(StoreDamaged, match="SQLITE_CORRUPT"):
        await listed(store, limit=1_000)
    with pytest.raises(StoreDamaged):
        await store.load(LoadJob(1))
    with pytest.raises(StoreDamaged):
        await store.commit(of_jobs(make_job(id=1_000)))


async def test_another_writer_delays_a_commit_but_does_not_break_the_store(
    store: SqliteStore, path: Path
) -> None:
    assert store._writer is not None
    await store._writer.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreError, match="another program is writing"):
        await store.commit(of_jobs(make_job(id=1)))
    other.close()

    await put(store, make_job(id=1))


async def test_a_cancelled_caller_does_not_cut_a_commit_or_a_close_short(
    store: SqliteStore,
) -> None:
    commit = asyncio.create_task(store.commit(of_jobs(make_job(id=1))))
    asyncio.get_running_loop().call_soon(commit.cancel)
    with pytest.raises(asyncio.CancelledError):
        await commit
    close = asyncio.create_task(store.close())
    asyncio.get_running_loop().call_soon(close.cancel)
    with pytest.raises(asyncio.CancelledError):
        await close

    await store.close()
    await store.open()

    assert await listed(store) == [1]


@pytest.mark.parametrize(
    "content", [b"[Unit]\nDescription=not a database\n" * 50, b"SQLite format 3\0" + b"\7" * 5_000]
)
async def test_a_file_that_is_no_database_is_refused_and_not_changed(
    path: Path, content: bytes
) -> None:
    lay(path, content)

    with pytest.raises(StoreError, match=r"jobs\.db"):
        await SqliteStore(path).open()

    assert contents(path) == content
    assert sorted(os.listdir(path.parent)) == ["jobs.db", "jobs.db.lock"]


async def test_the_database_of_another_program_is_refused_and_not_changed(path: Path) -> None:
    lay(path, b"")
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmark (url TEXT)")
    other.close()
    content = contents(path)

    with pytest.raises(StoreError, match="belongs to another program; nothing was changed"):
        await SqliteStore(path).open()

    assert contents(path) == content


async def test_a_file_of_a_newer_version_is_refused_and_not_changed(
    store: SqliteStore, path: Path
) -> None:
    await store.close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 9999")
    newer.close()
    content = contents(path)

    with pytest.raises(StoreError, match=r"newer schedo \(schema 9999, this one knows \d+\)"):
        await SqliteStore(path).open()

    assert contents(path) == content


def test_a_damaged_file_that_cannot_be_read_is_closed(path: Path) -> None:
    lay(path, b"SQLite format 3\0" + b"\7" * 5_000)

    with pytest.raises(sqlite3.DatabaseError) as caught:
        open_reader(str(path))

    (connection,) = [
        entry.locals["connection"] for entry in caught.traceback if entry.name == "open_reader"
    ]
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")


async def test_a_directory_in_the_place_of_the_file_is_an_error(path: Path) -> None:
    os.makedirs(path)

    with pytest.raises(StoreError, match="is a directory"):
        await SqliteStore(path).open()


async def test_an_opening_that_is_cancelled_leaves_no_thread_behind(path: Path) -> None:
    before = threading.active_count()
    for turns in range(8):
        store = SqliteStore(path)
        opening = asyncio.create_task(store.open())
        for _ in range(turns):
            await asyncio.wait([opening], timeout=0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await store.close()

        assert threading.active_count() == before


async def test_a_snapshot_that_fails_leaves_the_count_of_the_last_one(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, make_job(id=1))
    epoch = (await store.snapshot()).epoch
    threads = threading.active_count()

    def fail(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("the disk is full")

    monkeypatch.setattr(reads, "read_snapshot", fail)
    with pytest.raises(StoreError):
        await store.snapshot()

    assert await store.count_waiting(epoch) == {"default": {"queued": 1}}
    assert threading.active_count() <= threads


async def test_a_count_that_ends_before_its_first_step_leaves_no_thread_behind(
    store: SqliteStore, path: Path
) -> None:
    await store.count_waiting(1)  # so that the store's own count has ended
    before = threading.active_count()
    count = WaitingCount(connect_reader(str(path)))
    count.fix()
    await count.connection
    await count.begin(1)

    await count.end()

    assert threading.active_count() == before


async def test_a_count_that_could_not_begin_leaves_no_thread_behind(
    store: SqliteStore, path: Path
) -> None:
    await store.count_waiting(1)  # so that the store's own count has ended
    before = threading.active_count()
    count = WaitingCount(connect_reader(str(path)))
    count.fix()

    await count.end()

    assert threading.active_count() == before


async def test_a_store_that_could_not_open_can_be_opened_when_the_cause_is_gone(
    path: Path,
) -> None:
    os.makedirs(path)
    store = SqliteStore(path)
    with pytest.raises(StoreError):
        await store.open()
    os.rmdir(path)

    opening = await store.open()
    await store.close()

    assert opening.epoch == 1
