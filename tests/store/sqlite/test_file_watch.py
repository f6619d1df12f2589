"""A change of the files under an open store is noticed and breaks the store."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from schedo.errors import StoreBroken, StoreDamaged, StoreError, StoreFull, StoreUnsuitable
from schedo.store.sqlite import file_guard, file_watch
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.crashes import content
from tests.store.steps import listed, of_jobs, put

SUFFIXES = ("", "-wal", "-shm", ".lock", ".last-commit")


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    for number in range(1, 10):
        await put(store, make_job(id=number, payload=b"x" * 2_000))
    # The log has started over after the open; now it is longer than it was before.
    await put(store, make_job(id=10, payload=b"x" * 500_000))
    yield store
    await store.close()


def remove(suffix: str, path: Path) -> None:
    os.remove(f"{path}{suffix}")


def replace(suffix: str, path: Path) -> None:
    """Put a copy in the place of the file, as an editor or a restore does."""
    shutil.copy(f"{path}{suffix}", f"{path}.copy")
    os.replace(f"{path}.copy", f"{path}{suffix}")


def put_older_back(path: Path) -> None:
    """Write an older copy over the database, which stays the same file of the same size."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def overwrite(suffix: str, path: Path) -> None:
    """Fill the file with zeros; it stays the same file of the same size."""
    rewrite(suffix, path, bytes(os.stat(f"{path}{suffix}").st_size))


def rewrite(suffix: str, path: Path, new: bytes) -> None:
    with open(f"{path}{suffix}", "r+b") as file:
        file.write(new)


def write(path: Path) -> None:
    """Write to the database through SQLite."""
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("UPDATE meta SET value = value + 1 WHERE name = 'epoch'")


REMOVALS: dict[str, Callable[[Path], object]] = {
    **{f"{suffix or 'db'} removed": partial(remove, suffix) for suffix in SUFFIXES},
    **{f"{suffix or 'db'} replaced": partial(replace, suffix) for suffix in SUFFIXES},
    "db moved": lambda path: os.rename(path, f"{path}.moved"),
    "db emptied": lambda path: os.truncate(path, 0),
    "db cut": lambda path: os.truncate(path, 4_096),
    "db overwritten in place": put_older_back,
    "-wal emptied": lambda path: os.truncate(f"{path}-wal", 0),
    "-wal cut": lambda path: os.truncate(f"{path}-wal", 3 * 4_120 + 32),
    "-wal cut by a byte": lambda path: os.truncate(
        f"{path}-wal", os.stat(f"{path}-wal").st_size - 1
    ),
    "-wal zeroed": lambda path: Path(f"{path}-wal").write_bytes(bytes(100_000)),
    "-shm emptied": lambda path: os.truncate(f"{path}-shm", 0),
    "-shm cut": lambda path: os.truncate(f"{path}-shm", 100),
    "-shm overwritten": partial(overwrite, "-shm"),
    ".last-commit overwritten": partial(overwrite, ".last-commit"),
    ".last-commit extended": lambda path: Path(f"{path}.last-commit").write_bytes(bytes(200)),
    "db written by another program": write,
    "directory renamed": lambda path: os.rename(path.parent, path.parent.parent / "renamed"),
}


@pytest.mark.parametrize("name", REMOVALS)
async def test_each_removal_or_replacement_of_a_file_is_noticed(
    store: SqliteStore, path: Path, name: str
) -> None:
    await store.check()
    REMOVALS[name](path)

    with pytest.raises(StoreBroken, match=r"while the server ran.*the server must stop"):
        await store.check()
    with pytest.raises(StoreBroken):
        await store.commit(of_jobs(make_job(id=99)))


@pytest.mark.parametrize("name", ["-shm overwritten", "db written by another program"])
async def test_a_commit_after_a_change_of_the_files_does_not_hide_it(
    store: SqliteStore, path: Path, name: str
) -> None:
    await store.check()
    REMOVALS[name](path)
    for number in range(20, 40):
        await put(store, make_job(id=number, payload=b"x" * 2_000))

    with pytest.raises(StoreBroken, match="while the server ran"):
        await store.check()


@pytest.mark.parametrize("later_commits", [0, 20])
async def test_an_older_index_of_the_log_is_noticed(
    store: SqliteStore, path: Path, later_commits: int
) -> None:
    older = content(Path(f"{path}-shm"))
    await put(store, make_job(id=20))
    rewrite("-shm", path, older)
    for number in range(later_commits):
        await put(store, make_job(id=30 + number))

    with pytest.raises(StoreBroken, match="the index of its log was overwritten"):
        await store.check()


async def test_a_commit_notices_that_the_last_commit_file_was_overwritten(
    store: SqliteStore, path: Path
) -> None:
    overwrite(".last-commit", path)

    with pytest.raises(StoreBroken, match=r"the last-commit file .* was overwritten while the"):
        await put(store, make_job(id=20))


@pytest.mark.parametrize(
    "name", ["db removed", "-wal removed", "db moved", "db replaced", "directory renamed"]
)
async def test_no_commit_is_acknowledged_when_the_files_have_been_removed(
    store: SqliteStore, path: Path, name: str
) -> None:
    REMOVALS[name](path)

    with pytest.raises(StoreBroken, match="while the server ran"):
        await store.commit(of_jobs(make_job(id=99)))


async def test_a_log_that_is_cut_between_two_commits_is_noticed_although_it_grew_again(
    store: SqliteStore, path: Path
) -> None:
    await store.check()
    await put(store, make_job(id=50))
    os.truncate(f"{path}-wal", 32)
    await put(store, make_job(id=51))

    with pytest.raises(StoreBroken, match="was truncated"):
        await store.check()


async def test_a_log_that_was_cut_is_not_copied_into_the_database(
    store: SqliteStore, path: Path
) -> None:
    before = os.stat(path).st_size, os.stat(path).st_mtime_ns
    os.truncate(f"{path}-wal", 32)

    await store.close()

    assert (os.stat(path).st_size, os.stat(path).st_mtime_ns) == before
    with pytest.raises(StoreDamaged):
        await SqliteStore(path).open()


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EIO, StoreBroken), (errno.ENOSPC, StoreFull), (errno.EACCES, StoreUnsuitable)],
)
async def test_a_start_distinguishes_a_failing_disk_from_an_unsuitable_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError]
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    places: tuple[tuple[type, str], ...] = (
        (file_watch.Files, "begin"),
        (file_guard.FileGuard, "take"),
    )
    for owner, name in places:
        monkeypatch.setattr(owner, name, fail)
        with pytest.raises(kind):
            await SqliteStore(path).open()
        monkeypatch.undo()


async def test_an_unreadable_log_breaks_the_store(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> bytes:
        raise OSError(errno.EIO, "the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fail)
        with pytest.raises(StoreBroken, match="cannot be read any more"):
            await store.check()


async def test_a_moved_store_can_be_restored(store: SqliteStore, path: Path) -> None:
    os.rename(path, f"{path}.moved")
    with pytest.raises(StoreBroken):
        await store.check()
    await store.close()
    os.rename(f"{path}.moved", path)

    await store.open()

    assert await listed(store) == list(range(10, 0, -1))


async def test_checkpoints_and_own_writes_do_not_count_as_changes(
    store: SqliteStore, path: Path
) -> None:
    assert store._writer is not None
    for number in range(100, 160):
        await put(store, make_job(id=number, payload=b"x" * 3_000))
        await store.check()
        if number % 7 == 0:
            await store._writer.run(store._checkpoint)
            await store.check()
    await store.snapshot()
    await store.check()


async def test_other_readers_do_not_count_as_changes(store: SqliteStore, path: Path) -> None:
    for number in range(100, 110):
        with closing(sqlite3.connect(path)) as shell:
            assert shell.execute("SELECT count(*) FROM job").fetchone() is not None
        await put(store, make_job(id=number))
        await store.check()
