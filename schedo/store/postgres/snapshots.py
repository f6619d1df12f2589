"""The snapshot of a server: what it needs of its shards before its first turn."""

from __future__ import annotations

from typing import NamedTuple

import asyncpg

from schedo.core.ids import first_id
from schedo.core.states import State
from schedo.store import rows
from schedo.store.base import ClockMark, Snapshot, Waiting
from schedo.store.conditions import LISTED_STATE, TIMED
from schedo.store.postgres.reads import BLOCKED, EXPECTATIONS, REQUIREMENTS_KEY
from schedo.store.postgres.writes import SETTINGS

_SHARDS = "SELECT no FROM shard WHERE owner = $1 ORDER BY no"
_RAISE_EPOCH = "SELECT nextval('epoch')"
# A random number that the store gets with its first snapshot, and keeps.
_STORE = """
INSERT INTO meta (name, value) VALUES ('store', (random() * 9e18)::bigint)
ON CONFLICT (name) DO UPDATE SET value = meta.value RETURNING value"""
_NEWEST_AT = "SELECT created_at - offset_us FROM job ORDER BY id DESC LIMIT 1"
_CLOCK = "SELECT name, value FROM meta WHERE name = ANY($1::text[])"
_LAST_ID = """
SELECT greatest(
    (SELECT max(id) FROM job), (SELECT max(id) FROM schedule), (SELECT max(id) FROM bulk_operation)
)"""
_DECIDED_AT = "SELECT max(value) FROM meta WHERE name LIKE 'decided\\_at%'"
# Skips from key to key through the index, so its cost is the number of ready keys, not of jobs.
_KEY = f"{{0}}.queue, {{0}}.task, {REQUIREMENTS_KEY.format('{0}.requirements')}"
_READY_KEYS = f"""
WITH RECURSIVE found AS (
    SELECT first.* FROM unnest($1::smallint[]) AS owned (shard) CROSS JOIN LATERAL (
        SELECT shard, queue, task, requirements FROM job
        WHERE state = 'queued' AND job.shard = owned.shard ORDER BY {_KEY.format("job")} LIMIT 1
    ) AS first
    UNION ALL
    SELECT following.* FROM found CROSS JOIN LATERAL (
        SELECT job.shard, job.queue, job.task, job.requirements FROM job
        WHERE state = 'queued' AND job.shard = found.shard
        AND ({_KEY.format("job")}) > ({_KEY.format("found")})
        ORDER BY {_KEY.format("job")} LIMIT 1
    ) AS following
)
SELECT DISTINCT queue, task, requirements FROM found"""
_QUEUES = f"SELECT {', '.join(rows.QUEUE.names)} FROM queue ORDER BY name"
_PAUSES = f"SELECT {', '.join(rows.PAUSE.names)} FROM pause ORDER BY scope"
_EXPECTATIONS = f"{EXPECTATIONS} WHERE shard = ANY($1::smallint[]) ORDER BY id"
_OPERATIONS = "SELECT record FROM bulk_operation WHERE shard = ANY($1::smallint[]) ORDER BY id"
_COUNTS = " UNION ALL ".join(
    f"SELECT queue, state, count(*) FROM job WHERE {condition}"
    " AND shard = ANY($1::smallint[]) GROUP BY queue, state"
    for condition in ("state = 'queued'", f"state = 'blocked' AND {LISTED_STATE}", TIMED)
)


class Found(NamedTuple):
    """A snapshot, the shards that it is of, and the version of its queues and pauses."""

    snapshot: Snapshot
    shards: list[int]
    settings: int


async def read_snapshot(connection: asyncpg.Connection, no: int) -> Found:
    """Return what a server needs before its first turn, under a new epoch. no: its number."""
    epoch = await connection.fetchval(_RAISE_EPOCH)
    settings = await connection.fetchval(SETTINGS) or 0
    shards = [shard for (shard,) in await connection.fetch(_SHARDS, no)]
    clock = await load_clock(connection, no)
    expectations = [
        rows.expectation_from_row(row, clock.offset_us)
        for row in await connection.fetch(_EXPECTATIONS, shards)
    ]
    operations = await connection.fetch(_OPERATIONS, shards)
    ready_keys = await connection.fetch(_READY_KEYS, shards)
    last_id = await connection.fetchval(_LAST_ID) or 0
    decided_at = await connection.fetchval(_DECIDED_AT) or 0
    snapshot = Snapshot(
        epoch=epoch,
        last_id=max(last_id, first_id(decided_at), *(each.id for each in expectations)),
        queues=[*map(rows.queue_from_row, await connection.fetch(_QUEUES))],
        pauses=[*map(rows.pause_from_row, await connection.fetch(_PAUSES))],
        bulk_operations=[rows.decode_bulk_operation(record) for (record,) in operations],
        ready_keys=[*map(rows.ready_key_from_row, ready_keys)],
        has_blocked=bool(await connection.fetch(BLOCKED, 0, 1, shards)),
        clock=clock,
        expectations=expectations,
        store_id=await connection.fetchval(_STORE),
        slot=no,
    )
    return Found(snapshot, shards, settings)


def clock_names(no: int) -> list[str]:
    """Return the names under which a server keeps the fields of its ClockMark."""
    return [f"clock_{name}_{no}" for name in ClockMark._fields]


async def load_clock(connection: asyncpg.Connection, no: int) -> ClockMark:
    """Return the state of the previous server's clock, with the newest instant of the store."""
    names = clock_names(no)
    stored = dict(await connection.fetch(_CLOCK, names))
    mark = ClockMark(*(stored.get(name, 0) for name in names))
    newest = await connection.fetchval(_NEWEST_AT)
    return mark if newest is None else mark._replace(seen_at=max(mark.seen_at, newest))


async def count_waiting(connection: asyncpg.Connection, shards: list[int]) -> Waiting:
    """Return the numbers of the waiting jobs of the shards, of each queue, in each state."""
    counts: Waiting = {}
    for queue, state, count in await connection.fetch(_COUNTS, shards):
        counts.setdefault(queue, {})[State(state)] = count
    return counts
