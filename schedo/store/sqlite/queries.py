"""All statements that read, in one place, so that tests can check SQLite's plan of each.

The conditions of partial indexes are repeated literally (see migrations/0001_initial.sql).
"""

from __future__ import annotations

from typing import NamedTuple

from schedo.core import limits
from schedo.store import rows
from schedo.store.conditions import LISTED_STATE, TIMED, UNFINISHED, WAITING

_JOB = ", ".join(rows.JOB.names)
_SCHEDULE = ", ".join(rows.SCHEDULE.names)
_WHOLE_PAYLOAD = "coalesce(payload, (SELECT payload FROM job_payload WHERE job_id = job.id))"


class Paged(NamedTuple):
    """A page in order of (value, id), in two statements that run in this order.

    For (value, id) > (:value, :id) SQLite seeks by the first part only. With a million jobs of one
    instant, each page would scan all of them again.
    """

    same: str  # the rows that have the last value of the previous page
    later: str


def _paged(select: str, value: str) -> Paged:
    return Paged(
        f"{select} AND {value} = :value AND id > :id ORDER BY id LIMIT :limit",
        f"{select} AND {value} > :value ORDER BY {value}, id LIMIT :limit",
    )


NEWEST_AT = "SELECT created_at - offset_us FROM job ORDER BY id DESC LIMIT 1"
CLOCK = "SELECT name, value FROM meta WHERE name LIKE 'clock_%'"
LAST_ID = """
SELECT max(
    coalesce((SELECT max(id) FROM job), 0),
    coalesce((SELECT max(id) FROM schedule), 0),
    coalesce((SELECT max(id) FROM bulk_operation), 0),
    coalesce((SELECT max(id) FROM bulk_undo), 0)
)"""
DECIDED_AT = "SELECT coalesce((SELECT value FROM meta WHERE name = 'decided_at'), 0)"

# Skips from key to key through the index, so its cost is the number of ready keys, not of jobs. The
# three steps are separate because SQLite seeks by the first part of (queue, ...) > (...) only.
READY_KEYS = """
WITH RECURSIVE found (queue, task, requirements) AS (
    SELECT queue, task, requirements FROM (
        SELECT queue, task, requirements FROM job WHERE state = 'queued'
        ORDER BY queue, task, requirements LIMIT 1
    )
    UNION ALL
    SELECT following.queue, following.task, following.requirements
    FROM found CROSS JOIN job AS following ON following.id = coalesce(
        (
            SELECT id FROM job WHERE state = 'queued' AND queue = found.queue AND task = found.task
            AND requirements > found.requirements ORDER BY requirements LIMIT 1
        ), (
            SELECT id FROM job WHERE state = 'queued' AND queue = found.queue AND task > found.task
            ORDER BY task, requirements LIMIT 1
        ), (
            SELECT id FROM job WHERE state = 'queued' AND queue > found.queue
            ORDER BY queue, task, requirements LIMIT 1
        )
    )
)
SELECT queue, task, requirements FROM found"""
BLOCKED = f"""
SELECT id, schedule_id FROM job
WHERE state = 'blocked' AND {LISTED_STATE} AND id > ? ORDER BY id LIMIT ?"""

TIMERS = _paged(f"SELECT {_JOB} FROM job WHERE {TIMED} AND due_elapsed = :elapsed", "due_at")
# The rank with the present offset, not with that when the job was created.
_DUE_RANK = "rank - (1 - due_elapsed) * (:offset_us - offset_us)"
DUE = _paged(
    f"SELECT due_at, id, {_DUE_RANK}, state, queue, task, requirements FROM job"
    f" WHERE {TIMED} AND due_elapsed = :elapsed AND due_at <= :until",
    "due_at",
)
QUEUE_JOBS = (
    f"UPDATE job SET state = 'queued', rank = {_DUE_RANK}"
    f" WHERE id IN (SELECT value FROM json_each(:ids)) AND {TIMED}"
)
# One row for a whole page, because each row that is fetched releases the interpreter's lock, and
# while the event loop is busy, getting it back takes longer than the row. rows.JOB_TEXTS as text.
_READY = _paged(
    f"SELECT {_JOB} FROM job WHERE state = 'queued'"
    " AND queue = :queue AND task = :task AND requirements = :requirements",
    "rank",
)
_VALUES = ", ".join(f"CAST({n} AS TEXT)" if n in rows.JOB_TEXTS else n for n in rows.JOB.names)
READY = Paged(*(f"SELECT json_group_array(json_array({_VALUES})) FROM ({q})" for q in _READY))
RUNNING = f"""
SELECT {_JOB} FROM job WHERE state = 'running' AND {LISTED_STATE} AND id > ? ORDER BY id LIMIT ?"""
EXPIRED = f"""
SELECT {_JOB} FROM job
WHERE expires_at IS NOT NULL AND {WAITING} AND expires_elapsed = ? AND expires_at <= ?
ORDER BY expires_at, id LIMIT ?"""
JOB = f"SELECT {_JOB} FROM job WHERE id = ?"
JOBS = f"SELECT {_JOB} FROM job WHERE id IN (SELECT value FROM json_each(?))"
WHOLE_JOB = JOB.replace(" payload,", f" {_WHOLE_PAYLOAD},")
UNIQUE_IDS = "SELECT id FROM job WHERE unique_key IN (SELECT value FROM json_each(?))"
UNIQUE = f"SELECT {_JOB} FROM job WHERE unique_key IN (SELECT value FROM json_each(?))"
PAYLOAD = f"SELECT {_WHOLE_PAYLOAD} FROM job WHERE id = ?"
LARGE_PAYLOAD = "SELECT payload FROM job_payload WHERE job_id = ?"

SCHEDULES = _paged(
    f"SELECT {_SCHEDULE} FROM schedule WHERE paused = 0 AND next_fire_at IS NOT NULL"
    " AND elapsed = :elapsed",
    "next_fire_at",
)
SCHEDULE_BY_NAME = f"SELECT {_SCHEDULE} FROM schedule WHERE name = ?"
SCHEDULE_BY_ID = f"SELECT {_SCHEDULE} FROM schedule WHERE id = ?"
# In parts: there is no index, and all rows of 100,000 schedules take 40 ms of the processor.
OWNED = """
SELECT max(id), json_group_array(name) FILTER (WHERE owner = ?)
FROM (SELECT id, name, owner FROM schedule WHERE id > ? ORDER BY id LIMIT ?)"""
# Both in one row, as READY: 10,000 rows took 4 ms of the processor, and kept look-ups waiting 40.
SCHEDULE_NAMES = """
SELECT json_group_array(name) FROM (SELECT name FROM schedule ORDER BY name LIMIT ?)"""
# Skips from tag to tag through the index, so its cost is the number of tags, not of jobs.
TAGS = """
WITH RECURSIVE found (tag) AS (
    SELECT min(tag) FROM job_tag
    UNION ALL
    SELECT (SELECT min(tag) FROM job_tag WHERE tag > found.tag) FROM found
    WHERE found.tag IS NOT NULL
)
SELECT json_group_array(tag) FROM (SELECT tag FROM found WHERE tag IS NOT NULL LIMIT ?)"""
_HISTORY = ", ".join(f"history.{name}" for name in rows.RUN_HISTORY.names)
# ?: the ids of schedules as JSON.
HISTORIES = f"""
SELECT history.schedule_id, {_HISTORY}
FROM json_each(?) AS wanted CROSS JOIN run_history AS history
ON history.schedule_id = wanted.value"""
SCHEDULE_STATUSES = f"""
SELECT schedule.id, schedule.name, schedule.created_at, schedule.paused, {_HISTORY}
FROM schedule LEFT JOIN run_history AS history ON history.schedule_id = schedule.id
WHERE schedule.id > ? ORDER BY schedule.id LIMIT ?"""
RULES = """
SELECT id, name, spec ->> '$.rule', phase_us, elapsed, length(spec) FROM schedule
WHERE id > ? AND paused = 0 ORDER BY id LIMIT ?"""
# For a whole page of schedules in one statement; :ids: their ids as JSON.
ACTIVE = f"""
SELECT run.schedule_id, run.id, run.state
FROM json_each(:ids) AS schedule CROSS JOIN job AS run ON run.id IN (
    SELECT id FROM job WHERE schedule_id IS NOT NULL AND {UNFINISHED}
    AND schedule_id = schedule.value ORDER BY id LIMIT {limits.ACTIVE_RUNS_KNOWN_MAX}
) ORDER BY run.id"""
# For a schedule with more runs than that: the latest of its newest ones that is blocked.
LATEST_BLOCKED = f"""
SELECT max(id) FROM (
    SELECT id, state FROM job WHERE schedule_id IS NOT NULL AND {UNFINISHED} AND schedule_id = ?
    ORDER BY id DESC LIMIT {limits.ACTIVE_RUNS_KNOWN_MAX}
) WHERE state = 'blocked'"""
DECISIONS = f"""
SELECT number, {", ".join(rows.DECISION.names)} FROM decision
WHERE schedule_id = ? AND number < ? ORDER BY number DESC LIMIT ?"""

ATTEMPTS = f"""
SELECT {", ".join(rows.ATTEMPT.names)} FROM attempt WHERE job_id = ? ORDER BY number"""
OUTPUT_SIZES = """
SELECT attempt, stream, length(head), length(tail), total_bytes FROM output
WHERE job_id = ? ORDER BY attempt, stream"""
_OUTPUT_PART = "FROM output WHERE job_id = ? AND attempt = ? AND stream = ?"
OUTPUT_PARTS = {
    "head": f"SELECT substr(head, ? + 1, ?) {_OUTPUT_PART}",
    "tail": f"SELECT substr(tail, ? + 1, ?) {_OUTPUT_PART}",
}
MINUTES = "SELECT at, figures FROM minute WHERE at > ? ORDER BY at"
TALLIES = """
SELECT at, figures FROM tally
WHERE dimension = ? AND period = ? AND at > ? AND at < ? ORDER BY at LIMIT ?"""
EXPECTATIONS = f"SELECT {', '.join(rows.EXPECTATION.names)} FROM expectation ORDER BY id"
PAUSES = f"SELECT {', '.join(rows.PAUSE.names)} FROM pause ORDER BY scope"
CORDONS = f"SELECT {', '.join(rows.CORDON.names)} FROM cordon ORDER BY name"
QUEUES = f"SELECT {', '.join(rows.QUEUE.names)} FROM queue ORDER BY name"
# The body of a response may be large; only a repetition of its request reads it.
BULK_OPERATIONS = """
SELECT record FROM (
    SELECT id, record FROM bulk_operation UNION ALL SELECT id, record FROM bulk_undo
) ORDER BY id
"""
IDEMPOTENCY_RECORD = (
    f"SELECT {', '.join(rows.IDEMPOTENCY_RECORD.names)} FROM idempotency_record WHERE scope = ?"
).replace(" body,", " CASE WHEN fingerprint = ? THEN body ELSE x'' END AS body,")

# Covering scans of waiting jobs; ended jobs are not read.
COUNTS = f"""
SELECT queue, 'queued', count(*) FROM job WHERE state = 'queued' GROUP BY queue
UNION ALL SELECT queue, 'blocked', count(*) FROM job
    WHERE state = 'blocked' AND {LISTED_STATE} GROUP BY queue"""
# GROUP BY queue sorts in memory. So the jobs that wait for an instant are counted in parts.
COUNT_SAME = f"""
SELECT queue, state, count(*), max(id) FROM (
    SELECT queue, state, id FROM job
    WHERE {TIMED} AND due_elapsed = :elapsed AND due_at = :value AND id > :id
    ORDER BY id LIMIT :limit
) GROUP BY queue, state"""
COUNT_BOUND = f"""
SELECT due_at FROM job WHERE {TIMED} AND due_elapsed = :elapsed AND due_at > :value
ORDER BY due_at LIMIT 1 OFFSET :limit"""
COUNT_BELOW = f"""
SELECT queue, state, count(*) FROM job
WHERE {TIMED} AND due_elapsed = :elapsed AND due_at > :value AND due_at < :bound
GROUP BY queue, state"""

ENDED = """
SELECT id FROM job WHERE state = ? AND ended_at IS NOT NULL AND kept_until IS NULL
AND (schedule_id IS NULL OR released = 1) AND ended_at <= ?
ORDER BY ended_at LIMIT ?"""
KEPT_ENOUGH = """
SELECT id FROM job WHERE kept_until IS NOT NULL AND kept_until <= ?
ORDER BY kept_until LIMIT ?"""
# The schedules of which runs have ended up to an instant, and those of their ended runs that the
# general retention does not concern yet, newest first.
RUNS_TO_RELEASE = """
SELECT schedule_id, EXISTS (SELECT 1 FROM schedule WHERE id = schedule_id) FROM run_release
WHERE due_at <= ? ORDER BY due_at LIMIT ?"""
HELD_RUNS = """
SELECT id FROM job WHERE schedule_id = ? AND schedule_id IS NOT NULL
AND released IS NULL AND ended_at IS NOT NULL ORDER BY id DESC LIMIT ? OFFSET ?"""
RELEASE_RUNS = "UPDATE job SET released = 1 WHERE id IN (SELECT value FROM json_each(?))"
# Nothing is left to release of a schedule, but the runs that have ended since then.
RELEASED = (
    "DELETE FROM run_release WHERE schedule_id = ? AND last_at <= ?",
    "UPDATE run_release SET due_at = last_at WHERE schedule_id = ? AND last_at > ?",
)
# ?: the ids of the jobs as JSON.
DELETE_JOBS = (
    "DELETE FROM job WHERE id IN (SELECT value FROM json_each(?))",
    "DELETE FROM job_payload WHERE job_id IN (SELECT value FROM json_each(?))",
    "DELETE FROM job_tag WHERE job_id IN (SELECT value FROM json_each(?))",
    "DELETE FROM attempt WHERE job_id IN (SELECT value FROM json_each(?))",
    "DELETE FROM output WHERE job_id IN (SELECT value FROM json_each(?))",
)
# An instant that made no job leaves no id, nor does what is deleted. After the clock was set back,
# this mark keeps a later rule from deciding the instant again, and a new record from the id.
MARK_DECIDED = """
INSERT INTO meta (name, value) VALUES ('decided_at', ?)
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)"""
DELETE_IDEMPOTENCY_RECORDS = """
DELETE FROM idempotency_record WHERE rowid IN (
    SELECT rowid FROM idempotency_record WHERE created_at <= ? ORDER BY created_at LIMIT ?
)"""

# A list omits large results too: a page of them could be a gigabyte.
LISTED_JOB = _JOB.replace(
    " result,",
    f" CASE WHEN length(result) <= {limits.PAYLOAD_INLINE_BYTES_MAX} THEN result END AS result,",
)
