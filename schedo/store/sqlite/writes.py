"""The statements of one commit, which run as one transaction.

`encode` reads the records in the caller's thread, before the first await. `run` runs in the
writer's thread and reads no record. A commit is a list of statements with their rows, in the order
of writing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from schedo.core import limits
from schedo.core.changes import Changes
from schedo.core.ids import newest_at
from schedo.core.keep import NOT_KEPT
from schedo.core.model import PLAIN, DecisionRecord, Job
from schedo.errors import StoreRefused
from schedo.store import rows
from schedo.store.base import ClockMark
from schedo.store.columns import Row
from schedo.store.rows import (
    CORDON,
    EXPECTATION,
    IDEMPOTENCY_RECORD,
    JOB,
    PAUSE,
    QUEUE,
    SCHEDULE,
)
from schedo.store.sqlite import bulk, bulk_steps
from schedo.store.sqlite import unkept as unkept_jobs
from schedo.store.sqlite.action_log import INSERT_LOG_ENTRY
from schedo.store.sqlite.buffer_entries import LAYOUT, BufferableJobs
from schedo.store.sqlite.bulk import COUNTS, Shape, make_shape
from schedo.store.sqlite.decisions import (
    INSERT_DECISION,
    INSERT_DECISIONS,
    TRIM_DECISION,
    TRIM_DECISIONS,
    trimmed,
)
from schedo.store.sqlite.evidence import (
    INSERT_ATTEMPT,
    INSERT_OUTPUT,
    TRIM_ATTEMPTS,
    TRIM_OUTPUTS,
)
from schedo.store.sqlite.histories import (
    ADD_ENDED_RUN,
    ADD_ENDED_RUNS,
    DELETE_HISTORY,
    MARK_RUNS,
    runs_to_release,
)
from schedo.store.sqlite.queries import MARK_DECIDED
from schedo.store.sqlite.statements import insert, insert_rows, or_update, value_rows

_Usual = dict[str, str | int | None]
# The values that columns have in most jobs; until an attempt has started; when the first one has
# ended without a result.
_USUAL: _Usual = {
    **dict.fromkeys(("schedule_id", "scheduled_for", "unique_key", "expires_at")),
    **dict.fromkeys(("cancel_requested_at", "failure", "kept_until")),
}
_PLAIN: _Usual = {**_USUAL, "trigger": "submit", "result": None}
_PLAIN |= dict.fromkeys(("failures", "losses", "missed_count", "expires_elapsed"), 0)
_NOT_STARTED: _Usual = {**_PLAIN, **dict.fromkeys(("attempt", "epoch"), 0)}
_NOT_STARTED |= dict.fromkeys(("picked_at", "started_at", "ended_at", "worker"))
_STARTED: _Usual = {**_PLAIN, "attempt": 1, "due_elapsed": 0, "priority": 0}
_KEYED: _Usual = {name: value for name, value in _USUAL.items() if name != "unique_key"}


def _update_jobs(values: Mapping[str, str], count: int) -> str:
    bound = [name for name, value in values.items() if value == "?"]
    new = {**values, **{name: f"row.column{at}" for at, name in enumerate(bound, start=1)}}
    job_id = new.pop("id")
    return (
        f"UPDATE job SET {', '.join(f'{name} = {value}' for name, value in new.items())}"
        f" FROM (VALUES {value_rows('?' * len(bound), count)}) AS row WHERE job.id = {job_id}"
    )


INSERT_JOB = insert("job", JOB.inserted)
INSERT_JOBS = tuple(
    make_shape(JOB.inserted, usual, partial(insert_rows, "job"))
    for usual in (_STARTED, _NOT_STARTED, _USUAL, _KEYED)
)
UPDATE_JOB = f"UPDATE job SET {', '.join(f'{name} = ?' for name in JOB.mutable)} WHERE id = ?"
UPDATE_JOBS = tuple(
    make_shape((*JOB.mutable, "id"), usual, _update_jobs) for usual in (_STARTED, _USUAL, _KEYED)
)
INSERT_PAYLOAD = "INSERT INTO job_payload (job_id, payload) VALUES (?, ?)"
INSERT_TAG = "INSERT OR IGNORE INTO job_tag (tag, job_id) VALUES (?, ?)"
INSERT_TAGS = Shape(
    {count: INSERT_TAG.replace("(?, ?)", value_rows("??", count)) for count in COUNTS}
)

_OR_UPDATE_SCHEDULE = or_update("id", SCHEDULE.inserted)
UPSERT_SCHEDULE = insert("schedule", SCHEDULE.inserted) + _OR_UPDATE_SCHEDULE
UPSERT_SCHEDULES = Shape(
    {count: insert("schedule", SCHEDULE.inserted, count) + _OR_UPDATE_SCHEDULE for count in COUNTS}
)
DELETE_SCHEDULE = "DELETE FROM schedule WHERE id = ?"
DELETE_DECISIONS = "DELETE FROM decision WHERE schedule_id = ?"

UPSERT_PAUSE = insert("pause", PAUSE.names) + or_update("scope", PAUSE.names)
DELETE_PAUSE = "DELETE FROM pause WHERE scope = ?"
UPSERT_CORDON = insert("cordon", CORDON.names) + or_update("name", CORDON.names)
DELETE_CORDON = "DELETE FROM cordon WHERE name = ?"
UPSERT_EXPECTATION = insert("expectation", EXPECTATION.names) + or_update("id", EXPECTATION.names)
DELETE_EXPECTATION = "DELETE FROM expectation WHERE id = ?"
UPSERT_QUEUE = insert("queue", QUEUE.names) + or_update("name", QUEUE.names)

RAISE_EPOCH = "UPDATE meta SET value = value + 1 WHERE name = 'epoch'"
UPSERT_IDEMPOTENCY_RECORD = insert("idempotency_record", IDEMPOTENCY_RECORD.names).replace(
    "INSERT", "INSERT OR REPLACE", 1
)


# The position of the job's id in the rows of a statement.
_JOB_ID_POSITIONS: dict[str, int | str] = {
    INSERT_JOB: 0,
    UPDATE_JOB: -1,
    INSERT_PAYLOAD: 0,
    INSERT_TAG: 1,
    INSERT_ATTEMPT: "job_id",
    INSERT_OUTPUT: "job_id",
}

_KEY = LAYOUT.known.index("unique_key")

# A rank is an instant less some priority steps. A commit with a rank outside this range is written
# to the tables, where SQLite checks each value; the write buffer would accept any value.
_RANK_MIN, _RANK_MAX = -(2**62), 2**62


SAVE_MINUTE = "INSERT OR REPLACE INTO minute (at, figures) VALUES (?, ?)"
DELETE_MINUTES = "DELETE FROM minute WHERE at <= ?"
SAVE_CLOCK = "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)"


class Statement(NamedTuple):
    """One statement, which runs once for each row.

    must_match: each row must change exactly one row of the table. shapes: its bulk statements, if
    the order of the rows does not matter.
    """

    sql: str
    rows: Sequence[Any]
    must_match: bool = False
    shapes: Sequence[Shape] = ()


class Commit(NamedTuple):
    """The writes of one commit.

    is_bufferable: the jobs may enter the write buffer; then the other statements are those that do
    not read the job table. has_keys: jobs have unique keys, which the buffer must check.
    """

    jobs: BufferableJobs
    others: Sequence[Statement]
    is_bufferable: bool
    has_keys: bool
    deletes: Sequence[Statement] = ()

    def statements(self) -> Sequence[Statement]:
        """Return the statements that write all of it to the tables, in the order of writing."""
        (new, known), drops = keep_jobs(*self.jobs)
        with_key = [row for row in known if row[_KEY] is not None] if self.has_keys else []
        # Updates without a unique key come first: they may free a key that another job takes.
        without_key = [row for row in known if row[_KEY] is None] if with_key else known
        jobs = (
            update_jobs(without_key),
            Statement(UPDATE_JOB, with_key, must_match=True),
            insert_jobs(new),
        )
        return [*self.deletes, *drops, *(each for each in jobs if each.rows), *self.others]


def encode(changes: Changes, offset_us: int = 0) -> Commit:
    """Return the writes that make the changes durable."""
    commit = _encode_jobs(changes.jobs, offset_us)
    if not changes.has_others:
        return commit
    others = _encode_others(changes, offset_us)
    # What is rare, or may read the row of a job, is not written beside an entry of the buffer.
    is_bufferable = commit.is_bufferable and not (
        changes.schedules
        or changes.schedules_deleted
        or changes.queues
        or changes.pauses
        or changes.cordons
        or changes.jobs_deleted
        or changes.decisions
        or any(each.job_id not in changes.jobs for each in changes.attempts)
        or any(each.job_id not in changes.jobs for each in changes.outputs)
    )
    return commit._replace(
        others=[*commit.others, *others],
        is_bufferable=is_bufferable,
        deletes=_encode_deletes(changes.jobs_deleted),
    )


def _encode_deletes(job_ids: Sequence[int]) -> list[Statement]:
    if not job_ids:
        return []
    return [Statement(*each) for each in unkept_jobs.drop(job_ids)]


def _encode_others(changes: Changes, offset_us: int) -> list[Statement]:
    deleted = set(changes.schedules_deleted)
    schedules = [
        rows.schedule_row(schedule, offset_us)
        for schedule in changes.schedules.values()
        if schedule.id not in deleted
    ]
    decisions = [d for d in changes.decisions if d.schedule_id not in deleted]
    statements = [
        Statement(DELETE_SCHEDULE, [(each,) for each in deleted]),
        Statement(DELETE_DECISIONS, [(each,) for each in deleted]),
        Statement(DELETE_HISTORY, [(each,) for each in deleted]),
        Statement(MARK_RUNS, runs_to_release(changes)),
        Statement(UPSERT_SCHEDULE, schedules, shapes=(UPSERT_SCHEDULES,)),
        Statement(
            ADD_ENDED_RUN, [*map(rows.ended_run_row, changes.ended_runs)], shapes=(ADD_ENDED_RUNS,)
        ),
        Statement(UPSERT_QUEUE, [*map(rows.queue_row, changes.queues.values())]),
        Statement(UPSERT_PAUSE, [rows.pause_row(p) for p in changes.pauses.values() if p]),
        Statement(DELETE_PAUSE, [(scope.value,) for scope, p in changes.pauses.items() if not p]),
        Statement(UPSERT_CORDON, [rows.cordon_row(c) for c in changes.cordons.values() if c]),
        Statement(DELETE_CORDON, [(name,) for name, c in changes.cordons.items() if not c]),
        Statement(
            UPSERT_EXPECTATION,
            [rows.expectation_row(e, offset_us) for e in changes.expectations.values() if e],
        ),
        Statement(DELETE_EXPECTATION, [(i,) for i, e in changes.expectations.items() if e is None]),
        *(Statement(*each) for each in bulk_steps.encode(changes)),
        *_encode_evidence(changes),
        Statement(
            INSERT_DECISION, [*map(rows.decision_row, decisions)], shapes=(INSERT_DECISIONS,)
        ),
        Statement(TRIM_DECISION, trimmed(decisions), shapes=(TRIM_DECISIONS,)),
        Statement(MARK_DECIDED, _marks(changes, decisions)),
        Statement(UPSERT_IDEMPOTENCY_RECORD, changes.idempotency_records),
        Statement(INSERT_LOG_ENTRY, changes.log),
    ]
    return [statement for statement in statements if statement.rows]


def _marks(changes: Changes, decisions: Sequence[DecisionRecord]) -> list[tuple[int]]:
    """Return after which instant all new ids must be: after decisions, and after deleted ids."""
    kept_by_id = (changes.expectations, changes.bulk_operations)
    deleted = [ident for each in kept_by_id for ident, record in each.items() if record is None]
    deleted += changes.schedules_deleted
    marks = [decision.decided_at for decision in decisions]
    marks += [newest_at(ident) + 1 for ident in deleted]
    return [(max(marks),)] if marks else []


def _encode_evidence(changes: Changes) -> list[Statement]:
    jobs = changes.jobs
    attempts = [each for each in changes.attempts if not _is_unkept(jobs.get(each.job_id))]
    outputs = [each for each in changes.outputs if not _is_unkept(jobs.get(each.job_id))]
    jobs_with_attempt = dict.fromkeys(attempt.job_id for attempt in attempts)
    # The output of a first attempt is always within the limit.
    jobs_with_output = dict.fromkeys(output.job_id for output in outputs if output.attempt > 1)
    return [
        Statement(
            INSERT_ATTEMPT, [rows.attempt_row(a, has_job=a.job_id in jobs) for a in attempts]
        ),
        Statement(TRIM_ATTEMPTS, [{"id": each} for each in jobs_with_attempt]),
        Statement(INSERT_OUTPUT, [rows.output_row(o, has_job=o.job_id in jobs) for o in outputs]),
        Statement(TRIM_OUTPUTS, [{"id": each} for each in jobs_with_output]),
    ]


def _is_unkept(job: Job | None) -> bool:
    return job is not None and job.kept_until == NOT_KEPT


def _encode_jobs(jobs: Mapping[int, Job], offset_us: int) -> Commit:  # noqa: C901  # hot: no call per job
    known: list[Row] = []
    new: list[Row] = []
    payloads: list[tuple[int, bytes]] = []
    tags: list[tuple[str, int]] = []
    is_bufferable, has_keys = True, False
    options, text, requirements = PLAIN, None, ""  # most jobs of a batch share their options
    for job in jobs.values():
        if job.due_at > limits.INSTANT_MAX or not _RANK_MIN < job.rank < _RANK_MAX:
            is_bufferable = False  # SQLite checks it, and may refuse it
        if job.unique_key is not None:
            has_keys = True
        if not job.is_new:
            known.append(rows.known_job_row(job, offset_us))
            continue
        payload = job.payload
        assert payload is not None, "a new job has its payload"
        if job.options is not options:
            options = job.options
            text, requirements = (
                rows.options_text(options),
                rows.requirements_text(options.requirements),
            )
        if len(payload) > limits.PAYLOAD_INLINE_BYTES_MAX:
            payloads.append((job.id, payload))
            payload = None
        if options.tags:
            tags.extend((tag, job.id) for tag in options.tags)
        if job.schedule_id is not None:
            is_bufferable = False
        new.append(rows.new_job_row(job, payload, text, requirements, offset_us))
    others = (
        Statement(INSERT_PAYLOAD, [row for row in payloads if not _is_unkept(jobs[row[0]])]),
        Statement(
            INSERT_TAG,
            [row for row in tags if not _is_unkept(jobs[row[1]])],
            shapes=(INSERT_TAGS,),
        ),
    )
    return Commit(
        BufferableJobs(new, known),
        [statement for statement in others if statement.rows],
        is_bufferable and bool(new or known),
        has_keys,
    )


def job_of(sql: str, row: Any) -> int | None:
    """Return the job id in a row of the statement, or None."""
    position = _JOB_ID_POSITIONS.get(sql)
    found = None if position is None else row[position]
    return found if isinstance(found, int) else None


def keep_jobs(
    new: Sequence[Row], known: Sequence[Row]
) -> tuple[BufferableJobs, Sequence[Statement]]:
    """Return the jobs that are kept, and the statements that drop the others."""
    kept, unkept = unkept_jobs.split(new, known)
    return kept, [Statement(*each) for each in unkept_jobs.drop(unkept)] if unkept else ()


def insert_jobs(new: Sequence[Row]) -> Statement:
    """Return the statement that writes new jobs."""
    return Statement(INSERT_JOB, new, shapes=INSERT_JOBS)


def update_jobs(known: Sequence[Row]) -> Statement:
    """Return the statement that writes known jobs, none of which takes a unique key."""
    return Statement(UPDATE_JOB, known, must_match=True, shapes=UPDATE_JOBS)


def run(connection: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    """Run the statements inside a transaction."""
    for sql, values, must_match, shapes in statements:
        changed, single = bulk.write(connection, shapes, values)
        if single:
            changed += connection.executemany(sql, single).rowcount
        if must_match and changed != len(values):
            # Memory has a job that is not in the store, so its other records are unreliable too.
            missing = len(values) - max(changed, 0)
            raise StoreRefused(f"{missing} of {len(values)} updated jobs are not in the store")


def raise_epoch(connection: sqlite3.Connection) -> None:
    """Raise the epoch, so that new leases differ from all earlier ones; needs a transaction."""
    connection.execute(RAISE_EPOCH)


def save_clock(connection: sqlite3.Connection, mark: ClockMark) -> None:
    """Write the state of the clock; needs a transaction."""
    values = [(f"clock_{name}", value) for name, value in mark._asdict().items()]
    connection.executemany(SAVE_CLOCK, values)


def save_minute(connection: sqlite3.Connection, at: int, figures: str, keep_us: int) -> None:
    """Write the figures of a minute, and delete old ones; needs a transaction."""
    connection.execute(SAVE_MINUTE, (at, figures))
    connection.execute(DELETE_MINUTES, (at - keep_us,))
