"""Which versions of schedo may open a file, and which may take it over from a running server."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from schedo.core.changes import Changes
from schedo.core.model import Queue
from schedo.core.states import State
from schedo.errors import StoreUnsuitable
from schedo.store.sqlite import schema
from schedo.store.sqlite.schema import DIRECTORY, list_migrations, read_mark
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job, make_schedule
from tests.store.files import Crashed
from tests.store.steps import all_jobs, ended, of_jobs, put

NOW = len(list_migrations())
NEXT = NOW + 1
# The first migration that must have a mark.
MARKED_FROM = 16
EXPAND = """
ALTER TABLE job ADD COLUMN colour TEXT;
ALTER TABLE schedule ADD COLUMN colour TEXT NOT NULL DEFAULT 'none';
ALTER TABLE queue ADD COLUMN colour TEXT;
ALTER TABLE bulk_operation ADD COLUMN colour TEXT;
CREATE TABLE colour (name TEXT PRIMARY KEY) STRICT;
INSERT INTO colour VALUES ('red');
"""
TABLES = ("job", "schedule", "queue", "bulk_operation")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the migrations of the next version, so far those of this one."""
    copy = tmp_path / "migrations"
    shutil.copytree(DIRECTORY, copy)
    return copy


def add_migration(directory: Path, mark: str, script: str = EXPAND) -> None:
    text = f"-- schedo: {mark}\n{script}" if mark else script
    (directory / f"{NEXT:04}_next.sql").write_text(text)


@contextmanager
def next_version(directory: Path) -> Iterator[None]:
    """Open stores as the next version does."""
    with pytest.MonkeyPatch.context() as patch:
        for function in (schema.migrate, schema.list_migrations, schema.check_handover):
            patch.setattr(function, "__defaults__", (directory,))
        yield


async def fill(path: Path) -> None:
    """Make a store with some of everything."""
    store = SqliteStore(path)
    await store.open()
    await put(store, make_job(id=1), make_job(id=2))
    changes = Changes(schedules={3: make_schedule(id=3)}, queues={"q": Queue("q", concurrency=2)})
    await store.commit(changes)
    await store.close()


def colour_all(path: Path) -> None:
    """Write values that only the next version knows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table in TABLES:
            connection.execute(f"UPDATE {table} SET colour = 'blue'")


def content(path: Path) -> bytes:
    return path.read_bytes()


def colours(path: Path) -> dict[str, set[str | None]]:
    with closing(sqlite3.connect(path)) as connection:
        found = {
            table: {row[0] for row in connection.execute(f"SELECT colour FROM {table}")}
            for table in TABLES
        }
    return {table: values for table, values in found.items() if values}


async def use(path: Path) -> None:
    """Change every record."""
    store = SqliteStore(path)
    await store.open()
    jobs = {job.id: job for job in await all_jobs(store)}
    await store.commit(of_jobs(ended(jobs[1])))
    [schedule] = (await store.list_schedules(None, 10)).schedules
    schedule.evaluated_through += 1
    await store.commit(
        Changes(schedules={schedule.id: schedule}, queues={"q": Queue("q", concurrency=3)})
    )
    await store.close()


async def test_a_downgrade_keeps_what_only_the_newer_version_knows(
    path: Path, directory: Path
) -> None:
    add_migration(directory, f"reads_from={NOW} time=constant")
    await fill(path)
    with next_version(directory):
        await use(path)
    colour_all(path)

    await use(path)

    blue = {"blue"}
    assert colours(path) == {"job": blue, "schedule": blue, "queue": blue}
    with next_version(directory):
        store = SqliteStore(path)
        await store.open()
        states = {job.id: job.state for job in await all_jobs(store)}
        await store.close()
    assert states == {1: State.COMPLETED, 2: State.QUEUED}


async def test_a_downgrade_finds_what_the_newer_version_left_in_the_buffer(
    path: Path, directory: Path
) -> None:
    add_migration(directory, f"reads_from={NOW} time=constant")
    with next_version(directory):
        store = SqliteStore(path)
        await store.open()
        await put(store, make_job(id=1))
        crashed = Crashed(path)
        await store.close()

    assert list(await crashed.jobs()) == [1]


async def test_a_new_job_of_the_older_version_has_the_default_of_an_unknown_column(
    path: Path, directory: Path
) -> None:
    add_migration(directory, f"reads_from={NOW} time=constant")
    with next_version(directory):
        await fill(path)
    store = SqliteStore(path)
    await store.open()

    await put(store, make_job(id=9))

    assert len(await all_jobs(store)) == 3
    await store.close()
    assert colours(path)["job"] == {None}


@pytest.mark.parametrize("mark", [f"reads_from={NEXT} time=constant", ""])
async def test_a_file_that_only_newer_versions_read_is_refused(
    path: Path, directory: Path, mark: str
) -> None:
    add_migration(directory, mark)
    with next_version(directory):
        await fill(path)
    before = content(path)

    with pytest.raises(StoreUnsuitable, match=f"versions with schema {NEXT} and later"):
        await SqliteStore(path).open()

    assert content(path) == before


async def test_a_constant_migration_runs_at_a_take_over(path: Path, directory: Path) -> None:
    add_migration(directory, f"reads_from={NOW} time=constant")
    await fill(path)
    with next_version(directory):
        store = SqliteStore(path)
        await store.prepare()

        await store.open()

        await store.close()
    assert colours(path)["schedule"] == {"none"}


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        (f"reads_from={NOW} time=grows", "this takes about 1 s"),
        ("", "this takes about 1 s"),
        (f"reads_from={NEXT} time=constant", "could not open it after that"),
    ],
)
async def test_a_take_over_with_another_migration_is_refused_and_a_start_is_not(
    path: Path, directory: Path, mark: str, reason: str
) -> None:
    add_migration(directory, mark)
    await fill(path)
    with next_version(directory):
        store = SqliteStore(path)
        with pytest.raises(StoreUnsuitable, match=rf"{NEXT:04}_next.*{reason}.*stop the server"):
            await store.prepare()

        await store.open()

        await store.close()


async def test_the_time_of_a_migration_is_told_by_the_size_of_the_file(
    path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_migration(directory, f"reads_from={NOW} time=grows")
    await fill(path)
    monkeypatch.setattr(schema, "_MIGRATED_BYTES_PER_S", len(content(path)) / 1_000)

    with next_version(directory), pytest.raises(StoreUnsuitable, match=r"about 1\d\d\d s"):
        await SqliteStore(path).prepare()


def test_every_new_migration_says_who_can_read_the_file_and_how_long_it_takes() -> None:
    for number, file in enumerate(list_migrations(), start=1):
        mark = read_mark(file)
        if number >= MARKED_FROM:
            assert mark is not None, f"{file.name} begins with `-- schedo: reads_from=... time=...`"
            assert mark.reads_from <= number
