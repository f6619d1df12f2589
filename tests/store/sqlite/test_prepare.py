"""A store that is prepared beside the server that holds it, and opened when that one is gone."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from schedo.core.loads import LoadJob
from schedo.core.model import Job
from schedo.core.states import State
from schedo.errors import StoreDamaged, StoreLocked, StoreUnsuitable
from schedo.store.sqlite import connection as connections
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.files import Crashed, in_table
from tests.store.steps import all_jobs, put


def content(path: Path) -> dict[str, bytes]:
    """Return what is on the disk: the database and the files beside it."""
    return {
        suffix: Path(f"{path}{suffix}").read_bytes()
        for suffix in ("", "-wal", ".lock", ".last-commit")
    }


async def make_closed_store(path: Path, *jobs: Job) -> None:
    store = SqliteStore(path)
    await store.open()
    await put(store, *jobs)
    await store.close()


def overwrite(path: Path) -> None:
    path.write_bytes(b"no database" * 1_000)


def killed(path: Path) -> Crashed:
    """Return the files as they are after the server was killed."""
    crashed = Crashed(path)
    shutil.copy(f"{path}.lock", f"{crashed.path}.lock")
    return crashed


async def test_a_prepared_store_opens_with_all_that_was_committed_meanwhile(
    path: Path, store: SqliteStore
) -> None:
    await put(store, make_job(id=1))
    following = SqliteStore(path)
    await following.prepare()
    await put(store, make_job(id=2))
    await store.close()

    snapshot = await following.open()

    assert (snapshot.epoch, snapshot.last_id, snapshot.running) == (2, 2, [])
    await put(following, make_job(id=3))
    assert [job.id for job in await all_jobs(following)] == [3, 2, 1]
    assert await following.count_waiting(2) == {"default": {"queued": 2}}
    await following.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_snapshot_has_the_running_jobs(store: SqliteStore) -> None:
    await put(store, make_job(id=1, state=State.RUNNING), make_job(id=2))

    snapshot = await store.snapshot()

    assert [job.id for job in snapshot.running or ()] == [1]


async def test_preparing_writes_nothing_and_leaves_the_lock_alone(
    path: Path, store: SqliteStore
) -> None:
    await put(store, make_job(id=1))
    before = content(path)
    following = SqliteStore(path)

    await following.prepare()

    assert content(path) == before
    with pytest.raises(StoreLocked):
        await following.open()
    assert content(path) == before
    await put(store, make_job(id=2))
    await store.check()


async def test_a_store_that_is_prepared_and_closed_can_be_prepared_again(path: Path) -> None:
    await make_closed_store(path)
    threads = threading.active_count()
    following = SqliteStore(path)
    for _ in range(2):
        await following.prepare()
        assert threading.active_count() > threads
        await following.close()
        assert threading.active_count() == threads


async def test_a_store_that_does_not_exist_yet_is_made_by_the_open(path: Path) -> None:
    store = SqliteStore(path)
    await store.prepare()
    assert path.name not in os.listdir(path.parent)

    assert (await store.open()).epoch == 1

    await store.close()


async def test_a_file_that_was_exchanged_after_the_preparation_is_read_anew(path: Path) -> None:
    await make_closed_store(path, make_job(id=1))
    await make_closed_store(path.with_name("other.db"), make_job(id=2))
    following = SqliteStore(path)
    await following.prepare()
    for suffix in ("", ".last-commit"):
        os.replace(path.with_name(f"other.db{suffix}"), f"{path}{suffix}")

    await following.open()

    assert [job.id for job in await all_jobs(following)] == [2]
    assert await in_table(following) == {2: "queued"}
    await following.close()


async def test_a_commit_that_was_lost_after_the_preparation_is_noticed(
    path: Path, store: SqliteStore
) -> None:
    await put(store, make_job(id=1))
    crashed = killed(path)
    following = SqliteStore(crashed.path)
    await following.prepare()
    await put(store, make_job(id=2))
    shutil.copy(f"{path}.last-commit", f"{crashed.path}.last-commit")

    with pytest.raises(StoreDamaged, match="up to 1 commits are missing"):
        await following.open()


@pytest.mark.parametrize(
    ("statement", "error"),
    [("PRAGMA user_version = 99", StoreUnsuitable), ("PRAGMA application_id = 7", StoreDamaged)],
)
async def test_a_file_that_cannot_be_opened_cannot_be_prepared(
    path: Path, statement: str, error: type[Exception]
) -> None:
    await make_closed_store(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)

    with pytest.raises(error):
        await SqliteStore(path).prepare()


async def test_an_unsafe_directory_is_refused_before_the_lock_is_free(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.parent.chmod(0o777)

    with pytest.raises(StoreUnsuitable, match="every user may write"):
        await SqliteStore(path).prepare()


async def test_a_damaged_file_cannot_be_prepared(path: Path) -> None:
    await make_closed_store(path)
    overwrite(path)

    with pytest.raises(StoreDamaged):
        await SqliteStore(path).prepare()


@pytest.mark.parametrize("commits", [0, 1])
@pytest.mark.parametrize("is_long", [False, True])
async def test_after_a_kill_the_log_is_copied_soon_after_the_first_turn(
    path: Path,
    store: SqliteStore,
    monkeypatch: pytest.MonkeyPatch,
    is_long: bool,
    commits: int,
    no_timed_flush: float,
) -> None:
    await put(store, make_job(id=1, payload=b"x" * 10_000))  # pages that no later commit writes
    crashed = killed(path)
    if is_long:  # beside another server it would be copied after each commit
        monkeypatch.setattr(connections, "WAL_BYTES_MAX", 0)
    before = crashed.path.read_bytes()
    following = SqliteStore(crashed.path)

    await following.open()
    await put(following, *(make_job(id=2 + n) for n in range(commits)))

    assert len(await all_jobs(following)) == 1 + commits
    assert crashed.path.read_bytes() == before
    timer = following._flush_timer
    assert timer is not None
    assert timer.when() - asyncio.get_running_loop().time() <= no_timed_flush
    timer.cancel()
    following._flush_old()
    await following.check()  # by the thread that copies the log
    assert crashed.path.read_bytes() != before
    await following.close()


async def test_a_backup_delays_the_copy_of_the_log_that_a_killed_server_has_left(
    path: Path, store: SqliteStore
) -> None:
    await put(store, make_job(id=1))
    crashed = killed(path)
    before = crashed.path.read_bytes()
    following = SqliteStore(crashed.path)
    await following.open()

    following._is_copied = True
    following._flush_old()
    await following.check()
    assert crashed.path.read_bytes() == before
    following._is_copied = False
    following._flush_old()
    await following.check()

    assert crashed.path.read_bytes() != before
    await following.close()


async def test_a_store_in_memory_needs_no_preparation() -> None:
    store = SqliteStore(":memory:")
    await store.prepare()

    assert (await store.open()).epoch == 1

    await store.close()


async def test_after_a_kill_the_recovery_is_in_the_tables_and_later_commits_are_buffered(
    path: Path, store: SqliteStore
) -> None:
    await put(store, make_job(id=1))
    following = SqliteStore(killed(path).path)
    await following.open()
    await put(following, make_job(id=2))
    assert await in_table(following) == {1: "queued", 2: "queued"}

    await following.load(LoadJob(1))
    await put(following, make_job(id=3))

    assert await in_table(following) == {1: "queued", 2: "queued"}
    assert {job.id for job in await all_jobs(following)} == {1, 2, 3}
    await following.close()


async def test_no_commit_waits_for_the_count_of_the_waiting_jobs_to_empty_a_long_log(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[bool] = []

    def empty(connection: sqlite3.Connection) -> bool:
        waits.append(True)
        return True

    monkeypatch.setattr(connections, "truncate_log", empty)
    monkeypatch.setattr(connections, "WAL_BYTES_ALARM", 0)
    await put(store, make_job(id=1))
    following = SqliteStore(killed(path).path)
    epoch = (await following.open()).epoch  # the count begins a moment later

    await following.shorten_log()
    assert not waits
    await following.count_waiting(epoch)
    await following.shorten_log()

    assert waits
    monkeypatch.undo()
    await following.close()
