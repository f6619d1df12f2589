"""The SQLite store passes the contract, and keeps promises about its file."""

from __future__ import annotations

import os
import sqlite3
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from schedo.core.changes import Changes
from schedo.core.loads import LoadSchedule, LoadTimers
from schedo.core.model import Job
from schedo.core.paged_index import START
from schedo.core.states import State
from schedo.errors import StoreError, StoreLocked
from schedo.store.base import ClockMark
from schedo.store.sqlite import reads
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job, make_schedule
from tests.store.contract import StoreContract
from tests.store.steps import LARGE, of_jobs, of_schedules, put


class TestSqliteStore(StoreContract):
    @pytest.fixture
    async def store(self, path: Path) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(path)
        await store.open()
        yield store
        await store.close()

    async def test_another_store_on_the_file_sees_what_was_committed(
        self, store: SqliteStore, path: Path
    ) -> None:
        await put(store, make_job(id=1, payload=LARGE))
        await store.commit(Changes(schedules={2: make_schedule(id=2)}))
        await store.close()

        second = SqliteStore(path)
        opening = await second.open()
        payload, schedule = await second.load_payload(1), await second.load(LoadSchedule("report"))
        await second.close()

        assert (opening.epoch, opening.last_id, payload) == (2, 2, LARGE)
        assert schedule == make_schedule(id=2)

    async def test_the_rank_of_a_job_with_run_at_is_stored_as_the_version_before_has_it(
        self, store: SqliteStore, path: Path
    ) -> None:
        await store.save_clock(ClockMark(offset_us=7))
        timed = make_job(id=1, state=State.SCHEDULED, due_at=1_000, due_elapsed=False)
        timed.rank, timed.offset_us = 993, 7
        await put(store, timed)
        await store.close()

        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT due_at, rank FROM job").fetchall() == [(1_000, 993)]

    async def test_a_second_open_raises_with_the_holder(
        self, store: SqliteStore, path: Path
    ) -> None:
        with pytest.raises(StoreLocked, match=rf"{path}: pid {os.getpid()} on .+ since 2\d\d\d-"):
            await SqliteStore(path).open()

        await put(store, make_job(id=1))

    async def test_the_file_can_be_opened_when_its_holder_has_closed_it(
        self, store: SqliteStore, path: Path
    ) -> None:
        await store.close()
        second = SqliteStore(path)

        assert (await second.open()).epoch == 2
        await second.close()

    async def test_closing_leaves_no_thread_and_no_log(
        self, store: SqliteStore, path: Path
    ) -> None:
        await put(store, make_job(id=1))
        assert store._writer is not None
        assert store._reader is not None
        threads = [store._writer._thread, store._reader._thread]

        await store.close()

        for thread in threads:
            thread.join(timeout=5)
        assert not any(thread.is_alive() for thread in threads)
        names = sorted(file.name for file in path.parent.iterdir())
        assert names == ["jobs.db", "jobs.db.last-commit", "jobs.db.lock"]

    async def test_only_the_owner_may_read_the_files(self, store: SqliteStore, path: Path) -> None:
        await put(store, make_job(id=1))

        modes = {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()}
        suffixes = ("", "-wal", "-shm", ".lock", ".last-commit")
        names = [f"jobs.db{suffix}" for suffix in suffixes]
        assert modes == dict.fromkeys(names, "0o600")
        assert oct(path.parent.stat().st_mode & 0o777) == "0o700"

    async def test_every_commit_is_synced_and_only_one_connection_can_write(
        self, store: SqliteStore
    ) -> None:
        assert store._writer is not None
        assert store._reader is not None

        async def pragma(name: str) -> list[object]:
            connections = (store._writer, store._reader)
            found = [await c.execute_fetchall(f"PRAGMA {name}") for c in connections if c]
            return [next(iter(each))[0] for each in found]

        assert await pragma("journal_mode") == ["wal", "wal"]
        assert (await pragma("synchronous"))[0] == 2
        assert (await pragma("wal_autocheckpoint"))[0] == 0
        assert await pragma("query_only") == [0, 1]
        await store._reader.execute("PRAGMA query_only = OFF")
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            await store._reader.execute("DELETE FROM job")

    async def test_the_size_of_the_log_is_bounded(self, store: SqliteStore, path: Path) -> None:
        # Each commit is a megabyte, the log starts over after four.
        for first in range(1, 6_000, 200):
            jobs = range(first, first + 200)
            await put(store, *(make_job(id=n, payload=b"x" * 4_096) for n in jobs))
        await store.load_running(0, 1)  # after the last checkpoint

        assert os.stat(f"{path}-wal").st_size < 8_000_000
        assert os.stat(path).st_size > 20_000_000

    async def test_the_size_of_a_store_includes_all_its_files(
        self, store: SqliteStore, path: Path
    ) -> None:
        names = ("jobs.db", "jobs.db-wal", "jobs.db-shm")
        expected = sum(path.with_name(name).stat().st_size for name in names)

        assert await store.size_bytes() == expected > 0

    @pytest.mark.parametrize(
        "job",
        [make_job(due_at=2**63), make_job(task="\ud800")],
        ids=["an instant beyond 63 bits", "a lone surrogate"],
    )
    async def test_a_value_that_sqlite_cannot_hold_fails_the_commit(
        self, store: SqliteStore, job: Job
    ) -> None:
        with pytest.raises(StoreError):
            await store.commit(of_jobs(make_job(id=1), job))

        assert await store.get_job(1) is None
        await put(store, make_job(id=2))

    async def test_jobs_of_one_page_share_their_task_name_and_options(
        self, store: SqliteStore
    ) -> None:
        await put(store, make_job(id=1, state=State.SCHEDULED, task="a" * 9))
        await put(store, make_job(id=2, state=State.SCHEDULED, task="a" * 9))

        first, second = await store.load(LoadTimers(START, 9))

        # Names and options are shared, or a window of jobs would cost twice the memory.
        assert first.task is second.task
        assert first.options is second.options


# One row for each blocked run: of each schedule the newest one is blocked.
BLOCKED = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
INSERT INTO job (id, task, queue, priority, state, created_at, due_at, rank, attempt, failures,
    losses, epoch, schedule_id, scheduled_for, trigger, missed_count)
SELECT n, 't', 'default', 0, 'blocked', 0, 0, 0, 0, 0, 0, 0, n, n, 'schedule', 0 FROM numbers"""


async def test_opening_a_store_reads_no_blocked_run(path: Path) -> None:
    peaks = []
    for count in (1, 200_000):
        file = path.with_name(f"{count}.db")
        store = SqliteStore(file)
        await store.open()
        await store.close()
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(BLOCKED.format(count=count))
            connection.commit()
        tracemalloc.start()
        snapshot = await store.open()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        await store.close()
        assert snapshot.has_blocked
        assert snapshot.last_id == count

    assert peaks[1] < peaks[0] + 100_000


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_a_count_in_parts_counts_each_job_once(path: Path, limit: int) -> None:
    store = SqliteStore(path)
    await store.open()
    instants = [5, 5, 5, 5, 5, 9, 11, 12, 12, 40]
    jobs = [
        make_job(id=n, due_at=at, queue="ab"[n % 2], state=State.SCHEDULED)
        for n, at in enumerate(instants, 1)
    ]
    await put(store, *jobs)
    await store.close()

    found: Counter[str] = Counter()
    after, parts = None, 0
    with closing(sqlite3.connect(path)) as connection:
        while parts == 0 or after is not None:
            counted, after = reads.count_timed(connection, after, limit)
            for queue, _, count in counted:
                found[queue] += count
            parts += 1
            assert sum(count for _, _, count in counted) <= 2 * limit

    assert found == {"a": 5, "b": 5}


async def test_the_schedules_of_an_owner_are_found_in_parts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "OWNED_AT_ONCE", 2)
    store = SqliteStore(path)
    await store.open()
    owners = ["file:x", "api", "api", "api", "file:x"]
    made = [make_schedule(id=n, name=f"s{9 - n}", owner=o) for n, o in enumerate(owners, 1)]
    await store.commit(of_schedules(*made))
    parts: list[int | None] = []
    owned = reads.owned

    def count(
        connection: sqlite3.Connection, owner: str, after: int
    ) -> tuple[list[str], int | None]:
        names, last = owned(connection, owner, after)
        parts.append(last)
        return names, last

    monkeypatch.setattr(reads, "owned", count)

    assert await store.list_owned("file:x") == ["s4", "s8"]
    assert parts == [2, 4, 5, None]
    await store.close()
