"""A check finds what is wrong with a store or a backup, and changes nothing."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from schedo.core.changes import Changes
from schedo.core.states import State
from schedo.core.triggers import next_after
from schedo.errors import StoreUnsuitable
from schedo.store.sqlite.check import check_store
from schedo.store.sqlite.last_commit import SUFFIX
from schedo.store.sqlite.schema import list_migrations
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job, make_schedule
from tests.store.files import make_old_file
from tests.store.steps import LARGE, put


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """An open store with jobs in several states, and a schedule."""
    store = SqliteStore(path)
    await store.open()
    await put(
        store,
        make_job(id=1, payload=LARGE),
        make_job(id=2, state=State.COMPLETED, ended_at=5),
        make_job(id=3, state=State.RUNNING, worker="w", attempt=1),
        make_job(id=4, state=State.SCHEDULED),
    )
    schedule = make_schedule(id=5)
    schedule.next_fire_at = next_after(schedule.rule, schedule.evaluated_through)
    await store.commit(Changes(schedules={5: schedule}))
    await put(store, make_job(id=9))
    yield store
    await store.close()


def files_of(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.iterdir()}


async def test_a_store_in_use_is_whole(store: SqliteStore, path: Path) -> None:
    report = check_store(str(path), is_full=True)

    assert report.problems == []
    assert report.is_held
    assert report.facts["buffered_commits"] == 1
    assert (report.facts["jobs"], report.facts["schedules"]) == (4, 1)
    await put(store, make_job(id=10))


async def test_the_check_of_a_closed_store_changes_no_file(store: SqliteStore, path: Path) -> None:
    await store.close()
    before = files_of(path)

    report = check_store(str(path))

    assert (report.problems, report.is_held) == ([], False)
    assert report.facts["jobs"] == 5
    assert files_of(path) == before


BROKEN = {
    "UPDATE job SET state = 'lost' WHERE id = 1": "each job is in one known state",
    "UPDATE job SET ended_at = NULL WHERE id = 2": "exactly if its state is final",
    "UPDATE job SET worker = NULL WHERE id = 3": "a running job has a worker",
    "DELETE FROM job_payload": "each job has its payload: 1 do not",
    "UPDATE schedule SET next_fire_at = next_fire_at + 1": "not for report",
    "INSERT INTO write_buffer (body) VALUES (x'00')": "write buffer are unreadable: [",
    "UPDATE meta SET value = 0 WHERE name = 'commits'": "is missing, or the database is an older",
}


@pytest.mark.parametrize(("statement", "problem"), BROKEN.items(), ids=str)
async def test_a_broken_store_is_found(
    store: SqliteStore, path: Path, statement: str, problem: str
) -> None:
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute(statement)

    problems = check_store(str(path)).problems

    assert problem in "; ".join(problems)


async def test_a_missing_log_is_found(store: SqliteStore, path: Path) -> None:
    copy = path.with_name("copy.db")
    for suffix in ("", SUFFIX):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")

    [problem, *_] = check_store(str(copy)).problems

    assert "commits are missing" in problem


def test_a_file_of_another_program_is_found(path: Path) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")

    assert "another program" in check_store(str(path)).problems[-1]


def test_a_file_that_is_no_database_is_found(path: Path) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text("hello" * 100)

    assert "is not a SQLite database" in check_store(str(path)).problems[0]


def test_an_older_file_is_checked_by_sqlite_alone(path: Path) -> None:
    make_old_file(path, 7)

    report = check_store(str(path))

    assert report.problems == []
    newest = len(list_migrations())
    assert report.passed[-1] == f"schema 7; the next start brings it to {newest}"


def test_there_must_be_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnsuitable, match="there is no store"):
        check_store(str(tmp_path / "none.db"))
