"""The search for the jobs of a list that wait for an instant, the soonest first.

The index of timers has all of them in this order, and no other index has. So a part of the search
looks at the next entries of that one, and at the jobs that they stand for.
"""

from __future__ import annotations

import sqlite3
import time
from operator import attrgetter

import msgspec

from schedo.core.job_filter import JobFilter
from schedo.core.model import Job
from schedo.core.paged_index import START, Pair
from schedo.store import rows
from schedo.store.conditions import TIMED
from schedo.store.pages import JobPage
from schedo.store.sqlite import job_search, queries

# The values of the wall clock, and what is added to those of the elapsed timeline. The two steps of
# each are separate because SQLite seeks by the first part of (due_at, id) > (...) only.
_TIMELINES = ((0, "0"), (1, ":offset_us"))
_STEPS = (("due_at = :at - {moved} AND id > :id", "id"), ("due_at > :at - {moved}", "due_at, id"))


def _find_entries(elapsed: int, moved: str, condition: str, order: str) -> str:
    return (
        f"SELECT * FROM (SELECT due_at + {moved} AS at, id FROM job INDEXED BY job_timers"
        f" WHERE {TIMED} AND due_elapsed = {elapsed} AND {condition.format(moved=moved)}"
        f" ORDER BY {order} LIMIT :looked)"
    )


_BOTH = " UNION ALL ".join(
    _find_entries(elapsed, moved, condition, order)
    for elapsed, moved in _TIMELINES
    for condition, order in _STEPS
)
# One row, because each row that is fetched releases the interpreter's lock.
ENTRIES = f"""
SELECT json_group_array(json_array(at, id)) FROM ({_BOTH} ORDER BY at, id LIMIT :looked)"""
_decode_entries = msgspec.json.Decoder(list[Pair]).decode


def search(
    connection: sqlite3.Connection,
    offset_us: int,
    which: JobFilter,
    after: Pair | None,
    limit: int,
    looked_max: int,
) -> JobPage[Pair]:
    """Look at the next jobs that wait for an instant; return up to `limit` of the filter.

    Look at one part at least, and at others for job_search.STEP_S, up to `looked_max` jobs.
    """
    until = time.perf_counter() + job_search.STEP_S
    jobs: list[Job] = []
    looked_at, part = 0, min(limit, job_search.LOOKED_AT_ONCE, looked_max)
    place = START if after is None else after
    while True:
        entries = _next_entries(connection, offset_us, place, part)
        jobs += _jobs_of(connection, offset_us, which, entries, limit - len(jobs))
        looked_at += len(entries)
        if len(jobs) == limit:
            return JobPage(jobs, (jobs[-1].due_at, jobs[-1].id))
        if len(entries) < part:
            return JobPage(jobs, None)  # it was not limited
        place = entries[-1]
        if looked_at >= looked_max or time.perf_counter() > until:
            return JobPage(jobs, place, looked_at)
        part = min(2 * part, job_search.LOOKED_AT_ONCE, looked_max - looked_at)


def _next_entries(
    connection: sqlite3.Connection, offset_us: int, after: Pair, looked: int
) -> list[Pair]:
    """Return the due instants and ids of the next jobs of both timelines, in their order."""
    at, last_id = after
    parameters = {"at": at, "id": last_id, "offset_us": offset_us, "looked": looked}
    ((entries,),) = connection.execute(ENTRIES, parameters).fetchall()
    return sorted(_decode_entries(entries))


def _jobs_of(
    connection: sqlite3.Connection,
    offset_us: int,
    which: JobFilter,
    entries: list[Pair],
    limit: int,
) -> list[Job]:
    """Return the first `limit` jobs of the entries that meet the filter, in their order."""
    parameters = job_search.parameters_of(which) | {"offset_us": offset_us, "limit": limit}
    parameters["ids"] = msgspec.json.encode([job_id for _, job_id in entries]).decode()
    query = f"SELECT {queries.LISTED_JOB} FROM job WHERE id IN ({ids_query(which)})"
    found = connection.execute(query, parameters)
    return sorted(rows.jobs_from_rows(found, offset_us), key=attrgetter("due_at", "id"))


def ids_query(which: JobFilter) -> str:
    """Return the statement for the first :limit of the ids :ids whose jobs meet the filter."""
    return f"""
SELECT job.id FROM (SELECT key AS place, value AS entry FROM json_each(:ids))
CROSS JOIN job ON job.id = entry WHERE {job_search.conditions(which)} ORDER BY place LIMIT :limit"""
