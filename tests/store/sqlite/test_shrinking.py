"""Free pages go back to the file system, step by step; some are kept for the next jobs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from schedo.core.states import State
from schedo.store.base import Retention
from schedo.store.sqlite import pruning
from schedo.store.sqlite.connection import prepare_writer
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.files import make_old_file
from tests.store.steps import listed, put

PAGE = 4_096
NOT_KEPT = Retention(0, 0, 0, 0)


@pytest.fixture(autouse=True)
def few_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "FREE_PAGES_MIN", 20)
    monkeypatch.setattr(pruning, "FREED_AT_ONCE", 10)


async def pruned(store: SqliteStore) -> None:
    """Fill about 200 pages, and prune nearly all of it."""
    large = b"x" * 4_000
    await put(
        store,
        *(make_job(id=n, payload=large, state=State.FAILED, ended_at=1) for n in range(1, 200)),
        make_job(id=500),
    )
    assert len(await listed(store, limit=500)) >= 200
    assert await store.prune(10, NOT_KEPT, 500) == 199


async def shrink(store: SqliteStore) -> int:
    """Let the store take all steps; return their number."""
    steps = 0
    while await store.prune(10, NOT_KEPT, 500):
        steps += 1
    return steps


def size(path: Path) -> int:
    return path.stat().st_size // PAGE


async def test_a_store_gives_most_of_its_free_pages_back_in_small_steps(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await pruned(store)
    store._post(store._checkpoint)
    await store.check()
    before = size(path)

    steps = await shrink(store)
    store._post(store._checkpoint)
    await store.check()  # the watch over the files accepts that the database is shorter
    await put(store, make_job(id=501))
    jobs = await listed(store)
    await store.close()

    assert before > 200
    assert 15 <= steps <= 30
    assert size(path) < 80
    assert jobs == [501, 500]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert 0 < connection.execute("PRAGMA freelist_count").fetchone()[0] <= 20


async def test_a_store_keeps_the_free_pages_that_the_next_jobs_need(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await put(store, *(make_job(id=n) for n in range(600, 620)))
    await pruned(store)
    await shrink(store)

    assert await shrink(store) == 0
    await store.close()


async def test_a_file_of_an_earlier_version_keeps_its_size(path: Path) -> None:
    make_old_file(path, 6)
    store = SqliteStore(path)
    await store.open()
    await pruned(store)
    store._post(store._checkpoint)
    await store.check()
    before = size(path)

    assert await shrink(store) == 0
    await store.close()

    assert size(path) >= before


async def test_a_start_commits_nothing_only_to_say_again_that_free_pages_may_go(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    with closing(sqlite3.connect(path)) as reader:
        before = data_version(reader)
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            prepare_writer(writer)
            assert data_version(reader) == before
            assert writer.execute("PRAGMA auto_vacuum").fetchone() == (2,)


def data_version(connection: sqlite3.Connection) -> int:
    """Return the number that grows with each commit of another connection."""
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version
