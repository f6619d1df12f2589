"""A reader in another process can keep the log from starting over; commits hardly wait for it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from schedo.store.sqlite import connection as connections
from schedo.store.sqlite.connection import open_reader
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.steps import put

STEP = 50_000


@pytest.fixture
async def reading(store: SqliteStore, path: Path) -> AsyncIterator[sqlite3.Connection]:
    """A connection of another program, inside a transaction that reads; the log is short."""
    await store.close()
    await store.open()
    with closing(open_reader(str(path))) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM job").fetchone()
        yield reader


async def test_commits_wait_for_a_reader_only_now_and_then_as_the_log_grows(
    store: SqliteStore, reading: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[bool] = []

    def wait(connection: sqlite3.Connection) -> bool:
        waits.append(True)
        return False

    monkeypatch.setattr(connections, "truncate_log", wait)
    monkeypatch.setattr(connections, "WAL_BYTES_ALARM", 2 * STEP)
    monkeypatch.setattr(connections, "WAL_BYTES_MAX", STEP)
    for number in range(1, 61):
        await put(store, make_job(id=number))
    await store.check()  # behind the last checkpoint

    log_bytes = store._guard.log_bytes()
    assert log_bytes > 6 * STEP
    assert 1 < len(waits) < log_bytes // STEP


async def test_the_log_starts_over_after_the_reader_has_ended(
    store: SqliteStore, reading: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WAL_BYTES_ALARM", 2 * STEP)
    monkeypatch.setattr(connections, "WAL_BYTES_MAX", STEP)
    monkeypatch.setattr(connections, "_BUSY_READER_MS", 1)
    for number in range(1, 61):
        await put(store, make_job(id=number))
    await store.check()
    longest = store._guard.log_bytes()

    reading.execute("COMMIT")
    for number in range(61, 121):
        await put(store, make_job(id=number))
    await store.check()

    assert store._guard.log_bytes() < longest + STEP
