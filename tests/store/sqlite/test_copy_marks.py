"""A server notices a plain copy of an open store's file, and begins paused on a backup."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from schedo.core.model import PauseScope
from schedo.errors import StoreDamaged
from schedo.store.base import Snapshot
from schedo.store.sqlite.backup import back_up_stopped, write_backup
from schedo.store.sqlite.last_commit import read_mark
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.files import Crashed
from tests.store.steps import put

NOW = 1_700_000_000_000_000


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    await put(store, make_job(id=1))
    yield store
    await store.close()


def as_bytes(path: Path) -> bytes:
    return path.read_bytes()


def plain_copy(path: Path, *suffixes: str) -> Path:
    """Copy the files as `cp` does."""
    target = path.with_name("copy.db")
    for suffix in ("", *suffixes):
        shutil.copy(f"{path}{suffix}", f"{target}{suffix}")
    return target


async def opened(path: Path, *, accept_loss: bool = False) -> Snapshot:
    store = SqliteStore(path, accept_loss=accept_loss)
    try:
        return await store.open()
    finally:
        await store.close()


async def has_job(path: Path) -> bool:
    store = SqliteStore(path)
    await store.open()
    found = await store.get_job(1)
    await store.close()
    return found is not None


async def test_a_plain_copy_of_an_open_store_is_refused_and_the_backup_named(
    store: SqliteStore, path: Path
) -> None:
    copy = plain_copy(path)
    before = as_bytes(copy)

    with pytest.raises(StoreDamaged, match="`schedo backup` makes a complete copy"):
        await opened(copy)

    assert as_bytes(copy) == before


async def test_a_plain_copy_is_refused_from_the_first_moment(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()

    with pytest.raises(StoreDamaged, match="plain copy"):
        await opened(plain_copy(path))

    await store.close()


async def test_the_loss_of_a_plain_copy_can_be_accepted(store: SqliteStore, path: Path) -> None:
    copy = plain_copy(path)

    await opened(copy, accept_loss=True)

    assert not await has_job(copy)


async def test_a_copy_with_its_log_is_complete(store: SqliteStore, path: Path) -> None:
    assert await has_job(plain_copy(path, "-wal"))


async def test_a_copy_of_a_closed_store_is_complete(store: SqliteStore, path: Path) -> None:
    await store.close()

    assert await has_job(plain_copy(path))


async def test_a_copy_of_the_store_of_a_killed_server_without_its_log_is_refused(
    store: SqliteStore, path: Path
) -> None:
    killed = Crashed(path)
    await store.close()

    with pytest.raises(StoreDamaged, match="plain copy"):
        await opened(plain_copy(killed.path))


async def test_copies_that_sqlite_makes_are_complete(store: SqliteStore, path: Path) -> None:
    online, vacuumed = path.with_name("online.db"), path.with_name("vacuumed.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(online)) as target:
        source.backup(target)
        source.execute("VACUUM INTO ?", (str(vacuumed),))

    assert await has_job(online)
    assert await has_job(vacuumed)


async def test_a_store_without_its_last_commit_file_opens(store: SqliteStore, path: Path) -> None:
    killed = Crashed(path)
    await store.close()
    copy = plain_copy(killed.path, "-wal")
    assert read_mark(str(copy)) is None

    assert await has_job(copy)


async def test_a_backup_opens_paused_as_another_store(store: SqliteStore, path: Path) -> None:
    copy = path.with_name("copy.db")
    write_backup(str(path), str(copy), lambda: NOW, lambda: False)

    snapshot = await opened(copy)
    again = await opened(copy)

    note = "restored from the backup of 2023-11-14 22:13:20+00:00"
    assert {pause.scope for pause in snapshot.pauses} == set(PauseScope)
    assert {(pause.note, pause.since) for pause in snapshot.pauses} == {(note, NOW)}
    assert snapshot.epoch > 1_000_000
    assert (again.epoch, again.pauses) == (snapshot.epoch + 1, snapshot.pauses)
    original, restored = read_mark(str(path)), read_mark(str(copy))
    assert original is not None
    assert restored is not None
    assert original.store != restored.store


async def test_the_original_of_a_backup_goes_on_unpaused(store: SqliteStore, path: Path) -> None:
    await store.close()
    back_up_stopped(str(path), str(path.with_name("copy.db")), lambda: NOW)

    snapshot = await opened(path)

    assert (snapshot.epoch, snapshot.pauses) == (2, [])


async def test_a_backup_of_an_open_store_has_no_witness_and_no_log(
    store: SqliteStore, path: Path
) -> None:
    copy = path.with_name("copy.db")
    write_backup(str(path), str(copy), lambda: NOW, lambda: False)

    names = {each.name for each in path.parent.iterdir() if each.name.startswith("copy")}

    assert names == {"copy.db"}
    assert await has_job(copy)
    assert read_mark(str(copy)) is not None
