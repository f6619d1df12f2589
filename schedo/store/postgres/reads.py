"""The reads of records, as functions of a session; queries of job lists are in job_search.py.

The conditions of partial indexes are repeated here literally (see migrations/0001_initial.sql).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import starmap
from operator import attrgetter

import asyncpg
import msgspec

from schedo.core import limits
from schedo.core.action_log import LogEntry, LogFilter, NumberedEntry
from schedo.core.bulk import BulkOperation
from schedo.core.bulk_undo import BulkStep, JobBefore
from schedo.core.loads import BlockedRun, LoadBlocked, LoadSchedules
from schedo.core.model import Job, Schedule
from schedo.core.run_history import NO_RUNS, RunHistory, ScheduleStatus
from schedo.core.shards import shard_of
from schedo.core.states import State
from schedo.store import rows
from schedo.store.base import OutputPiece, OutputSize, ScheduleRule
from schedo.store.conditions import LISTED_STATE, UNFINISHED

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
JOB_COLUMNS = ", ".join(f"job.{name}" for name in rows.JOB.names)
_SCHEDULE = ", ".join(rows.SCHEDULE.names)
# As the index of ready keys has it (see migrations/0007_job_rows.sql); {}: the requirements.
REQUIREMENTS_KEY = "(CASE WHEN {0} = '' THEN '' ELSE md5({0}) END)"
_WHOLE_PAYLOAD = "coalesce(payload, (SELECT payload FROM job_payload WHERE job_id = job.id))"
_decode_before = msgspec.json.Decoder(tuple[JobBefore, ...]).decode

BLOCKED = f"""
SELECT id, schedule_id FROM job
WHERE state = 'blocked' AND {LISTED_STATE} AND id + 0 > $1 AND shard = ANY($3::smallint[])
ORDER BY id + 0 LIMIT $2"""

JOB = f"SELECT {JOB_COLUMNS} FROM job WHERE id = $1"
WHOLE_JOB = JOB.replace("job.payload", _WHOLE_PAYLOAD, 1)
_OWNED = "shard = ANY($2::smallint[])"
JOBS = f"SELECT {JOB_COLUMNS} FROM job WHERE id = ANY($1::bigint[]) AND {_OWNED}"
UNIQUE = f"SELECT {JOB_COLUMNS} FROM job WHERE unique_key = ANY($1::text[]) AND {_OWNED}"
RUNNING = f"""
SELECT {JOB_COLUMNS} FROM job
WHERE state = 'running' AND {LISTED_STATE} AND id + 0 > $1 AND shard = ANY($3::smallint[])
ORDER BY id + 0 LIMIT $2"""
PAYLOAD = f"SELECT {_WHOLE_PAYLOAD} FROM job WHERE id = $1"

_SCHEDULE_BY = {
    str: f"SELECT {_SCHEDULE} FROM schedule WHERE name = $1",
    int: f"SELECT {_SCHEDULE} FROM schedule WHERE id = $1",
}
# A page ends soon after its payloads are large, so that not all of them are read. A spec has its
# payload in base64, and up to 64 KiB of other things.
_SPEC_REST_BYTES_MAX = 65_536


def bounded(columns: str, page: str, order: str) -> str:
    """Return the query for the first schedules of a page, until their payloads are large."""
    return f"""
SELECT {columns} FROM (
    SELECT *, sum(greatest(0, octet_length(spec) - {_SPEC_REST_BYTES_MAX}) * 3 / 4)
        OVER (ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM ({page}) AS page
) AS summed
WHERE coalesce(bytes_before, 0) <= {limits.SCHEDULE_PAGE_PAYLOADS_BYTES_MAX} ORDER BY {order}"""


# Of both timelines, each after an instant of its own: the wall clock's and the elapsed one.
_SCHEDULES = " UNION ALL ".join(
    "({})".format(
        bounded(
            _SCHEDULE,
            f"""SELECT * FROM schedule
    WHERE paused = 0 AND next_fire_at IS NOT NULL AND elapsed = {elapsed}
    AND (next_fire_at, id) > ({after}, $3::bigint)
    AND shard = ANY($5::smallint[]) ORDER BY next_fire_at, id LIMIT $4""",
            "next_fire_at, id",
        )
    )
    for elapsed, after in enumerate(("$1::bigint", "$2::bigint"))
)
_ACTIVE = f"""
SELECT run.schedule_id, run.id, run.state
FROM unnest($1::bigint[]) AS schedule (id) CROSS JOIN LATERAL (
    SELECT schedule_id, job.id, state FROM job
    WHERE schedule_id IS NOT NULL AND {UNFINISHED} AND schedule_id = schedule.id
    ORDER BY job.id LIMIT {limits.ACTIVE_RUNS_KNOWN_MAX}
) AS run ORDER BY run.id"""
# For a schedule with more runs than that: the latest of its newest ones that is blocked.
_LATEST_BLOCKED = f"""
SELECT max(id) FROM (
    SELECT id, state FROM job WHERE schedule_id IS NOT NULL AND {UNFINISHED} AND schedule_id = $1
    ORDER BY id DESC LIMIT {limits.ACTIVE_RUNS_KNOWN_MAX}
) AS newest WHERE state = 'blocked'"""
OWNED = "SELECT name FROM schedule WHERE owner = $1 ORDER BY name"
SCHEDULE_NAMES = "SELECT name FROM schedule ORDER BY name LIMIT $1"
# Skips from tag to tag through the index, so its cost is the number of tags, not of jobs.
TAGS = """
WITH RECURSIVE found (tag) AS (
    SELECT min(tag) FROM job_tag
    UNION ALL
    SELECT (SELECT min(tag) FROM job_tag WHERE tag > found.tag) FROM found
    WHERE found.tag IS NOT NULL
)
SELECT tag FROM found WHERE tag IS NOT NULL LIMIT $1"""
_HISTORY = ", ".join(
    f"history.{name}::text" if name == "last_runs" else f"history.{name}"
    for name in rows.RUN_HISTORY.names
)
_HISTORIES = f"""
SELECT history.schedule_id, {_HISTORY} FROM run_history AS history
WHERE history.schedule_id = ANY($1::bigint[])"""
_STATUSES = f"""
SELECT schedule.id, schedule.name, schedule.created_at, schedule.paused, {_HISTORY}
FROM schedule LEFT JOIN run_history AS history ON history.schedule_id = schedule.id
WHERE schedule.id > $1 ORDER BY schedule.id LIMIT $2"""
_RULES = """
SELECT id, name, (spec::json -> 'rule')::text, phase_us, elapsed, length(spec) FROM schedule
WHERE id > $1 AND paused = 0 ORDER BY id LIMIT $2"""
OVERDUE = "SELECT id FROM expectation WHERE of_schedule = 1 AND state = 'missed'"
EXPECTATIONS = f"SELECT {', '.join(rows.EXPECTATION.names)} FROM expectation"
EXPECTATIONS_OF = f"{EXPECTATIONS} WHERE of_schedule = 1 AND id = ANY($1::bigint[])"
DECISIONS = f"""
SELECT number, {", ".join(rows.DECISION.names)} FROM decision
WHERE schedule_id = $1 AND number < $2 ORDER BY number DESC LIMIT $3"""
ATTEMPTS = f"SELECT {', '.join(rows.ATTEMPT.names)} FROM attempt WHERE job_id = $1 ORDER BY number"
_OUTPUT_SIZES = """
SELECT attempt, stream, octet_length(head), octet_length(tail), total_bytes FROM output
WHERE job_id = $1 ORDER BY attempt, stream"""
_OUTPUT_PARTS = {
    part: f"SELECT substr({part}, $4::int + 1, $5::int) FROM output"
    " WHERE job_id = $1 AND attempt = $2 AND stream = $3"
    for part in ("head", "tail")
}
MINUTES = "SELECT at, figures FROM minute WHERE server = $2 AND at > $1 ORDER BY at"
# The body of a response may be large; only a repetition of its request reads it.
IDEMPOTENCY_RECORD = """
SELECT scope, fingerprint, status, CASE WHEN fingerprint = $2 THEN body ELSE ''::bytea END,
    created_at
FROM idempotency_record WHERE scope = $1"""
_NEXT_STEP = """
SELECT operation, number, jobs FROM bulk_step WHERE operation = $1 AND number < $2
ORDER BY number DESC LIMIT 1"""
# A step has jobs with smaller ids than its number, and the next step goes on below them. So each
# operation has one step in which the job can be, or one of the few that other servers keep, whose
# numbers are below zero; the text is the begin of its record.
_STEPS_OF_JOB = """
SELECT bulk_operation.record, step.jobs
FROM bulk_operation CROSS JOIN LATERAL (
    (SELECT jobs FROM bulk_step
    WHERE operation = bulk_operation.id AND number > $1 ORDER BY number LIMIT 1)
    UNION ALL
    SELECT jobs FROM bulk_step WHERE operation = bulk_operation.id AND number < 0
) AS step
WHERE bulk_operation.id > $1 AND strpos(step.jobs, $2) > 0"""
_LOG_CONDITIONS = {"who": "who =", "action": "action =", "target": "target =", "before": "at <"}
SIZE = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"""


async def jobs(
    connection: asyncpg.Connection, offset_us: int, query: str, *parameters: object
) -> list[Job]:
    """Return the jobs of a query."""
    return rows.jobs_from_rows(await connection.fetch(query, *parameters), offset_us)


async def job(
    connection: asyncpg.Connection, offset_us: int, query: str, job_id: int
) -> Job | None:
    """Return the only job of a query with one parameter, or None."""
    row = await connection.fetchrow(query, job_id)
    return None if row is None else rows.job_from_row(row, offset_us)


async def schedule_alone(
    connection: asyncpg.Connection, offset_us: int, which: str | int
) -> Schedule | None:
    """Return the schedule with this name (or this id), without its active jobs, or None."""
    row = await connection.fetchrow(_SCHEDULE_BY[type(which)], which)
    return None if row is None else rows.schedule_from_row(row, offset_us)


async def schedule(
    connection: asyncpg.Connection, offset_us: int, which: str | int, shards: list[int]
) -> Schedule | None:
    """Return the schedule with this name (or this id), with its active jobs, or None.

    One of another shard is not found.
    """
    found = await schedule_alone(connection, offset_us, which)
    if found is None or shard_of(found.name) not in shards:
        return None
    return (await _with_active(connection, [found]))[0]


async def page_of_schedules(
    connection: asyncpg.Connection, offset_us: int, load: LoadSchedules, shards: list[int]
) -> list[Schedule]:
    """Return a page of schedules by their next fire, with their active jobs."""
    value, ident = load.after
    elapsed = max(value - offset_us, INTEGER_MIN)
    found = await connection.fetch(_SCHEDULES, value, elapsed, ident, load.limit, shards)
    schedules = [rows.schedule_from_row(row, offset_us) for row in found]
    schedules.sort(key=attrgetter("next_fire_at", "id"))
    return await _with_active(connection, load.take_page(schedules))


async def page_of_blocked(
    connection: asyncpg.Connection, offset_us: int, load: LoadBlocked, shards: list[int]
) -> list[BlockedRun]:
    """Return a page of blocked runs with their schedules, in order of their ids."""
    found = await connection.fetch(BLOCKED, load.after, load.limit, shards)
    known: dict[int, Schedule | None] = {}
    size = 0
    for _, ident in found:
        if ident not in known:
            # One schedule at a time is read, because payloads may be large.
            each = known[ident] = await schedule_alone(connection, offset_us, ident)
            size += 0 if each is None else len(each.spec.job.payload)
            if size >= limits.SCHEDULE_PAGE_PAYLOADS_BYTES_MAX:
                break
    runs = ((job_id, ident, known.get(ident)) for job_id, ident in found)
    page = load.take_page(starmap(BlockedRun, runs))
    await _with_active(connection, [each for each in known.values() if each is not None])
    return page


async def _with_active(connection: asyncpg.Connection, found: list[Schedule]) -> list[Schedule]:
    if not found:  # as in most take-overs, whose first start would wait for the answer
        return found
    by_id = {each.id: each for each in found}
    for schedule_id, job_id, state in await connection.fetch(_ACTIVE, [*by_id]):
        each = by_id[schedule_id]
        each.active.append(job_id)
        if state == State.BLOCKED:
            each.blocked = job_id  # the latest
    for each in found:
        if len(each.active) == limits.ACTIVE_RUNS_KNOWN_MAX:
            each.blocked = await connection.fetchval(_LATEST_BLOCKED, each.id)
    return found


async def histories(connection: asyncpg.Connection, ids: Sequence[int]) -> dict[int, RunHistory]:
    """Return the histories of schedules, by id."""
    found = await connection.fetch(_HISTORIES, ids)
    return {row[0]: rows.history_from_row(row[1:]) for row in map(tuple, found)}


async def schedule_statuses(
    connection: asyncpg.Connection, after: int, limit: int
) -> list[ScheduleStatus]:
    """Return what monitoring shows of schedules, in order of id."""
    return [
        ScheduleStatus(
            *(ident, name, created_at, paused == 1),
            NO_RUNS if history[0] is None else rows.history_from_row(history),
        )
        for ident, name, created_at, paused, *history in await connection.fetch(
            _STATUSES, after, limit
        )
    ]


async def rules(
    connection: asyncpg.Connection, offset_us: int, after: int, limit: int
) -> list[ScheduleRule]:
    """Return the rules of schedules that are not paused; large payloads end the page."""
    found: list[ScheduleRule] = []
    size = 0
    for ident, name, text, phase_us, elapsed, length in await connection.fetch(
        _RULES, after, limit
    ):
        rule = rows.rule_from(text, phase_us + (offset_us if elapsed else 0))
        found.append(ScheduleRule(ident, name, rule))
        size += length
        if size > limits.SCHEDULE_PAGE_PAYLOADS_BYTES_MAX:
            break
    return found


async def output_sizes(connection: asyncpg.Connection, job_id: int) -> list[OutputSize]:
    """Return the sizes of a job's captured streams."""
    return [OutputSize(*row) for row in await connection.fetch(_OUTPUT_SIZES, job_id)]


async def output_piece(connection: asyncpg.Connection, job_id: int, piece: OutputPiece) -> bytes:
    """Return a range of bytes of a captured stream; empty if it is gone."""
    found: bytes | None = await connection.fetchval(
        _OUTPUT_PARTS[piece.part], job_id, piece.attempt, piece.stream, piece.at, piece.length
    )
    return found or b""


async def next_step(connection: asyncpg.Connection, operation: int, before: int) -> BulkStep | None:
    """Return the step of the operation with the largest number below `before`."""
    found = await connection.fetchrow(_NEXT_STEP, operation, before)
    return BulkStep(found[0], found[1], _decode_before(found[2])) if found is not None else None


async def bulk_changes(
    connection: asyncpg.Connection, job_id: int
) -> list[tuple[BulkOperation, int]]:
    """Return the operations that have changed the job, and when."""
    return [
        (rows.decode_bulk_operation(record), each.changed_at)
        for record, jobs in await connection.fetch(_STEPS_OF_JOB, job_id, f"[{job_id},")
        for each in _decode_before(jobs)
        if each.id == job_id
    ]


async def log_entries(
    connection: asyncpg.Connection, which: LogFilter, before: int | None, limit: int
) -> list[NumberedEntry]:
    """Return entries that match, newest first, those with a number below `before`."""
    conditions = {sql: getattr(which, name) for name, sql in _LOG_CONDITIONS.items()}
    given = {sql: value for sql, value in conditions.items() if value is not None}
    given["number <"] = INTEGER_MAX if before is None else before
    where = " AND ".join(f"{sql} ${at}" for at, sql in enumerate(given, 1))
    query = (
        f"SELECT number, {', '.join(LogEntry._fields)} FROM action_log WHERE {where}"
        f" ORDER BY number DESC LIMIT {limit:d}"
    )
    found: Iterable[asyncpg.Record] = await connection.fetch(query, *given.values())
    return [
        NumberedEntry(number, LogEntry(*values)._replace(is_job=bool(values[-1])))
        for number, *values in found
    ]
