"""A complete store after a crash, a power cut or a use by another program is not refused."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from schedo.core.model import Options
from schedo.errors import StoreDamaged
from schedo.store.sqlite import startup_checks
from schedo.store.sqlite.last_commit import read_mark
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.crashes import (
    SUFFIXES,
    checkpointed,
    content,
    contents,
    copy,
    crashed,
    lay,
    opened,
    remove,
)
from tests.store.files import make_old_file
from tests.store.steps import put


# The later migrations expect these; they create the indexes again.
async def test_a_store_opens_after_its_server_was_killed(path: Path, tmp_path: Path) -> None:
    left = await crashed(path, tmp_path)

    assert await opened(left) == list(range(12, 0, -1))


@pytest.mark.parametrize("suffix", ["emptied", "zeroed", "deleted", "cut"])
async def test_a_power_cut_that_takes_the_last_commit_file_is_no_damage(
    path: Path, tmp_path: Path, suffix: str
) -> None:
    left = await crashed(path, tmp_path)
    last_commit_file = Path(f"{left}.last-commit")
    match suffix:
        case "emptied":
            os.truncate(last_commit_file, 0)
        case "zeroed":
            lay(last_commit_file, bytes(128))
        case "deleted":
            remove(left, ".last-commit")
        case "cut":
            os.truncate(last_commit_file, 60)

    assert len(await opened(left)) == 12


async def test_a_last_commit_file_that_is_behind_is_no_damage(path: Path, tmp_path: Path) -> None:
    """A power cut takes whatever of it was not written back, back to any earlier state."""
    store = SqliteStore(path)
    await store.open()
    earlier = []
    for number in range(1, 30):
        await put(store, make_job(id=number))
        earlier.append(content(Path(f"{path}.last-commit")))
        if number % 10 == 0:
            await checkpointed(store)
            earlier.append(content(Path(f"{path}.last-commit")))
    left = copy(path, tmp_path / "left")
    await store.close()
    clean = copy(path, tmp_path / "clean", ("", ".last-commit"))

    for number, last_commit_file in enumerate(earlier):
        for base, suffixes in ((left, ("", "-wal")), (clean, ("",))):
            again = copy(base, tmp_path / f"{base.parent.name}{number}", suffixes)
            lay(Path(f"{again}.last-commit"), last_commit_file)
            assert len(await opened(again)) == 29


async def test_a_read_with_the_sqlite_shell_is_no_damage(path: Path, tmp_path: Path) -> None:
    """It copies the log into the database and deletes it when it closes the file."""
    left = await crashed(path, tmp_path)
    with closing(sqlite3.connect(left)) as shell:
        assert shell.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert "jobs.db-wal" not in contents(left)

    assert len(await opened(left)) == 12


async def test_a_read_after_a_kill_in_the_middle_of_a_checkpoint_is_no_damage(
    path: Path, tmp_path: Path
) -> None:
    left = await half_copied(path, tmp_path)
    with closing(sqlite3.connect(left)) as shell:
        assert shell.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    assert len(await opened(left)) == 12


async def test_a_log_that_is_deleted_in_the_middle_of_a_checkpoint_is_reported_as_missing(
    path: Path, tmp_path: Path
) -> None:
    left = await half_copied(path, tmp_path)
    assert len(await opened(copy(left, tmp_path / "with_log"))) == 12
    remove(left, "-wal")

    with pytest.raises(StoreDamaged, match=r"was not copied yet|is damaged|is truncated"):
        await opened(left)


async def test_a_kill_in_the_middle_of_a_checkpoint_does_not_make_the_start_read_the_whole_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = await half_copied(path, tmp_path)
    monkeypatch.setattr(startup_checks, "_check_integrity", None)

    assert len(content(left)) < len(content(path))
    assert len(await opened(left)) == 12


@pytest.mark.parametrize("harm", ["missing", "cut", "zeroed", "of another log"])
async def test_without_the_index_of_the_log_the_whole_file_is_checked(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    left = await half_copied(path, tmp_path)
    index = Path(f"{left}-shm")
    start = content(index)
    match harm:
        case "missing":
            remove(left, "-shm")
        case "cut":
            os.truncate(index, 40)
        case "zeroed":
            lay(index, bytes(len(start)))
        case "of another log":
            lay(index, start[:32] + b"otherlog" + start[40:])
    checked: list[str] = []
    check = startup_checks._check_integrity

    def look(path: str, how: str) -> str:
        checked.append(how)
        return check(path, how)

    monkeypatch.setattr(startup_checks, "_check_integrity", look)

    assert len(await opened(left)) == 12
    assert checked == [""]


async def half_copied(path: Path, tmp_path: Path) -> Path:
    """Return a crash in which the first half of the database's pages was copied from the log."""
    store = SqliteStore(path)
    await store.open()
    for number in range(1, 13):
        await put(store, make_job(id=number, payload=b"x" * 3_000, options=Options(tags=("a",))))
    before = copy(path, tmp_path / "half", (*SUFFIXES, "-shm"))
    copying: list[bytes] = []
    assert store._writer is not None

    def look(connection: sqlite3.Connection) -> bool:
        copying.append(Path(f"{path}.last-commit").read_bytes())
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return True

    await store._writer.run(lambda connection: store._guard.copy_log(connection, look))
    after = content(path)
    await store.close()
    middle = len(after) // 2 // 4_096 * 4_096
    lay(before, after[:middle] + content(before)[middle:])
    lay(Path(f"{before}.last-commit"), copying[0])
    return before


async def test_a_store_moved_as_a_whole_or_restored_elsewhere_is_no_damage(
    path: Path, tmp_path: Path
) -> None:
    left = await crashed(path, tmp_path)
    moved = copy(left, tmp_path / "moved")
    alone = tmp_path / "backup" / "jobs.db"
    os.mkdir(alone.parent, 0o700)
    with closing(sqlite3.connect(left)) as shell:
        shell.execute("VACUUM INTO ?", (str(alone),))

    assert len(await opened(moved)) == len(await opened(alone)) == 12


async def test_a_start_that_failed_before_the_store_was_made_is_no_damage(path: Path) -> None:
    os.mkdir(path.parent, 0o700)
    lay(path, b"")
    lay(Path(f"{path}.lock"), b"")

    assert await opened(path) == []


async def test_a_store_without_a_last_commit_file_gets_one(path: Path) -> None:
    make_old_file(path, 3, "INSERT INTO queue VALUES ('mail', 2, 0, 1, 1)")

    assert await opened(path) == []
    assert content(Path(f"{path}.last-commit")).startswith(b"store ")


def numbers_of(path: Path) -> tuple[int, int]:
    """Return the number of the last commit by the database with its log, and by the file beside."""
    with closing(sqlite3.connect(path)) as shell:
        ((commits,),) = shell.execute("SELECT value FROM meta WHERE name = 'commits'").fetchall()
    mark = read_mark(str(path))
    assert mark is not None
    return commits, mark.commits


async def test_a_power_cut_can_undo_an_open_before_the_recovery(path: Path, tmp_path: Path) -> None:
    """Its transaction is not synced by itself, so the last-commit file must not count it yet."""
    left = await crashed(path, tmp_path)
    before = copy(left, tmp_path / "before")
    store = SqliteStore(left)
    await store.open()
    lay(Path(f"{before}.last-commit"), content(Path(f"{left}.last-commit")))

    assert await opened(before) == list(range(12, 0, -1))
    await store.close()


async def test_the_epoch_is_durable_when_the_recovery_is(path: Path, tmp_path: Path) -> None:
    left = await crashed(path, tmp_path)
    store = SqliteStore(left)
    await store.open()
    opened_only = numbers_of(copy(left, tmp_path / "opened"))

    await store.recovered()

    recovered = numbers_of(copy(left, tmp_path / "recovered"))
    assert opened_only == (recovered[0] - 1, recovered[1] - 2), "nothing was synced before"
    assert recovered[0] == recovered[1]
    await put(store, make_job(id=13))
    again = numbers_of(copy(left, tmp_path / "again"))
    await store.recovered()
    assert numbers_of(copy(left, tmp_path / "last")) == again, "there was a commit meanwhile"
    await store.close()


async def test_a_new_identity_is_synced_before_the_last_commit_file_has_it(
    path: Path, tmp_path: Path
) -> None:
    """Else a power cut would leave that file with an identity that the database does not have."""
    left = await crashed(path, tmp_path)
    before = read_mark(str(left))
    os.truncate(f"{left}-wal", 0)
    store = SqliteStore(left, accept_loss=True)

    await store.open()

    after = read_mark(str(left))
    assert before is not None
    assert after is not None
    assert after.store != before.store
    commits, noted = numbers_of(copy(left, tmp_path / "opened"))
    assert commits == noted
    await store.close()
