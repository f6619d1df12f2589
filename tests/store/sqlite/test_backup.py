"""A backup is the whole store at one instant, whatever the server commits meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from schedo.core.changes import Changes
from schedo.errors import Overloaded, StoreDamaged, StoreFull, StoreLocked, StoreUnsuitable
from schedo.store.sqlite import backup as backups
from schedo.store.sqlite.backup import Cancelled, back_up_stopped, write_backup
from schedo.store.sqlite.last_commit import SUFFIX
from schedo.store.sqlite.startup_checks import size_of
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.sqlite.test_passed_lock import pass_on
from tests.store.steps import LARGE, put

NOW = 1_700_000_000_000_000


def now() -> int:
    return NOW


async def jobs_of(path: Path) -> list[int]:
    store = SqliteStore(path)
    await store.open()
    found = [id_ for id_ in range(1, 50) if await store.get_job(id_) is not None]
    await store.close()
    return found


def copy_of(path: Path) -> Path:
    return path.with_name("copy.db")


async def save(store: SqliteStore, path: Path) -> Path:
    file, _ = await store.backup(now)
    with file:
        copy_of(path).write_bytes(file.read())
    return copy_of(path)


async def test_a_backup_has_the_jobs_of_the_tables_and_of_the_write_buffer(
    store: SqliteStore, path: Path
) -> None:
    await put(store, make_job(id=1, payload=LARGE))
    await store.get_job(1)  # flushes the buffer
    await put(store, make_job(id=2))

    copy = await save(store, path)

    assert await jobs_of(copy) == [1, 2]


async def test_commits_during_a_backup_do_not_begin_it_again(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "_STEP_PAGES", 1)
    await put(store, make_job(id=1))
    steps = 0

    def is_cancelled() -> bool:
        nonlocal steps
        steps += 1
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("INSERT INTO meta (name, value) VALUES (?, 1)", (f"step {steps}",))
        return False

    write_backup(str(path), str(copy_of(path)), now, is_cancelled)

    with closing(sqlite3.connect(copy_of(path))) as copy:
        (pages,) = copy.execute("PRAGMA page_count").fetchone()
        found = copy.execute("SELECT count(*) FROM meta WHERE name LIKE 'step %'").fetchone()
    assert steps <= pages
    assert found == (0,)


async def test_a_backup_is_one_file_for_this_user_alone(store: SqliteStore, path: Path) -> None:
    await put(store, make_job(id=1))

    instant = write_backup(str(path), str(copy_of(path)), now, lambda: False)

    assert instant == NOW
    assert stat.S_IMODE(copy_of(path).stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy_of(path))) as copy:
        assert copy.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert copy.execute("SELECT value FROM meta WHERE name = 'backed_up_at'").fetchone() == (
            NOW,
        )
    assert [each.name for each in path.parent.glob("copy*")] == ["copy.db"]


async def test_a_cancelled_backup_leaves_no_file(store: SqliteStore, path: Path) -> None:
    with pytest.raises(Cancelled):
        write_backup(str(path), str(copy_of(path)), now, lambda: True)

    assert not copy_of(path).exists()


async def test_a_backup_replaces_no_file(store: SqliteStore, path: Path) -> None:
    copy_of(path).write_text("mine")

    with pytest.raises(StoreUnsuitable, match="File exists"):
        write_backup(str(path), str(copy_of(path)), now, lambda: False)

    assert copy_of(path).read_text() == "mine"


async def test_a_backup_leaves_room_for_the_log(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "FREE_BYTES_MIN", 1 << 62)

    with pytest.raises(StoreFull, match="there is no room"):
        await store.backup(now)

    await put(store, make_job(id=1))
    assert not list(path.parent.glob("*backup*"))


async def test_one_backup_runs_at_a_time(store: SqliteStore, path: Path) -> None:
    first, second = await asyncio.gather(
        store.backup(now), store.backup(now), return_exceptions=True
    )

    assert not isinstance(first, BaseException)
    assert isinstance(second, Overloaded)
    first[0].close()
    (await store.backup(now))[0].close()


async def test_the_log_starts_over_after_a_backup(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.store.sqlite.connection.WAL_BYTES_MAX", 1)
    (await store.backup(now))[0].close()

    await store.check()  # after the checkpoint

    await put(store, make_job(id=1))
    assert size_of(f"{path}-wal") < 1_000_000


@pytest.fixture
def left_behind(path: Path) -> Path:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    left = Path(str(path) + backups.UNFINISHED_SUFFIX)
    left.write_text("half")
    return left


async def test_an_unfinished_backup_of_a_killed_server_is_removed(
    path: Path, left_behind: Path
) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()

    assert left_behind not in path.parent.iterdir()


async def test_a_backup_is_finished_although_the_store_passes_to_another_process(
    store: SqliteStore, path: Path
) -> None:
    await put(store, make_job(id=1))
    has_begun, may_go_on = threading.Event(), threading.Event()

    def wait() -> int:  # the file is there, and has no pages yet
        has_begun.set()
        may_go_on.wait(10)
        return 1

    copying = asyncio.create_task(store.backup(wait))
    await asyncio.to_thread(has_begun.wait, 10)
    successor = await pass_on(store, path)
    await successor.open()
    may_go_on.set()

    file, _ = await copying
    with file:
        assert file.read(16) == b"SQLite format 3\0"
    await successor.close()
    assert not [each for each in path.parent.iterdir() if "backup" in each.name]


async def test_a_store_in_memory_cannot_be_backed_up() -> None:
    store = SqliteStore(":memory:")
    await store.open()

    with pytest.raises(StoreUnsuitable, match="in memory"):
        await store.backup(now)

    await store.close()


async def test_the_store_of_a_stopped_server_is_copied(store: SqliteStore, path: Path) -> None:
    await store.commit(Changes(jobs={1: make_job(id=1, is_new=True)}))
    await store.close()
    lock = path.with_name(path.name + ".lock").read_bytes()

    back_up_stopped(str(path), str(copy_of(path)), now)

    assert await jobs_of(copy_of(path)) == [1]
    assert path.with_name(path.name + ".lock").read_bytes() == lock


async def test_a_store_that_a_server_holds_is_not_copied_directly(
    store: SqliteStore, path: Path
) -> None:
    with pytest.raises(StoreLocked):
        back_up_stopped(str(path), str(copy_of(path)), now)


@pytest.fixture
def spoil(path: Path) -> Callable[[], None]:
    def do() -> None:
        text = Path(str(path) + SUFFIX).read_bytes()
        assert b"whole" in text
        path.unlink()
        path.touch()

    return do


async def test_a_damaged_store_is_not_copied(
    store: SqliteStore, path: Path, spoil: Callable[[], None]
) -> None:
    await store.close()
    spoil()

    with pytest.raises(StoreDamaged):
        back_up_stopped(str(path), str(copy_of(path)), now)

    assert not copy_of(path).exists()


def test_a_missing_store_is_not_copied(tmp_path: Path) -> None:
    with pytest.raises(StoreUnsuitable, match="there is no store"):
        back_up_stopped(str(tmp_path / "none.db"), str(tmp_path / "copy.db"), now)

    assert list(tmp_path.iterdir()) == []


async def test_a_backup_has_no_key_of_sessions(store: SqliteStore, path: Path) -> None:
    key = await store.session_key()
    write_backup(str(path), str(copy_of(path)), now, lambda: False)

    assert key not in copy_of(path).read_bytes()
    copy = SqliteStore(copy_of(path))
    await copy.open()
    assert await copy.session_key() != key
    await copy.close()


async def test_the_next_server_has_the_same_key_of_sessions(store: SqliteStore, path: Path) -> None:
    key = await store.session_key()
    await store.close()
    await store.open()

    assert await store.session_key() == key
