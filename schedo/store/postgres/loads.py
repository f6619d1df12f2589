"""The loads of the core, carried out on the session that writes; core/loads.py has the values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import asyncpg

from schedo.core import loads
from schedo.core.model import Job
from schedo.store import rows
from schedo.store.conditions import TIMED, WAITING
from schedo.store.postgres import reads
from schedo.store.postgres.reads import JOB_COLUMNS, REQUIREMENTS_KEY
from schedo.store.postgres.shard_pages import OWN, Request, Source, first_of_shards

# The jobs of both timelines by their instants of the wall clock.
_VALUE, _OFFSET, _MOVED_AFTER = f"${OWN}::bigint", f"${OWN + 1}::bigint", f"${OWN + 2}::bigint"
_WALL = Source("job.due_at", _VALUE, f"{TIMED} AND due_elapsed = 0")
_ELAPSED = Source("job.due_at", _MOVED_AFTER, f"{TIMED} AND due_elapsed = 1", _OFFSET)
TIMELINES = (_WALL, _ELAPSED)
_TIMERS = f"""
WITH {first_of_shards(*TIMELINES)}
SELECT {JOB_COLUMNS}, page.at, EXISTS (SELECT 1 FROM cut) AS is_cut
FROM page JOIN job ON job.id = page.id ORDER BY page.at, page.id"""
_OF_KEY = f"""
state = 'queued' AND queue = ${OWN} AND task = ${OWN + 1}
AND {REQUIREMENTS_KEY.format("requirements")} = {REQUIREMENTS_KEY.format(f"${OWN + 2}::text")}
AND requirements = ${OWN + 2}"""
_READY = f"""
WITH {first_of_shards(Source("rank", f"${OWN + 3}::bigint", _OF_KEY))}
SELECT {JOB_COLUMNS}, page.at, EXISTS (SELECT 1 FROM cut) AS is_cut
FROM page JOIN job ON job.id = page.id ORDER BY page.at, page.id"""
_EXPIRED = f"""
SELECT {JOB_COLUMNS} FROM job
WHERE expires_at IS NOT NULL AND {WAITING} AND expires_elapsed = $1 AND expires_at <= $2
AND shard = ANY($4::smallint[]) ORDER BY expires_at, id LIMIT $3"""

# A part of a statement that lets its transaction end before it is on the disk. A later commit
# brings it there, and a crash may undo it (synchronous_commit in the manual of PostgreSQL). If it
# is lost, the jobs are still due.
UNSYNCED = "unsynced AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"
_UNTIL, _MOVED_UNTIL = f"${OWN + 3}::bigint", f"${OWN + 4}::bigint"
_DUE = (
    _WALL._replace(condition=f"{_WALL.condition} AND job.due_at <= {_UNTIL}"),
    _ELAPSED._replace(condition=f"{_ELAPSED.condition} AND job.due_at <= {_MOVED_UNTIL}"),
)
_PROMOTE = f"""
WITH {UNSYNCED}, {first_of_shards(*_DUE)},
due AS MATERIALIZED (SELECT page.*, job.state FROM page JOIN job ON job.id = page.id)
UPDATE job SET state = 'queued',
    rank = job.rank - (1 - job.due_elapsed) * ({_OFFSET} - job.offset_us)
FROM due CROSS JOIN unsynced WHERE job.id = due.id
RETURNING due.at, job.id, job.rank, due.state, job.queue, job.task, job.requirements,
    EXISTS (SELECT 1 FROM cut) AS is_cut"""


async def carry_out(  # noqa: C901, PLR0912  # one arm for each kind of load
    connection: asyncpg.Connection, load: loads.Load, offset_us: int, shards: list[int]
) -> Any:
    """Return the result of the load, of these shards only; base.Store defines it for each kind."""
    match load:
        case loads.LoadTimers():
            return await _timers(connection, load, offset_us, shards)
        case loads.PromoteDue():
            return await _promote_due(connection, load, offset_us, shards)
        case loads.LoadReady(key, after, limit):
            requirements = rows.requirements_text(key.requirements)
            own = (key.queue, key.task, requirements)
            request = Request(after, limit, shards)
            found = await read_pages(connection, _READY, request, lambda value: (*own, value))
            return [rows.job_from_row(row[:-2], offset_us) for row in found]
        case loads.LoadExpired(now, limit):
            found = await connection.fetch(_EXPIRED, 0, now, limit, shards)
            rest = limit - len(found)
            found += await connection.fetch(_EXPIRED, 1, now - offset_us, rest, shards)
            return rows.jobs_from_rows(found, offset_us)
        case loads.LoadSchedules():
            return await reads.page_of_schedules(connection, offset_us, load, shards)
        case loads.LoadBlocked():
            return await reads.page_of_blocked(connection, offset_us, load, shards)
        case loads.LoadJob():
            jobs = await reads.jobs(connection, offset_us, reads.JOBS, [load.job_id], shards)
            return jobs[0] if jobs else None
        case loads.LoadJobs(job_ids):
            jobs = await reads.jobs(connection, offset_us, reads.JOBS, job_ids, shards)
            return {job.id: job for job in jobs}
        case loads.LoadUniqueHolders(keys):
            jobs = await reads.jobs(connection, offset_us, reads.UNIQUE, keys, shards)
            return {job.unique_key: job for job in jobs}
        case loads.LoadSchedule():
            return await reads.schedule(connection, offset_us, load.which, shards)


async def read_pages(
    connection: asyncpg.Connection,
    query: str,
    request: Request | None,
    own: Callable[[int], tuple[Any, ...]],
) -> list[asyncpg.Record]:
    """Return the entries that a query of first_of_shards finds.

    own: returns the query's own parameters for the value of the pair after which it begins.
    """
    found: list[asyncpg.Record] = []
    while request is not None:
        page = await connection.fetch(query, *request.parameters(), *own(request.after[0]))
        page.sort(key=itemgetter("at", "id"))
        found += page
        request = request.rest(page)
    return found


async def _timers(
    connection: asyncpg.Connection, load: loads.LoadTimers, offset_us: int, shards: list[int]
) -> list[Job]:
    """Return a page of both timelines, the wall clock's and the elapsed one, in one order."""
    request = Request(load.after, load.limit, shards)
    found = await read_pages(connection, _TIMERS, request, partial(of_timelines, offset_us))
    return [rows.job_from_row(row[:-2], offset_us) for row in found]


def of_timelines(offset_us: int, value: int) -> tuple[int, int, int]:
    """Return an instant of the wall clock, the offset, and the instant of the elapsed timeline."""
    return value, offset_us, max(value - offset_us, reads.INTEGER_MIN)


async def _promote_due(
    connection: asyncpg.Connection, load: loads.PromoteDue, offset_us: int, shards: list[int]
) -> loads.Promoted:
    """Queue the jobs, with one statement for each part of the page."""
    until = load.until, min(load.until - offset_us, reads.INTEGER_MAX)
    request = Request(load.after, load.limit, shards)
    page = await read_pages(
        connection, _PROMOTE, request, lambda value: (*of_timelines(offset_us, value), *until)
    )
    last = (page[-1]["at"], page[-1]["id"]) if len(page) == load.limit else None
    return loads.Promoted(
        [(rows.ready_key_from_row(row[4:7]), (row["rank"], row["id"])) for row in page],
        last,
        frozenset(row["id"] for row in page if row["state"] == "retrying"),
    )
