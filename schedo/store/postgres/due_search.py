"""The search for the jobs of a list that wait for an instant, the soonest first.

As in the SQLite store (see its due_search.py), a part looks at the next entries of the index of
timers, here of all shards, and then at the jobs that they stand for.
"""

from __future__ import annotations

import time
from functools import partial

import asyncpg

from schedo.core.job_filter import JobFilter
from schedo.core.model import Job
from schedo.core.paged_index import START, Pair
from schedo.core.shards import SHARDS
from schedo.store import rows
from schedo.store.pages import JobPage
from schedo.store.postgres import job_search
from schedo.store.postgres.loads import TIMELINES, of_timelines, read_pages
from schedo.store.postgres.shard_pages import Request, first_of_shards

_ALL_SHARDS = [*range(SHARDS)]
_ENTRIES = f"""
WITH {first_of_shards(*TIMELINES)}
SELECT at, id, EXISTS (SELECT 1 FROM cut) AS is_cut FROM page ORDER BY at, id"""


async def search(
    connection: asyncpg.Connection,
    offset_us: int,
    which: JobFilter,
    after: Pair | None,
    limit: int,
) -> JobPage[Pair]:
    """Return the next jobs of the filter that wait for an instant, after one part at least."""
    until = time.perf_counter() + job_search.SEARCH_S
    place = START if after is None else after
    jobs: list[Job] = []
    looked_at, part = 0, min(limit, job_search.LOOKED_AT_ONCE)
    while True:
        entries = await _next_entries(connection, offset_us, place, part)
        jobs += await _jobs_of(connection, offset_us, which, entries, limit - len(jobs))
        looked_at += len(entries)
        if len(jobs) == limit:
            return JobPage(jobs, (jobs[-1].due_at, jobs[-1].id))
        if len(entries) < part:
            return JobPage(jobs, None)  # it was not limited
        place = entries[-1]
        if looked_at >= job_search.LOOKED_AT_MAX or time.perf_counter() > until:
            return JobPage(jobs, place, looked_at)
        left = job_search.LOOKED_AT_MAX - looked_at
        part = min(2 * part, job_search.LOOKED_AT_ONCE, left)


async def _next_entries(
    connection: asyncpg.Connection, offset_us: int, after: Pair, looked: int
) -> list[Pair]:
    """Return the due instants and ids of the next jobs of both timelines, in their order."""
    request = Request(after, looked, _ALL_SHARDS)
    found = await read_pages(connection, _ENTRIES, request, partial(of_timelines, offset_us))
    return [(row["at"], row["id"]) for row in found]


async def _jobs_of(
    connection: asyncpg.Connection,
    offset_us: int,
    which: JobFilter,
    entries: list[Pair],
    limit: int,
) -> list[Job]:
    """Return the first `limit` jobs of the entries that meet the filter, in their order."""
    given = job_search.Parameters([[job_id for _, job_id in entries]])
    query = f"""
SELECT {job_search.LISTED_JOB}
FROM unnest($1::bigint[]) WITH ORDINALITY AS entry (job_id, place) JOIN job ON job.id = job_id
WHERE {job_search.conditions(which, offset_us, given)} ORDER BY place LIMIT {limit:d}"""
    return rows.jobs_from_rows(await connection.fetch(query, *given), offset_us)
