"""The loads of the core, carried out on the session that writes; core/loads.py has the values."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import asyncpg

from schedo.core import loads
from schedo.core.model import Job
from schedo.store import rows
from schedo.store.conditions import TIMED, WAITING
from schedo.store.postgres import reads
from schedo.store.postgres.reads import INTEGER_MIN, JOB_COLUMNS

_TIMERS = f"""
SELECT {JOB_COLUMNS} FROM job WHERE {TIMED} AND due_elapsed = $1 AND (due_at, id) > ($2, $3)
ORDER BY due_at, id LIMIT $4"""
_READY = f"""
SELECT {JOB_COLUMNS} FROM job WHERE state = 'queued' AND queue = $1 AND task = $2
AND md5(requirements) = md5($3) AND requirements = $3 AND (rank, id) > ($4, $5)
ORDER BY rank, id LIMIT $6"""
_EXPIRED = f"""
SELECT {JOB_COLUMNS} FROM job
WHERE expires_at IS NOT NULL AND {WAITING} AND expires_elapsed = $1 AND expires_at <= $2
ORDER BY expires_at, id LIMIT $3"""

# A part of a statement that lets its transaction end before it is on the disk. A later commit
# brings it there, and a crash may undo it (synchronous_commit in the manual of PostgreSQL).
UNSYNCED = "unsynced AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"
# The jobs of both timelines by their instants of the wall clock. If it is lost, they are still due.
_DUE = f"""
SELECT due_at + {{moved}} AS at, id, state FROM job
WHERE {TIMED} AND due_elapsed = {{elapsed}} AND (due_at, id) > ({{after}}, $2)
AND due_at <= {{until}} ORDER BY due_at, id LIMIT $4"""
_PROMOTE = f"""
WITH {UNSYNCED}, due AS MATERIALIZED (
    SELECT * FROM (
        ({_DUE.format(moved="0", elapsed=0, after="$1::bigint", until="$3::bigint")})
        UNION ALL
        ({_DUE.format(moved="$5::bigint", elapsed=1, after="$6::bigint", until="$7::bigint")})
    ) AS both_timelines ORDER BY at, id LIMIT $4
)
UPDATE job SET state = 'queued' FROM due CROSS JOIN unsynced WHERE job.id = due.id
RETURNING due.at, job.id, job.rank, due.state, job.queue, job.task, job.requirements"""


async def carry_out(  # noqa: C901, PLR0912  # one arm for each kind of load
    connection: asyncpg.Connection, load: loads.Load, offset_us: int
) -> Any:
    """Return the result of the load; base.Store defines it for each kind."""
    match load:
        case loads.LoadTimers():
            return await _timers(connection, load, offset_us)
        case loads.PromoteDue():
            return await _promote_due(connection, load, offset_us)
        case loads.LoadReady(key, (rank, last_id), limit):
            requirements = rows.requirements_text(key.requirements)
            where = (key.queue, key.task, requirements, rank, last_id, limit)
            return await reads.jobs(connection, offset_us, _READY, *where)
        case loads.LoadExpired(now, limit):
            found = await connection.fetch(_EXPIRED, 0, now, limit)
            found += await connection.fetch(_EXPIRED, 1, now - offset_us, limit - len(found))
            return rows.jobs_from_rows(found, offset_us)
        case loads.LoadSchedules():
            return await reads.page_of_schedules(connection, offset_us, load)
        case loads.LoadBlocked():
            return await reads.page_of_blocked(connection, offset_us, load)
        case loads.LoadJob():
            return await reads.job(connection, offset_us, reads.JOB, load.job_id)
        case loads.LoadJobs(job_ids):
            jobs = await reads.jobs(connection, offset_us, reads.JOBS, job_ids)
            return {job.id: job for job in jobs}
        case loads.LoadUniqueHolders(keys):
            jobs = await reads.jobs(connection, offset_us, reads.UNIQUE, keys)
            return {job.unique_key: job for job in jobs}
        case loads.LoadSchedule():
            return await reads.schedule(connection, offset_us, load.which)


async def _timers(
    connection: asyncpg.Connection, load: loads.LoadTimers, offset_us: int
) -> list[Job]:
    """Return a page of both timelines, the wall clock's and the elapsed one, in one order."""
    (value, last_id), limit = load.after, load.limit
    moved = max(value - offset_us, INTEGER_MIN)
    found = await connection.fetch(_TIMERS, 0, value, last_id, limit)
    found += await connection.fetch(_TIMERS, 1, moved, last_id, limit)
    jobs = rows.jobs_from_rows(found, offset_us)
    return sorted(jobs, key=attrgetter("due_at", "id"))[:limit]


async def _promote_due(
    connection: asyncpg.Connection, load: loads.PromoteDue, offset_us: int
) -> loads.Promoted:
    """Queue the jobs with one statement."""
    value, last_id = load.after
    parameters = (
        *(value, last_id, load.until, load.limit, offset_us),
        *(max(value - offset_us, INTEGER_MIN), min(load.until - offset_us, reads.INTEGER_MAX)),
    )
    page = sorted(map(tuple, await connection.fetch(_PROMOTE, *parameters)))
    last = page[-1][:2] if len(page) == load.limit else None
    return loads.Promoted(
        [(rows.ready_key_from_row(row[4:]), (row[2], row[1])) for row in page],
        last,
        frozenset(row[1] for row in page if row[3] == "retrying"),
    )
