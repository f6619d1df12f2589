"""Commits that are durable in the write buffer and reach the other tables later."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from schedo.core.changes import AttemptRecord, Changes, IdempotencyRecord, Output
from schedo.core.job_filter import JobFilter
from schedo.core.leases import CapturedOutput
from schedo.core.loads import LoadJob, LoadUniqueHolders
from schedo.core.model import Failure, Options, Queue
from schedo.core.states import State
from schedo.errors import StoreError
from schedo.store.base import Retention
from schedo.store.sqlite import write_buffer
from schedo.store.sqlite.buffer_bounds import ALONE
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.files import Crashed, in_buffer, in_table, raw
from tests.store.steps import LARGE, ended, listed, of_jobs, put

pytestmark = pytest.mark.usefixtures("no_timed_flush")


async def flush_old_entries(store: SqliteStore) -> None:
    """Let a flush period pass."""
    assert store._writer is not None
    await store._writer.run(store._buffer.flush_old)


async def test_a_commit_of_bufferable_jobs_is_one_row_and_changes_no_index(
    store: SqliteStore,
) -> None:
    await put(store, *(make_job(id=n) for n in range(1, 101)))

    assert (await in_buffer(store), await in_table(store)) == (1, {})


async def test_a_job_that_ends_before_its_flush_is_written_once(store: SqliteStore) -> None:
    job = make_job(id=1, payload=b"[1]")
    await put(store, job)
    job.state, job.attempt, job.worker = State.RUNNING, 1, "w"
    await store.commit(of_jobs(job))
    await store.commit(of_jobs(ended(job, b"[2]")))
    before = (await raw(store, "SELECT total_changes()"))[0][0]

    found = await store.load(LoadJob(1))

    # One insert of the job, three deletes of entries, and the number of the commit.
    assert (await raw(store, "SELECT total_changes()"))[0][0] - before == 5
    assert found == job
    assert await in_buffer(store) == 0


async def test_an_update_of_a_stored_job_is_buffered_too(store: SqliteStore) -> None:
    job = make_job(id=1)
    await put(store, job)
    await store.load(LoadJob(1))

    await store.commit(of_jobs(ended(job)))

    assert (await in_buffer(store), await in_table(store)) == (1, {1: "queued"})
    assert (await store.load(LoadJob(1))) == job
    assert (await in_buffer(store), await in_table(store)) == (0, {1: "completed"})


async def test_an_update_of_a_job_that_is_not_there_fails_and_leaves_no_entry(
    store: SqliteStore,
) -> None:
    await put(store, make_job(id=1))

    with pytest.raises(StoreError, match="1 of 2 updated jobs are not in the store"):
        await store.commit(of_jobs(make_job(id=1, is_new=False), make_job(id=2, is_new=False)))

    assert await listed(store) == [1]
    await put(store, make_job(id=3))
    assert await listed(store) == [3, 1]


@pytest.mark.parametrize("is_folded", [True, False])
async def test_a_second_job_with_the_id_of_one_fails_the_commit(
    store: SqliteStore, is_folded: bool
) -> None:
    await put(store, make_job(id=1, payload=b"[1]"))
    if is_folded:
        await store.load(LoadJob(1))

    with pytest.raises(StoreError):
        await store.commit(of_jobs(make_job(id=2), make_job(id=1, payload=b"[2]")))

    found = await store.get_job(1)
    assert found is not None
    assert (found.payload, await listed(store)) == (b"[1]", [1])


async def test_new_jobs_may_be_committed_in_any_order_of_their_ids(store: SqliteStore) -> None:
    await put(store, make_job(id=5), make_job(id=9))
    await put(store, make_job(id=7))
    await store.load(LoadJob(7))
    await put(store, make_job(id=6), make_job(id=8))

    assert await listed(store) == [9, 8, 7, 6, 5]


def make_attempt(job_id: int) -> AttemptRecord:
    return AttemptRecord(job_id, 1, 1, "w", 3, 4, "failed", Failure("Error", "no"))


WITH_RECORDS = {
    "a unique key": of_jobs(make_job(id=2, unique_key="k")),
    "tags": of_jobs(make_job(id=2, options=Options(tags=("a",)))),
    "a large payload": of_jobs(make_job(id=2, payload=LARGE)),
    "evidence": Changes(jobs={2: make_job(id=2)}, attempts=[make_attempt(2)]),
    "an output": Changes(
        jobs={2: make_job(id=2)},
        outputs=[Output(2, 1, CapturedOutput("stdout", b"head", b"", 4))],
    ),
    "a stored response": Changes(
        jobs={2: make_job(id=2)},
        idempotency_records=[IdempotencyRecord("scope", b"", 201, b"{}", 5)],
    ),
}


async def records_of(store: SqliteStore) -> list[object]:
    """Return what a store has of job 2."""
    return [
        await store.load_payload(2),
        await store.list_attempts(2),
        await store.list_output_sizes(2),
        await store.find_idempotency_record("scope", b""),
        await listed(store, tag="a"),
        await listed(store, unique_key="k"),
        {key: job.id for key, job in (await store.load(LoadUniqueHolders(("k",)))).items()},
    ]


@pytest.mark.parametrize("changes", WITH_RECORDS.values(), ids=WITH_RECORDS)
async def test_a_job_is_buffered_whatever_belongs_to_it(
    path: Path, store: SqliteStore, changes: Changes
) -> None:
    await store.commit(changes)

    assert (await in_buffer(store), await in_table(store)) == (1, {})
    copy = SqliteStore(Crashed(path).path)
    await copy.open()
    assert await records_of(copy) == await records_of(store)
    await copy.close()


NOT_PLAIN = {
    "a schedule's job": of_jobs(make_job(id=2, schedule_id=3)),
    "evidence of another job": Changes(jobs={2: make_job(id=2)}, attempts=[make_attempt(1)]),
    "a large result": of_jobs(make_job(id=2, result=b"x" * write_buffer.ENTRY_BYTES_MAX)),
    "a queue": Changes(jobs={2: make_job(id=2)}, queues={"a": Queue("a")}),
}


@pytest.mark.parametrize("changes", NOT_PLAIN.values(), ids=NOT_PLAIN)
async def test_other_commits_flush_the_buffer_and_go_to_the_tables_at_once(
    store: SqliteStore, changes: Changes
) -> None:
    await put(store, make_job(id=1))

    await store.commit(changes)

    table = {1: "queued", 2: "queued"}
    assert (await in_buffer(store), await in_table(store)) == (0, table)


async def test_the_oldest_jobs_are_flushed_first_with_their_later_updates(
    store: SqliteStore, path: Path
) -> None:
    first = make_job(id=1)
    bulk = [make_job(id=n, state=State.SCHEDULED) for n in range(2, 752)]
    await put(store, first)
    await put(store, *bulk[:500])
    await store.commit(of_jobs(ended(first, b"[1]")))
    await put(store, *bulk[500:])
    assert await in_table(store) == {
        n: "completed" if n == 1 else "scheduled" for n in range(1, 502)
    }
    await store.commit(of_jobs(ended(first, b"[2]")))

    found = await Crashed(path).jobs()

    assert len(found) == 751
    assert found[1].result == b"[2]"


async def test_an_ended_job_is_flushed_after_one_period_and_before_two(
    store: SqliteStore,
) -> None:
    await put(store, ended(make_job(id=1)))
    await flush_old_entries(store)
    assert await in_table(store) == {}
    await put(store, ended(make_job(id=2)))

    await flush_old_entries(store)

    assert await in_table(store) == {1: "completed"}
    await flush_old_entries(store)
    assert await in_table(store) == {1: "completed", 2: "completed"}
    assert not store._buffer


async def test_a_job_that_has_not_ended_is_flushed_after_ten_periods(store: SqliteStore) -> None:
    await put(store, make_job(id=1))
    await put(store, ended(make_job(id=2)))
    for _ in range(ALONE.periods):
        await flush_old_entries(store)
        assert await in_table(store) == {}, "the oldest entries are flushed first"

    await flush_old_entries(store)

    assert await in_table(store) == {1: "queued", 2: "completed"}


async def test_a_job_that_waits_for_some_periods_before_it_ends_is_written_once(
    store: SqliteStore,
) -> None:
    job = make_job(id=1)
    await put(store, job)
    for _ in range(ALONE.periods // 2):
        await flush_old_entries(store)
    await store.commit(of_jobs(ended(job)))
    before = (await raw(store, "SELECT total_changes()"))[0][0]

    for _ in range(3):
        await flush_old_entries(store)

    # One insert of the job, two deletes of entries, each with the number of its commit.
    assert await in_table(store) == {1: "completed"}
    assert (await raw(store, "SELECT total_changes()"))[0][0] - before == 5


async def test_many_ended_jobs_are_flushed_before_a_period_ends(store: SqliteStore) -> None:
    store._buffer.bounds = ALONE._replace(rows=3 * write_buffer.ENDED_PART)
    waiting = make_job(id=5)
    await put(store, ended(make_job(id=1)), ended(make_job(id=2)))
    await put(store, ended(make_job(id=3)))
    assert await in_table(store) == {}

    await put(store, ended(make_job(id=4)), waiting)

    assert await in_table(store) == {1: "completed", 2: "completed", 3: "completed"}
    assert store._buffer.holds(4)
    await put(store, make_job(id=6), make_job(id=7))
    assert len(await in_table(store)) == 3, "the oldest entry has a job that has not ended"
    await store.commit(of_jobs(ended(waiting)))
    assert await in_table(store) == {
        **dict.fromkeys(range(1, 6), "completed"),
    }


@pytest.mark.parametrize(("last", "flushed"), [(1, 4), (3, 6), (9, 8)])
async def test_small_commits_wait_for_small_flushes_only(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, last: int, flushed: int
) -> None:
    monkeypatch.setattr(write_buffer, "FLUSH_ROWS", 4)
    for number in range(1, 13):
        await put(store, ended(make_job(id=number)))
    await put(store, *(ended(make_job(id=number)) for number in range(13, 13 + last)))

    assert store._writer is not None
    await store._writer.run(store._buffer.flush_ended)

    assert len(await in_table(store)) == flushed


def timer_of(store: SqliteStore) -> asyncio.TimerHandle | None:
    return store._flush_timer


async def test_a_timer_runs_only_while_the_buffer_has_jobs(store: SqliteStore) -> None:
    assert timer_of(store) is None
    await put(store, make_job(id=1))
    timer = timer_of(store)
    assert timer is not None
    await store.load(LoadJob(1))

    timer.cancel()
    store._flush_old()
    assert timer_of(store) is None


async def test_a_close_cancels_the_flush_timer(store: SqliteStore) -> None:
    await put(store, make_job(id=1))
    timer = timer_of(store)

    await store.close()

    assert timer is not None
    assert timer.cancelled()


async def test_a_close_flushes_the_write_buffer(store: SqliteStore, path: Path) -> None:
    await put(store, make_job(id=1))

    await store.close()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM job").fetchall() == [(1,)]
        assert connection.execute("SELECT id FROM write_buffer").fetchall() == []


async def test_after_a_flush_commits_are_synced_again(store: SqliteStore) -> None:
    await put(store, make_job(id=1))
    await store.load(LoadJob(1))

    assert await raw(store, "PRAGMA synchronous") == [(2,)]


async def test_a_retried_job_is_not_pruned_while_its_retry_is_in_the_buffer(
    store: SqliteStore,
) -> None:
    job, other = (make_job(id=n, state=State.FAILED, ended_at=1) for n in (1, 2))
    await put(store, job, other)
    assert await listed(store) == [2, 1]
    job.state, job.ended_at = State.QUEUED, None
    await store.commit(of_jobs(job))

    pruned = await store.prune(10, Retention(0, 0, 0, 0), 9)

    assert (pruned, await in_buffer(store)) == (1, 1)
    assert await listed(store) == [1]


async def test_pruning_does_not_flush_the_buffer(store: SqliteStore) -> None:
    await put(store, *(make_job(id=n) for n in range(1, 101)))

    await store.prune(10, Retention(0, 0, 0, 0), 9)

    assert (await in_buffer(store), await in_table(store)) == (1, {})


async def test_a_look_up_flushes_the_buffer_only_for_a_job_that_is_in_it(
    store: SqliteStore,
) -> None:
    await put(store, make_job(id=1))
    assert await listed(store) == [1]
    await put(store, make_job(id=2))

    assert await store.get_job(1) is not None
    assert await store.get_job(3) is None
    assert await store.find_idempotency_record("a", b"") is None
    assert await store.list_attempts(2) == []
    assert await store.list_output_sizes(2) == []
    assert (await in_buffer(store), set(await in_table(store))) == (1, {1})

    assert await store.get_job(2) is not None
    assert await in_buffer(store) == 0


async def test_commits_run_while_a_list_waits_for_the_flush(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_buffer, "FLUSH_ROWS", 10)
    for first in range(1, 101, 10):
        await put(store, *(make_job(id=n) for n in range(first, first + 10)))

    listing = asyncio.create_task(store.list_jobs(JobFilter(), None, 200))
    committing = asyncio.create_task(put(store, make_job(id=101)))
    await committing
    left = await in_buffer(store)
    page = await listing

    assert left > 1
    assert {job.id for job in page.jobs} >= {*range(1, 101)}
