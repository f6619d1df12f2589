"""Deletes jobs past their retention with all their records, a few hundred at a time.

Its transactions are not synced: if one is lost in a crash, the step is taken again.
"""

from __future__ import annotations

import asyncpg

from schedo.core.shards import SHARDS
from schedo.store.base import Retention
from schedo.store.postgres import writes
from schedo.store.postgres.owned import Owned
from schedo.store.postgres.session import transaction
from schedo.store.retention import (
    LOG_ENTRIES_KEPT,
    LOG_KEPT_US,
    RELEASE_AFTER_US,
    RUNS_LOOKED_AT_ONCE,
    kept_us,
)

# The jobs that are past their retention, in the order of an index that has those of all shards.
_ENDED = """
job WHERE state = '{}' AND ended_at IS NOT NULL AND kept_until IS NULL
AND (schedule_id IS NULL OR released = 1) AND ended_at"""
_KEPT_ENOUGH = "job WHERE kept_until IS NOT NULL AND kept_until"
# If another server is behind, this one passes its jobs in parts, and the next step goes on behind
# them. The instant at which the next part ends, if others follow it:
LOOKED_AT_ONCE = 1_000
_PART = f"""
SELECT {{0}} FROM {{1}} BETWEEN $1 AND $2 ORDER BY {{0}} LIMIT 1 OFFSET {LOOKED_AT_ONCE - 1}"""
_OWN = """
SELECT id FROM {1} BETWEEN $1 AND $2 AND shard = ANY($4::smallint[]) ORDER BY {0} LIMIT $3"""
# The schedules of which runs have ended up to an instant, and those of their ended runs that the
# general retention does not concern yet, newest first.
_RUNS_TO_RELEASE = """
SELECT schedule_id, EXISTS (SELECT 1 FROM schedule WHERE id = schedule_id) FROM run_release
WHERE due_at <= $1 AND shard = ANY($3::smallint[]) ORDER BY due_at LIMIT $2"""
_HELD_RUNS = """
SELECT id FROM job WHERE schedule_id = $1 AND schedule_id IS NOT NULL
AND released IS NULL AND ended_at IS NOT NULL ORDER BY id + 0 DESC LIMIT $2 OFFSET $3"""
_RELEASE_RUNS = "UPDATE job SET released = 1 WHERE id = ANY($1::bigint[])"
# Nothing is left to release of a schedule, but the runs that have ended since then.
_RELEASED = (
    "DELETE FROM run_release WHERE schedule_id = $1 AND last_at <= $2",
    "UPDATE run_release SET due_at = last_at WHERE schedule_id = $1 AND last_at > $2",
)
# The server that uses the key of an old record again may replace it between the search and the
# deletion, so that is of old records, too. Only the search uses the index.
_DELETE_RECORDS = """
DELETE FROM idempotency_record WHERE created_at + 0 <= $1 AND scope IN (
    SELECT scope FROM idempotency_record WHERE created_at <= $1 ORDER BY created_at LIMIT $2
) RETURNING 1"""
_CUT = "SELECT number FROM action_log WHERE is_job = $1 ORDER BY number DESC LIMIT 1 OFFSET $2"
_DELETE_ENTRIES = """
DELETE FROM action_log WHERE number IN (
    SELECT number FROM action_log WHERE is_job = $1 AND (number <= $2 OR at < $3)
    ORDER BY number LIMIT $4
) RETURNING 1"""


async def prune(
    connection: asyncpg.Connection, now: int, retention: Retention, limit: int, owned: Owned
) -> int:
    """Delete up to `limit` ended jobs and records in one transaction; return how many.

    owned: the shards whose jobs are deleted. The owner of the first one deletes what is in none.
    """
    shards = owned.shards
    async with transaction(connection):
        await connection.execute("SET LOCAL synchronous_commit = off")
        effort = await _release_runs(connection, now, retention.schedule_runs, limit, shards)
        room = max(0, limit - effort)
        jobs, looks = await _find_ended(connection, now, retention, room, owned)
        effort += looks
        for statement in writes.delete_jobs(jobs, owned.no) if jobs else ():
            await connection.execute(statement.sql, *statement.parameters)
        if 0 not in shards:
            return effort + len(jobs)
        oldest, room = now - retention.idempotency_us, room - len(jobs)
        records = len(await connection.fetch(_DELETE_RECORDS, oldest, room))
        entries = await _prune_log(connection, now, max(0, room - records))
    return effort + len(jobs) + records + entries


async def _release_runs(
    connection: asyncpg.Connection, now: int, kept: int, limit: int, shards: list[int]
) -> int:
    """Release the runs that are not among the last ones of their schedules; return the effort.

    A released run is deleted like any other job. To look at its runs takes as long as to delete
    some jobs, which counts, too.
    """
    until = now - RELEASE_AFTER_US
    effort = 0
    some = max(1, limit // RUNS_LOOKED_AT_ONCE)
    for schedule_id, exists in await connection.fetch(_RUNS_TO_RELEASE, until, some, shards):
        room = limit - effort
        if room <= 0:
            break
        skipped = kept if exists else 0
        found = await connection.fetch(_HELD_RUNS, schedule_id, room, skipped)
        await connection.execute(_RELEASE_RUNS, [job_id for (job_id,) in found])
        if len(found) < room:
            for statement in _RELEASED:
                await connection.execute(statement, schedule_id, until)
        effort += len(found) + 1 + skipped // RUNS_LOOKED_AT_ONCE
    return effort


async def _find_ended(
    connection: asyncpg.Connection, now: int, retention: Retention, limit: int, owned: Owned
) -> tuple[list[int], int]:
    """Return jobs to delete, and how many parts were passed that others follow.

    A pass is over when each order has come to its end once. One with fewer parts begins again
    meanwhile, for new jobs, but that counts no more: else a pass would last until all orders came
    to their ends in the same step.
    """
    kept = kept_us(retention).items()
    orders = [(_ENDED.format(state.value), "ended_at", now - us) for state, us in kept]
    jobs: list[int] = []
    looks = 0
    for source, column, last in (*orders, (_KEPT_ENOUGH, "kept_until", now)):
        room = limit - len(jobs)
        if room <= 0:
            break
        first, end = owned.pruned.get(source, 0), None
        if len(owned.shards) < SHARDS:
            end = await connection.fetchval(_PART.format(column, source), first, last)
        part = first, last if end is None else end
        own = _OWN.format(column, source)
        found = await connection.fetch(own, *part, room, owned.shards)
        jobs += [job_id for (job_id,) in found]
        if len(found) < room:  # the part has no more
            owned.pruned[source] = 0 if end is None else end + 1
            if end is None:
                owned.passed.add(source)
            looks += source not in owned.passed
    if not (jobs or looks):
        owned.passed.clear()
    return jobs, looks


async def _prune_log(connection: asyncpg.Connection, now: int, limit: int) -> int:
    """Delete up to `limit` entries of each kind beyond their bound."""
    deleted = 0
    for is_job in (0, 1):
        cut = await connection.fetchval(_CUT, is_job, LOG_ENTRIES_KEPT) or 0
        before = now - LOG_KEPT_US
        deleted += len(await connection.fetch(_DELETE_ENTRIES, is_job, cut, before, limit))
    return deleted
