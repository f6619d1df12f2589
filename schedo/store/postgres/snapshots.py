"""The snapshot of a server: what it needs of its shards before its first turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import asyncpg
import msgspec

from schedo.core.bulk import BulkOperation
from schedo.core.ids import first_id
from schedo.core.states import State
from schedo.store import rows
from schedo.store.base import ClockMark, Snapshot, Waiting
from schedo.store.columns import Row
from schedo.store.conditions import LISTED_STATE, TIMED
from schedo.store.postgres.reads import REQUIREMENTS_KEY
from schedo.store.postgres.writes import SETTINGS

# A random number that the store gets with its first snapshot, and keeps.
_STORE = "SELECT value FROM meta WHERE name = 'store'"
_MAKE_STORE = f"""
INSERT INTO meta (name, value) SELECT 'store', (random() * 9e18)::bigint WHERE NOT EXISTS ({_STORE})
ON CONFLICT (name) DO UPDATE SET value = meta.value RETURNING value"""
_NEWEST_AT = "SELECT created_at - offset_us FROM job ORDER BY id DESC LIMIT 1"
_LAST_ID = """
SELECT greatest(
    (SELECT max(id) FROM job), (SELECT max(id) FROM schedule), (SELECT max(id) FROM bulk_operation)
)"""
_DECIDED_AT = "SELECT max(value) FROM meta WHERE name LIKE 'decided\\_at%'"
# Skips from key to key through the index, so its cost is the number of ready keys, not of jobs.
_KEY = f"{{0}}.queue, {{0}}.task, {REQUIREMENTS_KEY.format('{0}.requirements')}"
_READY_KEYS = f"""
WITH RECURSIVE found AS (
    SELECT first.* FROM owned CROSS JOIN LATERAL (
        SELECT shard, queue, task, requirements FROM job
        WHERE state = 'queued' AND job.shard = owned.no ORDER BY {_KEY.format("job")} LIMIT 1
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


def _lists(names: Iterable[str], source: str) -> str:
    """Return the expression whose value is a JSON array with an array for each row."""
    return f"(SELECT coalesce(json_agg(json_build_array({', '.join(names)})), '[]') FROM {source})"


_SHARDS = "ARRAY(SELECT no FROM owned)"
_OF_SHARDS = f"WHERE shard = ANY({_SHARDS}) ORDER BY id"
# The offset that the servers agree on, which is that of the one that has followed a step last.
OFFSET = "clock_offset_us"
# One round trip, because a take-over waits for it. All parts are of one instant. From then on the
# server follows the settings, and counts what runs in its shards, but in no others that its number
# had before. It has no share of a limit: what its number has is of a time in which another server
# was the home of the queue, or of a dead one.
# $1: the number of the server. $2: the names of the clock's marks.
_READ = f"""
WITH owned AS MATERIALIZED (SELECT no FROM shard WHERE owner = $1 ORDER BY no),
made AS ({_MAKE_STORE}),
following AS (UPDATE server SET settings = coalesce(({SETTINGS}), 0) WHERE no = $1),
counting AS (
    UPDATE shard SET read_by = CASE WHEN owner = $1 THEN owner END
    WHERE (owner = $1 OR read_by = $1) AND read_by IS DISTINCT FROM owner
),
sharing AS (UPDATE queue_share SET share = 0 WHERE server = $1 AND share <> 0)
SELECT nextval('epoch') AS epoch, {_SHARDS} AS shards,
    coalesce((SELECT value FROM made), ({_STORE})) AS store_id,
    coalesce(({SETTINGS}), 0) AS settings,
    coalesce(({_LAST_ID}), 0) AS last_id,
    coalesce(({_DECIDED_AT}), 0) AS decided_at,
    ({_NEWEST_AT}) AS newest_at,
    {_lists(("name", "value"), "meta WHERE name = ANY($2::text[])")} AS clock,
    {_lists(rows.QUEUE.names, "(SELECT * FROM queue ORDER BY name) AS queue")} AS queues,
    {_lists(rows.PAUSE.names, "(SELECT * FROM pause ORDER BY scope) AS pause")} AS pauses,
    {_lists(rows.CORDON.names, "(SELECT * FROM cordon ORDER BY name) AS cordon")} AS cordons,
    {_lists(rows.EXPECTATION.names, f"(SELECT * FROM expectation {_OF_SHARDS}) AS e")}
        AS expectations,
    {_lists(("record",), f"(SELECT * FROM bulk_operation {_OF_SHARDS}) AS o")} AS operations,
    {_lists(("queue", "task", "requirements"), f"({_READY_KEYS}) AS key")} AS ready_keys,
    EXISTS (
        SELECT 1 FROM job
        WHERE state = 'blocked' AND {LISTED_STATE} AND shard = ANY({_SHARDS})
    ) AS has_blocked"""
# After a fail-over to a standby that lacks the last commits, the sequence would give epochs again.
# An attempt that goes on from before would be taken for the one that repeats it.
_SKIP = "SELECT count(nextval('epoch')) FROM generate_series(1, $1::bigint)"
_decode = msgspec.json.Decoder(list[tuple[Any, ...]]).decode
_COUNTS = " UNION ALL ".join(
    f"SELECT queue, state, count(*) FROM job WHERE {condition}"
    " AND shard = ANY($1::smallint[]) GROUP BY queue, state"
    for condition in ("state = 'queued'", f"state = 'blocked' AND {LISTED_STATE}", TIMED)
)


class Found(NamedTuple):
    """A snapshot, the shards that it is of, and the version of its queues, pauses and cordons."""

    snapshot: Snapshot
    shards: list[int]
    settings: int


async def read_snapshot(connection: asyncpg.Connection, no: int, known: int = 0) -> Found:
    """Return what a server needs before its first turn, under a new epoch.

    no: its number. known: the newest epoch that it has seen.
    """
    given = no, [*clock_names(no), OFFSET]
    found = await connection.fetchrow(_READ, *given)
    if found["epoch"] <= known:
        await connection.execute(_SKIP, known - found["epoch"])
        found = await connection.fetchrow(_READ, *given)
    clock = read_clock(no, dict(_decode(found["clock"])), found["newest_at"] or 0)
    expectations = [
        rows.expectation_from_row(row, clock.offset_us) for row in _decode(found["expectations"])
    ]
    ids = (found["last_id"], first_id(found["decided_at"]), *(each.id for each in expectations))
    snapshot = Snapshot(
        epoch=found["epoch"],
        last_id=max(ids),
        queues=[*map(rows.queue_from_row, _decode(found["queues"]))],
        pauses=[*map(rows.pause_from_row, _decode(found["pauses"]))],
        cordons=[*map(rows.cordon_from_row, _decode(found["cordons"]))],
        bulk_operations=[*map(_operation_from_row, _decode(found["operations"]))],
        ready_keys=[*map(rows.ready_key_from_row, _decode(found["ready_keys"]))],
        has_blocked=found["has_blocked"],
        clock=clock,
        expectations=expectations,
        store_id=found["store_id"],
        slot=no,
    )
    return Found(snapshot, found["shards"], found["settings"])


def _operation_from_row(row: Row) -> BulkOperation:
    return rows.decode_bulk_operation(row[0])


def clock_names(no: int) -> list[str]:
    """Return the names under which a server keeps the fields of its ClockMark."""
    return [clock_name(field, no) for field in ClockMark._fields]


def clock_name(field: str, no: int) -> str:
    """Return the name under which a server keeps this field of its ClockMark."""
    return f"clock_{field}_{no}"


def read_clock(no: int, stored: Mapping[str, int], newest: int = 0) -> ClockMark:
    """Return the state of the previous server's clock, with the newest instant of the store."""
    mark = ClockMark(*(stored.get(name, 0) for name in clock_names(no)))
    # Other servers may have followed a step since then.
    offset_us = stored.get(OFFSET, mark.offset_us)
    base_us = mark.base_us + offset_us - mark.offset_us
    seen_at = max(mark.seen_at, newest)
    return mark._replace(offset_us=offset_us, base_us=base_us, seen_at=seen_at)


async def count_waiting(connection: asyncpg.Connection, shards: list[int]) -> Waiting:
    """Return the numbers of the waiting jobs of the shards, of each queue, in each state."""
    counts: Waiting = {}
    for queue, state, count in await connection.fetch(_COUNTS, shards):
        counts.setdefault(queue, {})[State(state)] = count
    return counts
