"""A restore puts a checked backup in place of a store, and keeps the old one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from schedo.errors import StoreDamaged, StoreLocked, StoreUnsuitable
from schedo.store.sqlite import restore as restores
from schedo.store.sqlite.backup import back_up_stopped
from schedo.store.sqlite.restore import restore_store
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.steps import put

NOW = 1_700_000_000_000_000


async def make_store(path: Path, job_id: int) -> None:
    store = SqliteStore(path)
    await store.open()
    await put(store, make_job(id=job_id))
    await store.close()


@pytest.fixture
async def backup(path: Path) -> str:
    """A backup of a store with job 1."""
    await make_store(path, 1)
    target = str(path.with_name("backup.db"))
    back_up_stopped(str(path), target, lambda: NOW)
    return target


def restore(backup: str, target: Path, *, force: bool = False) -> list[str]:
    return restore_store(backup, str(target), NOW, is_replacing=force)


async def jobs_of(path: Path) -> list[int]:
    store = SqliteStore(path)
    await store.open()
    found = [job_id for job_id in (1, 2) if await store.get_job(job_id) is not None]
    await store.close()
    return found


async def test_a_backup_is_restored_to_a_new_place(backup: str, path: Path) -> None:
    target = path.with_name("elsewhere") / "new.db"

    assert restore(backup, target) == []

    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(each.name for each in target.parent.iterdir()) == ["new.db", "new.db.lock"]
    assert await jobs_of(target) == [1]


async def test_an_existing_store_is_kept_aside_only_by_force(backup: str, path: Path) -> None:
    target = path.with_name("other.db")
    await make_store(target, 2)

    with pytest.raises(StoreUnsuitable, match="--force keeps it aside"):
        restore(backup, target)
    assert await jobs_of(target) == [2]
    kept = restore(backup, target, force=True)

    stamp = "20231114T221320Z"
    assert kept == [f"{target}.replaced-{stamp}", f"{target}.replaced-{stamp}.last-commit"]
    assert await jobs_of(target) == [1]
    assert await jobs_of(Path(kept[0])) == [2]


async def test_a_store_that_a_server_holds_is_not_replaced(backup: str, path: Path) -> None:
    store = SqliteStore(path)
    await store.open()

    with pytest.raises(StoreLocked):
        restore(backup, path, force=True)

    await store.close()
    assert await jobs_of(path) == [1]


def spoil(backup: str, path: Path) -> str:
    """Return a copy of the backup with an empty page in it."""
    spoiled = path.with_name("spoiled.db")
    content = bytearray(Path(backup).read_bytes())
    content[8_192:12_288] = bytes(4_096)
    spoiled.write_bytes(content)
    return str(spoiled)


async def test_a_damaged_backup_is_not_restored(backup: str, path: Path) -> None:
    target = path.with_name("new.db")

    with pytest.raises(StoreDamaged, match="is not a whole store"):
        restore(spoil(backup, path), target)

    assert not target.exists()


async def test_a_store_is_not_restored_as_if_it_were_a_backup(backup: str, path: Path) -> None:
    with pytest.raises(StoreUnsuitable, match="not a backup"):
        restore(str(path), path.with_name("new.db"))


async def test_a_second_restore_within_a_second_keeps_what_the_first_kept(
    backup: str, path: Path
) -> None:
    restore(backup, path, force=True)

    with pytest.raises(StoreUnsuitable, match="try again in a second"):
        restore(backup, path, force=True)

    assert await jobs_of(path) == [1]


async def test_a_restore_that_fails_halfway_leaves_no_file(
    backup: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str, flags: int = 0) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(restores, "_sync", fail)
    target = path.with_name("new.db")

    with pytest.raises(StoreUnsuitable, match="the disk is gone"):
        restore(backup, target)

    assert not [each for each in path.parent.iterdir() if each.name.startswith("new.db.restore")]
    assert not target.exists()


@pytest.mark.parametrize("renames", [1, 2])
async def test_no_server_begins_with_an_empty_store_after_a_restore_that_was_killed(
    backup: str, path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    left = renames

    def rename(source: str, target: str) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        os.replace(source, target)

    target = path.with_name("other.db")
    await make_store(target, 2)
    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        restore(backup, target, force=True)
    monkeypatch.undo()

    with pytest.raises(StoreDamaged, match="nothing was changed"):
        await jobs_of(target)

    restore_store(backup, str(target), NOW + 1_000_000, is_replacing=True)
    assert await jobs_of(target) == [1]


async def test_a_store_after_a_kill_is_replaced_without_blame(backup: str, path: Path) -> None:
    lock = path.with_name(f"{path.name}.lock")
    lock.write_text("pid 1 on here\nboot x\n")

    restore(backup, path, force=True)

    assert lock.read_text() == ""
