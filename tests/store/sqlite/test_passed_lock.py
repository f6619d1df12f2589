"""A store that another process opens next: the log stays, and no third process gets the lock."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schedo.errors import StoreLocked, StoreUnsuitable
from schedo.store.sqlite.lock import FileLock
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.steps import put

TAKE = """
import sys
from schedo.errors import StoreLocked
from schedo.store.sqlite.lock import FileLock
try:
    FileLock(sys.argv[1]).acquire()
except StoreLocked:
    sys.exit(7)
"""


def is_refused_elsewhere(path: Path) -> bool:
    program = [sys.executable, "-c", TAKE, f"{path}.lock"]
    return subprocess.run(program, check=False).returncode == 7


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


async def pass_on(store: SqliteStore, path: Path) -> SqliteStore:
    """Close the store and return its successor, which owns copies of the descriptors."""
    lock, database = store.lock_descriptors()
    successor = SqliteStore(path)
    successor.inherit(os.dup(lock), os.dup(database))
    await store.close(keep_log=True)
    return successor


async def test_the_log_stays_and_the_successor_sees_every_commit(
    store: SqliteStore, path: Path
) -> None:
    await put(store, make_job(id=1))
    log_bytes = (path.parent / "jobs.db-wal").stat().st_size

    successor = await pass_on(store, path)
    left = (path.parent / "jobs.db-wal").stat().st_size
    snapshot = await successor.open()
    job = await successor.get_job(1)
    await successor.close()

    assert left >= log_bytes > 0
    assert (snapshot.epoch, snapshot.was_killed) == (2, False)
    assert job is not None


async def test_the_successor_copies_the_log_after_its_first_turn(
    store: SqliteStore, path: Path
) -> None:
    await put(store, make_job(id=1, payload=b"x" * 10_000))  # pages that no later commit writes
    successor = await pass_on(store, path)
    before = read(str(path))

    await successor.open()
    await put(successor, make_job(id=2))
    assert read(str(path)) == before
    successor._flush_old()
    await successor.check()  # by the thread that copies the log

    assert read(str(path)) != before
    await successor.close()


async def test_no_third_process_gets_the_lock_at_any_step(store: SqliteStore, path: Path) -> None:
    refused = [is_refused_elsewhere(path)]
    successor = await pass_on(store, path)
    refused.append(is_refused_elsewhere(path))
    await successor.open()
    refused.append(is_refused_elsewhere(path))
    await store.close()
    refused.append(is_refused_elsewhere(path))
    await successor.close()

    assert refused == [True] * 4
    assert not is_refused_elsewhere(path)


async def test_the_first_server_opens_its_store_again(store: SqliteStore, path: Path) -> None:
    await put(store, make_job(id=1))
    await store.close(keep_log=True)

    snapshot = await store.open()
    await put(store, make_job(id=2))

    assert (snapshot.epoch, snapshot.last_id) == (2, 1)
    with pytest.raises(StoreLocked, match=f"pid {os.getpid()}"):
        FileLock(f"{path}.lock").acquire()


async def test_the_end_of_the_first_server_leaves_the_text_of_the_second(
    store: SqliteStore, path: Path
) -> None:
    await put(store, make_job(id=1))
    successor = await pass_on(store, path)
    await successor.open()
    signed = read(f"{path}.lock")
    await store.close()

    assert signed == read(f"{path}.lock") != b""
    await successor.close()


async def test_a_first_server_that_died_before_its_close_counts_as_killed(
    store: SqliteStore, path: Path
) -> None:
    lock, database = store.lock_descriptors()
    signed = os.pread(lock, 1_000, 0)
    await store.close(keep_log=True)
    os.pwrite(lock, signed, 0)  # as if it had never closed
    successor = SqliteStore(path)
    successor.inherit(os.dup(lock), os.dup(database))

    snapshot = await successor.open()
    await successor.close()

    assert snapshot.was_killed


async def test_the_lock_of_another_file_is_refused(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    lock, database = store.lock_descriptors()
    other = SqliteStore(tmp_path / "other.db")
    await other.open()
    await other.close()
    other.inherit(os.dup(lock), os.dup(database))

    with pytest.raises(StoreUnsuitable, match=r"other\.db\.lock is not the file"):
        await other.open()

    assert is_refused_elsewhere(path)


async def test_a_shortened_log_leaves_little_to_the_next_open(
    store: SqliteStore, path: Path
) -> None:
    for id_ in range(1, 50):
        await put(store, make_job(id=id_))

    await store.shorten_log()
    await store.close(keep_log=True)

    alone = path.parent / "alone.db"
    shutil.copyfile(path, alone)
    copy = SqliteStore(alone, accept_loss=True)
    snapshot = await copy.open()
    await copy.close()
    assert snapshot.last_id == 49
