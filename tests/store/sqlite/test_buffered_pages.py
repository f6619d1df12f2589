"""Pages of a ready key are read from the job table and the write buffer together."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core.loads import LoadExpired, LoadJob, LoadReady
from schedo.core.model import Job, Options
from schedo.core.paged_index import START, Pair
from schedo.core.requirements import Requirements
from schedo.core.states import State
from schedo.store.sqlite import buffered_queued
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.files import in_buffer, in_table
from tests.store.steps import ended, of_jobs, put

KEY = make_job().ready_key


async def put_in_table(store: SqliteStore, *jobs: Job) -> None:
    """Put the jobs and flush them."""
    await put(store, *jobs)
    await store.load(LoadJob(jobs[0].id))


async def page(store: SqliteStore, after: Pair = START, limit: int = 9) -> list[int]:
    """Return the ids of a page of KEY."""
    return [job.id for job in await store.load(LoadReady(KEY, after, limit))]


async def test_a_page_merges_table_and_buffer_by_rank_and_id(store: SqliteStore) -> None:
    await put_in_table(store, make_job(id=1, rank=5), make_job(id=4, rank=7))
    await put(store, make_job(id=2, rank=7), make_job(id=3, rank=5), make_job(id=5, rank=9))

    assert await page(store) == [1, 3, 2, 4, 5]
    assert await page(store, limit=3) == [1, 3, 2]
    assert await page(store, after=(5, 1), limit=2) == [3, 2]
    assert await page(store, after=(7, 2)) == [4, 5]


async def test_a_page_has_the_jobs_of_the_commits_since_the_page_before(
    store: SqliteStore,
) -> None:
    await put(store, make_job(id=1), make_job(id=2))
    assert await page(store) == [1, 2]

    await put(store, make_job(id=3))
    await store.commit(of_jobs(make_job(id=1, state=State.RUNNING, is_new=False)))
    assert await page(store) == [2, 3]

    await store.load(LoadJob(2))  # which flushes
    await put(store, make_job(id=4))
    assert await page(store) == [2, 3, 4]


async def test_a_page_flushes_nothing(store: SqliteStore) -> None:
    await put_in_table(store, make_job(id=1), make_job(id=2))
    await put(store, make_job(id=3))
    started = make_job(id=1, state=State.RUNNING, is_new=False)
    await store.commit(of_jobs(started))

    assert await page(store, after=(0, 1)) == [2, 3]

    assert (await in_buffer(store), await in_table(store)) == (2, {1: "queued", 2: "queued"})


@pytest.mark.parametrize(
    "other",
    [
        {"queue": "other"},
        {"task": "other"},
        {"options": Options(requirements=Requirements(worker="w"))},
        {"state": State.SCHEDULED},
        {"state": State.COMPLETED},
    ],
)
async def test_a_page_leaves_out_other_buffered_jobs(
    store: SqliteStore, other: dict[str, Any]
) -> None:
    await put(store, make_job(id=1), make_job(id=2, **other))

    assert await page(store) == [1]


async def test_a_page_leaves_out_jobs_that_have_changed_in_the_buffer(store: SqliteStore) -> None:
    jobs = [make_job(id=n) for n in (1, 2, 3)]
    await put_in_table(store, *jobs)
    await store.commit(of_jobs(ended(jobs[1])))

    assert await page(store, limit=2) == [1, 3]


async def test_later_pages_find_jobs_that_were_buffered_since_the_first_one(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffered_queued, "PAIRS_MAX", 3)
    await put(store, make_job(id=2, rank=2))
    assert await page(store) == [2]

    await put(store, make_job(id=3, rank=1))
    assert await page(store) == [3, 2]
    await put(store, make_job(id=4, rank=3), make_job(id=5, rank=4))
    assert await page(store) == [3, 2, 4, 5]


async def test_a_page_has_a_job_that_is_queued_again(store: SqliteStore) -> None:
    job = make_job(id=1, rank=5)
    await put_in_table(store, job, make_job(id=2, rank=6))
    job.state = State.RUNNING
    await store.commit(of_jobs(job))
    await store.load(LoadJob(1))
    job.state, job.rank = State.QUEUED, 7
    await store.commit(of_jobs(job))

    assert await page(store) == [2, 1]


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_a_page_has_the_whole_job(store: SqliteStore, is_flushed: bool) -> None:
    text = '"\\"\\u0000\\ud800 é 😀"'.encode()
    job = make_job(id=1 << 62, payload=text, result=b"[1]", unique_key='a "b" \x01', priority=-3)
    await put(store, job)
    if is_flushed:
        await store.load(LoadJob(job.id))

    (found,) = await store.load(LoadReady(KEY, START, 9))

    assert found == job
    assert (type(found.payload), type(found.result)) == (bytes, bytes)


NOW = 1_000


async def expired(store: SqliteStore) -> list[int]:
    return [job.id for job in await store.load(LoadExpired(NOW, 9))]


async def test_a_search_for_expired_jobs_flushes_no_others(store: SqliteStore) -> None:
    await put_in_table(store, make_job(id=1, expires_at=NOW), make_job(id=2))
    await put(store, make_job(id=3), make_job(id=4, expires_at=NOW + 1))
    await store.commit(of_jobs(ended(make_job(id=2, is_new=False))))

    assert await expired(store) == [1]

    assert await in_buffer(store) == 2


async def test_a_buffered_job_that_expires_is_found(store: SqliteStore) -> None:
    await put_in_table(store, make_job(id=1))
    await put(store, make_job(id=2, expires_at=NOW))
    await store.commit(of_jobs(make_job(id=1, expires_at=NOW, is_new=False)))

    assert await expired(store) == [1, 2]


async def test_a_job_that_has_ended_in_the_buffer_does_not_expire(store: SqliteStore) -> None:
    await put_in_table(store, make_job(id=1, expires_at=NOW), make_job(id=2, expires_at=NOW))
    await store.commit(of_jobs(ended(make_job(id=1, is_new=False))))

    assert await expired(store) == [2]
