"""The wait for the locks of a database: in the kernel, for both of them, and never too early."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from pathlib import Path

import pytest

from schedo.errors import StoreUnsuitable
from schedo.store.sqlite.lock import FileLock, read_holder
from schedo.store.sqlite.lock_wait import HeldLocks, take_free_locks, wait_for_locks
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.steps import put


def begin_wait(path: Path) -> asyncio.Task[HeldLocks]:
    return asyncio.create_task(wait_for_locks(str(path)))


async def blocked_in_the_kernel(path: Path, count: int = 1) -> None:
    """Return once as many threads of this process wait for a lock of the file."""
    inode = os.stat(path).st_ino
    while True:
        lines = await asyncio.to_thread(Path("/proc/locks").read_text)
        waits = [line for line in lines.splitlines() if "->" in line and f":{inode} " in line]
        if len(waits) >= count:
            return


def is_free(path: Path) -> bool:
    """Return whether another process could lock the file now."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def server(tmp_path: Path) -> FileLock:
    """The lock of the store as a server holds it that serves now."""
    held = FileLock(str(tmp_path / "jobs.db.lock"))
    held.acquire()
    return held


async def test_a_free_store_is_held_at_once(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    held = await wait_for_locks(str(path))

    assert (held.has_waited, held.database) == (False, None)
    assert not is_free(tmp_path / "jobs.db.lock")
    held.release()


def test_the_locks_of_a_free_store_are_taken_without_a_wait(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.touch()

    held = take_free_locks(str(path))

    assert held is not None
    assert not is_free(path)
    held.release()


@pytest.mark.parametrize("name", ["jobs.db.lock", "jobs.db"])
def test_a_store_with_one_held_lock_is_not_taken(tmp_path: Path, name: str) -> None:
    for each in ("jobs.db.lock", "jobs.db"):
        (tmp_path / each).touch()
    with (tmp_path / name).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        assert take_free_locks(str(tmp_path / "jobs.db")) is None

    assert is_free(tmp_path / "jobs.db.lock")


async def test_both_locks_are_waited_for(tmp_path: Path, server: FileLock) -> None:
    path, lock = tmp_path / "jobs.db", tmp_path / "jobs.db.lock"
    path.touch()
    with path.open("rb") as database:
        fcntl.flock(database, fcntl.LOCK_EX)
        waiting = begin_wait(path)
        await blocked_in_the_kernel(lock)
        server.release()
        await blocked_in_the_kernel(path)
        assert not waiting.done()
    held = await waiting

    assert held.has_waited
    assert not is_free(path)
    held.release()


async def test_of_two_waiters_one_gets_the_locks_and_the_other_waits_on(
    tmp_path: Path, server: FileLock
) -> None:
    path, lock = tmp_path / "jobs.db", tmp_path / "jobs.db.lock"
    waits = {begin_wait(path), begin_wait(path)}
    await blocked_in_the_kernel(lock, 2)
    server.release()

    done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    first, second = done.pop(), rest.pop()
    await blocked_in_the_kernel(lock)
    assert not second.done()
    first.result().release()

    (await second).release()


async def test_a_lock_file_that_was_replaced_does_not_count(
    tmp_path: Path, server: FileLock
) -> None:
    path, lock = tmp_path / "jobs.db", tmp_path / "jobs.db.lock"
    waiting = begin_wait(path)
    await blocked_in_the_kernel(lock)
    lock.unlink()
    other = FileLock(str(lock))
    other.acquire()
    server.release()
    await blocked_in_the_kernel(lock)
    assert not waiting.done()
    other.release()

    (await waiting).release()


async def test_an_abandoned_wait_releases_what_it_gets(tmp_path: Path, server: FileLock) -> None:
    path, lock = tmp_path / "jobs.db", tmp_path / "jobs.db.lock"
    waiting = begin_wait(path)
    await blocked_in_the_kernel(lock)
    waiting.cancel()
    await asyncio.wait([waiting])
    threads = [each for each in threading.enumerate() if each.name == "schedo lock"]
    server.release()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    held = await wait_for_locks(str(path))  # its thread runs after the callback of the first one

    assert waiting.cancelled()
    held.release()


async def test_a_lock_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "jobs.db.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoreUnsuitable, match=r"cannot open .*jobs\.db\.lock"):
        await wait_for_locks(str(tmp_path / "jobs.db"))


async def test_a_wait_ends_with_an_error_if_the_directory_was_removed(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    server = FileLock(str(directory / "jobs.db.lock"))
    server.acquire()
    waiting = begin_wait(directory / "jobs.db")
    await blocked_in_the_kernel(directory / "jobs.db.lock")
    directory.rename(tmp_path / "away")

    server.release()

    with pytest.raises(StoreUnsuitable, match=r"the directory .*/store was removed or moved away"):
        await waiting
    assert not directory.exists()


async def test_a_store_that_was_waited_for_opens_and_knows_how_the_last_server_ended(
    tmp_path: Path,
) -> None:
    first = SqliteStore(tmp_path / "jobs.db")
    await first.open()
    await put(first, make_job(id=1))
    second = SqliteStore(tmp_path / "jobs.db")
    holding = asyncio.create_task(second.hold())
    await blocked_in_the_kernel(tmp_path / "jobs.db.lock")
    await second.prepare()
    await first.close()
    held = await holding
    snapshot = await second.open()
    job = await second.get_job(1)
    await second.close()

    assert held is not None
    assert held.has_waited
    assert (snapshot.epoch, snapshot.was_killed) == (2, False)
    assert job is not None


async def test_a_store_that_was_held_and_not_opened_leaves_the_text_of_the_lock(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "jobs.db.lock"
    lock.write_text("pid 77 on host\nboot x\n")
    store = SqliteStore(tmp_path / "jobs.db")
    await store.hold()
    await store.close()

    assert read_holder(str(lock)) == 77
    assert is_free(lock)


async def test_a_store_in_memory_needs_no_lock() -> None:
    store = SqliteStore(":memory:")

    assert await store.hold() is None
    await store.close()


@pytest.mark.parametrize("text", ["", "x", "pid", "pid x on host", "pid -1 on host"])
def test_a_text_without_a_pid_names_no_holder(tmp_path: Path, text: str) -> None:
    (tmp_path / "jobs.db.lock").write_text(text)

    assert read_holder(f"{tmp_path}/jobs.db.lock") is None
    assert read_holder(f"{tmp_path}/missing") is None
