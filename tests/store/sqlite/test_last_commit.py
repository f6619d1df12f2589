"""A store with missing commits is refused unless the operator accepts the loss."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from schedo.errors import StoreDamaged, StoreError, StoreLocked
from schedo.store.sqlite.startup_checks import find_damage, refuse
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.crashes import (
    checkpointed,
    content,
    contents,
    copy,
    crashed,
    flip,
    garble,
    lay,
    opened,
    remove,
    wal,
)
from tests.store.steps import put

DAMAGES: dict[str, Callable[[Path], object]] = {
    "the log is deleted": lambda path: remove(path, "-wal"),
    "the log is emptied": lambda path: os.truncate(wal(path), 0),
    "the log is cut to its header": lambda path: os.truncate(wal(path), 32),
    "the log's header is flipped": lambda path: flip(wal(path), 17),
    "the log is zeroed": lambda path: wal(path).write_bytes(bytes(wal(path).stat().st_size)),
    "the database is deleted": lambda path: remove(path, ""),
    "the database is emptied": lambda path: os.truncate(path, 0),
    "the database is cut to less than a header": lambda path: os.truncate(path, 50),
    "the database is cut to half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "the database is cut to half, and the log is deleted": lambda path: cut_without_log(path),
    "the database is overwritten behind its header": lambda path: garble(path),
    "the database is another file": lambda path: path.write_bytes(b"some text\n" * 500),
    "only the last-commit file is left": lambda path: remove(path, "", "-wal"),
    "database and last-commit file are deleted": lambda path: remove(path, "", ".last-commit"),
}


def cut_without_log(path: Path) -> None:
    remove(path, "-wal", ".last-commit")
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_store_is_refused_and_left_as_it_is(
    path: Path, tmp_path: Path, name: str
) -> None:
    left = await crashed(path, tmp_path)
    DAMAGES[name](left)
    before = contents(left)

    with pytest.raises(StoreDamaged, match="--accept-loss"):
        await opened(left)

    assert contents(left) == before


def test_a_file_that_was_never_a_store_is_refused_with_another_remedy(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_text("a crontab, perhaps\n")
    damage = find_damage(str(path), None)

    assert damage is not None
    message = str(refuse(str(path), damage))
    assert f"{path} is not a SQLite database; nothing was changed. Give the path" in message
    assert "Restore" not in message


@pytest.mark.parametrize("name", DAMAGES)
async def test_an_accepted_loss_opens_the_rest_and_keeps_the_damaged_files(
    path: Path, tmp_path: Path, name: str
) -> None:
    left = await crashed(path, tmp_path)
    DAMAGES[name](left)
    before = contents(left)

    found = await opened(left, accept_loss=True)

    assert set(found) <= set(range(1, 13))
    kept = [text for name, text in contents(left).items() if ".lost-" in name]
    log = before.get("jobs.db-wal")
    assert not log or log in kept
    assert await opened(left) == found  # the next start has nothing to refuse


async def test_a_log_cut_at_any_frame_is_refused(path: Path, tmp_path: Path) -> None:
    left = await crashed(path, tmp_path)
    extent = committed_frames(left)
    assert extent > 10
    for frame in range(extent):
        cut = copy(left, tmp_path / f"cut{frame}")
        os.truncate(wal(cut), 32 + frame * 4_120)

        with pytest.raises(StoreDamaged, match="commits are missing"):
            await opened(cut)


async def test_a_bit_flipped_anywhere_in_the_log_is_refused(path: Path, tmp_path: Path) -> None:
    left = await crashed(path, tmp_path)
    end = 32 + committed_frames(left) * 4_120
    for number, at in enumerate(range(0, end, 1_777)):
        flipped = copy(left, tmp_path / f"flipped{number}")
        flip(wal(flipped), at)

        with pytest.raises(StoreDamaged, match="commits are missing"):
            await opened(flipped)


def committed_frames(path: Path) -> int:
    """Return how many frames of the log count, by the salts in their headers."""
    content = wal(path).read_bytes()
    salts, count = content[16:24], 0
    while content[32 + count * 4_120 + 8 :][:8] == salts:
        count += 1
    return count


async def test_any_part_of_an_older_copy_is_refused(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await put(store, make_job(id=1))
    await checkpointed(store)
    await put(store, make_job(id=2))
    older = copy(path, tmp_path / "older")
    await put(store, *[make_job(id=number) for number in range(3, 40)])
    await checkpointed(store)
    await put(store, make_job(id=40))
    newer = copy(path, tmp_path / "newer")
    await store.close()
    clean = copy(path, tmp_path / "clean", ("", ".lock", ".last-commit"))

    for number, (base, parts) in enumerate(
        [
            (newer, ("",)),
            (newer, ("-wal",)),
            (newer, ("", "-wal")),
            (clean, ("",)),
            (clean, ("-wal",)),
            (clean, ("", "-wal")),
        ]
    ):
        mixed = copy(base, tmp_path / f"mixed{number}", ("", ".last-commit"))
        if base is newer:
            shutil.copy(wal(newer), wal(mixed))
        for part in parts:
            shutil.copy(f"{older}{part}", f"{mixed}{part}")
        with pytest.raises(StoreDamaged):
            await opened(mixed)


async def test_another_store_under_the_same_path_is_refused(path: Path, tmp_path: Path) -> None:
    left = await crashed(path, tmp_path)
    other = SqliteStore(tmp_path / "other" / "jobs.db")
    await other.open()
    await put(other, *[make_job(id=number) for number in range(1, 99)])
    await other.close()
    remove(left, "-wal")
    shutil.copy(tmp_path / "other" / "jobs.db", left)

    with pytest.raises(StoreDamaged, match="not the store that was here last"):
        await opened(left)

    store = SqliteStore(left, accept_loss=True)
    opening = await store.open()
    assert opening.epoch > 1_000_000, "how many epochs the store that was here had is not known"
    await store.close()


async def test_leases_of_lost_commits_are_not_issued_again(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    first = await store.open()
    await checkpointed(store)
    for _ in range(5):
        newest = await store.snapshot()
    left = copy(path, tmp_path / "left")
    await store.close()
    os.truncate(wal(left), 0)

    again = SqliteStore(left, accept_loss=True)
    opening = await again.open()
    await again.close()

    assert first.epoch < newest.epoch < opening.epoch


async def test_the_files_of_an_accepted_loss_cannot_be_restored_unnoticed(
    path: Path, tmp_path: Path
) -> None:
    left = await crashed(path, tmp_path)
    log, database = content(wal(left)), content(left)
    os.truncate(wal(left), 0)
    await opened(left, accept_loss=True)
    lay(left, database)
    lay(wal(left), log)

    with pytest.raises(StoreDamaged):
        await opened(left)


# One server a file.


async def test_a_hard_link_a_symbolic_link_and_a_deleted_lock_file_lead_to_the_same_lock(
    path: Path, tmp_path: Path
) -> None:
    store = SqliteStore(path)
    await store.open()
    other = tmp_path / "other"
    os.mkdir(other, 0o700)
    os.link(path, other / "hard.db")
    os.symlink(path, other / "soft.db")
    try:
        for name in ("hard.db", "soft.db"):
            with pytest.raises(StoreLocked):
                await opened(other / name)
        remove(path, ".lock")
        with pytest.raises(StoreLocked, match="with another lock file"):
            await opened(path)
    finally:
        await store.close()


async def test_a_linked_database_has_its_log_beside_itself(path: Path, tmp_path: Path) -> None:
    await opened(path)
    link = tmp_path / "link.db"
    os.symlink(path, link)
    store = SqliteStore(link)
    await store.open()
    await put(store, make_job(id=1))

    assert os.stat(wal(path)).st_size > 0
    await store.check()
    await store.close()
    assert await opened(path) == [1]


async def test_a_pipe_in_the_place_of_the_file_is_an_error(path: Path) -> None:
    os.mkdir(path.parent, 0o700)
    os.mkfifo(path)

    with pytest.raises(StoreError, match="is not a file"):
        await opened(path)
