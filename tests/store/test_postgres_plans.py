"""The searches in PostgreSQL look at few entries of an index, however many others it has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from schedo.core.ids import ID_MAX
from schedo.core.job_filter import JobFilter, Order
from schedo.core.limits import DEFAULT_QUEUE
from schedo.core.model import Job
from schedo.core.states import State
from schedo.store.base import Retention
from schedo.store.postgres import job_search, pruning
from schedo.store.postgres.owned import Owned
from schedo.store.postgres.store import PostgresStore
from tests.factories import make_job
from tests.store.servers import LONG_US
from tests.store.steps import put
from tests.store.test_postgres_inbox import connected

JOBS = 20_000
PAGES_MAX = 150
AT_ONCE = Retention(completed_us=0)


@pytest.fixture
async def store(postgres_store_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_store_url, LONG_US)
    await store.open()
    yield store
    await store.close()


async def multiply(store: PostgresStore, postgres_store_url: str, job: Job) -> None:
    """Store many jobs like this one, in all shards."""
    await put(store, job)
    changed = {"id": "id * n", "shard": "n % 32", "rank": "n", "ended_at": "ended_at + n"}
    async with connected(postgres_store_url) as client:
        columns = [
            name
            for (name,) in await client.fetch(
                "SELECT attname::text FROM pg_attribute"
                " WHERE attrelid = 'job'::regclass AND attnum > 0 AND NOT attisdropped"
            )
        ]
        values = ", ".join(changed.get(name, name) for name in columns)
        await client.execute(
            f"INSERT INTO job ({', '.join(columns)}) SELECT {values}"
            f" FROM job, generate_series(2, {JOBS}) AS n"
        )
        # No VACUUM: whether it helps depends on the snapshots of others. So each entry costs a page
        # of the table, as for jobs that were just written.
        await client.execute("ANALYZE job")


async def pages_of(store: PostgresStore, which: JobFilter) -> list[int]:
    """Return how many pages the search of each index of the filter looks at."""
    found = []
    async with store._require_readers().session() as session:
        for index in job_search.indexes_of(which):
            given = job_search.Parameters()
            query = job_search._probe(which, index, (0, ID_MAX), Order.NEWEST, 500, given)
            for at, value in reversed([*enumerate(given, 1)]):
                query = query.replace(f"${at}::", f"'{value}'::")
            explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {query}"
            (plan,) = json.loads(await session.fetchval(explain))
            found.append(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])
    return found


@pytest.mark.parametrize(
    "which",
    [
        JobFilter(state=State.QUEUED, queue=DEFAULT_QUEUE),
        JobFilter(state=State.QUEUED, queue=DEFAULT_QUEUE, task="rare"),
        JobFilter(state=State.QUEUED, queue="rare"),
    ],
)
async def test_the_queued_jobs_of_a_queue_are_found_beside_many_of_another_one(
    store: PostgresStore, postgres_store_url: str, which: JobFilter
) -> None:
    await multiply(store, postgres_store_url, make_job(id=64, queue="busy", state=State.QUEUED))

    assert max(await pages_of(store, which)) < PAGES_MAX


async def test_scheduled_jobs_are_found_beside_many_that_wait_for_a_retry(
    store: PostgresStore, postgres_store_url: str
) -> None:
    await multiply(store, postgres_store_url, make_job(id=64, state=State.RETRYING))

    pages_max = job_search.LOOKED_AT_FIRST + PAGES_MAX  # one of the table for each entry
    assert max(await pages_of(store, JobFilter(state=State.SCHEDULED))) < pages_max


async def test_pruning_passes_the_jobs_of_a_server_that_is_behind_in_parts(
    store: PostgresStore, postgres_store_url: str
) -> None:
    await multiply(store, postgres_store_url, make_job(id=64, state=State.COMPLETED, ended_at=1))
    looked = [0]  # the instants up to which each step has looked
    async with connected(postgres_store_url) as client:
        await client.execute("UPDATE job SET shard = ended_at / $1", JOBS)  # the last two are in 1
        owned = Owned(1, [1])
        while await pruning.prune(client, 2 * JOBS, AT_ONCE, 100, owned):
            looked.append(max(owned.pruned.values()))
        left = await client.fetchval("SELECT count(*) FROM job")

    assert left == JOBS - 2
    assert max(after - before for before, after in pairwise(looked)) < 2 * pruning.LOOKED_AT_ONCE


async def test_pruning_passes_the_jobs_of_another_server_once_if_a_state_has_fewer_of_them(
    store: PostgresStore, postgres_store_url: str
) -> None:
    await multiply(store, postgres_store_url, make_job(id=64, state=State.COMPLETED, ended_at=1))
    retention, steps = Retention(completed_us=0, failed_us=0), 1
    async with connected(postgres_store_url) as client:
        await client.execute("UPDATE job SET shard = 0")
        await client.execute("UPDATE job SET state = 'failed' WHERE ended_at > $1", JOBS * 2 // 3)
        owned = Owned(1, [1])
        while await pruning.prune(client, 2 * JOBS, retention, 100, owned):
            steps += 1

    assert steps <= 1 + JOBS // pruning.LOOKED_AT_ONCE
