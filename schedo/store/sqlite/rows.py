"""The rows of jobs, schedules and their dependent records.

`*_row` returns the values to bind, `*_from_row` returns the record. A job's columns have the order
of the Job's fields, so that a row becomes a Job without lookups by name. Enums are bound as plain
text, because sqlite3 looks for a slow adapter for every subclass of str.

Instants that count elapsed time are stored on the elapsed timeline, so that no row is rewritten
when the clock is set. The store has one offset: it is subtracted on a write and added on a read.
Everywhere else an instant is one of the wall clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from sys import intern
from typing import Any

import msgspec

from schedo.core.changes import AttemptRecord, IdempotencyRecord, Output
from schedo.core.model import (
    PLAIN,
    Decision,
    DecisionRecord,
    Failure,
    Job,
    Options,
    Queue,
    ReadyKey,
    Schedule,
    ScheduleSpec,
    Trigger,
)
from schedo.core.requirements import Requirements
from schedo.core.states import State

Row = tuple[Any, ...]

JOB_COLUMNS = (
    *("id", "task", "queue", "payload", "priority", "options", "state", "created_at", "due_at"),
    *("rank", "picked_at", "started_at", "ended_at", "attempt", "failures", "losses", "epoch"),
    "worker",
    *("schedule_id", "scheduled_for", "trigger", "missed_count", "unique_key", "expires_at"),
    *("cancel_requested_at", "result", "failure", "due_elapsed", "expires_elapsed", "offset_us"),
)
# The requirements are in the options too: the column `route` is for the index of ready keys.
JOB_INSERTED_COLUMNS = (*JOB_COLUMNS, "route")
# The columns that can change. The payload and the options never change.
JOB_MUTABLE_COLUMNS = (
    *("priority", "state", "due_at", "rank", "picked_at", "started_at", "ended_at", "attempt"),
    *("failures", "losses", "epoch", "worker", "missed_count", "unique_key", "expires_at"),
    *("cancel_requested_at", "result", "failure", "due_elapsed", "expires_elapsed"),
)
SCHEDULE_COLUMNS = (
    *("id", "name", "spec", "created_at", "updated_at", "evaluated_through", "next_fire_at"),
    *("paused", "note", "fired", "missed", "overlap_skipped", "buffered", "last_fired_at"),
    *("last_job_id", "phase_us", "elapsed"),
)

_STATE_TEXT: dict[str, str] = {state: str(state.value) for state in State}
_TRIGGER_TEXT: dict[str, str] = {trigger: str(trigger.value) for trigger in Trigger}
_DECISION_TEXT: dict[str, str] = {kind: str(kind.value) for kind in Decision}
_STATES = {str(state.value): state for state in State}
_TRIGGERS = {str(trigger.value): trigger for trigger in Trigger}

_encode = msgspec.json.Encoder().encode
_decode_options = msgspec.json.Decoder(Options).decode
_decode_requirements = msgspec.json.Decoder(Requirements).decode
_decode_failure = msgspec.json.Decoder(Failure).decode
_decode_spec = msgspec.json.Decoder(ScheduleSpec).decode


def new_job_row(
    job: Job, payload: bytes | None, options: str | None, requirements: str, offset_us: int
) -> Row:
    """Return the values of JOB_INSERTED_COLUMNS."""
    return (
        job.id,
        job.task,
        job.queue,
        payload,
        job.priority,
        options,
        _STATE_TEXT[job.state],
        job.created_at,
        job.due_at - offset_us if job.due_elapsed else job.due_at,
        job.rank,
        job.picked_at,
        job.started_at,
        job.ended_at,
        job.attempt,
        job.failures,
        job.losses,
        job.epoch,
        job.worker,
        job.schedule_id,
        job.scheduled_for,
        _TRIGGER_TEXT[job.trigger],
        job.missed_count,
        job.unique_key,
        _stored_expiry(job, offset_us) if job.expires_elapsed else job.expires_at,
        job.cancel_requested_at,
        job.result,
        None if job.failure is None else _encode(job.failure).decode(),
        1 if job.due_elapsed else 0,  # sqlite3 looks for an adapter for a bool, too
        1 if job.expires_elapsed else 0,
        job.offset_us,
        requirements,
    )


def known_job_row(job: Job, offset_us: int) -> Row:
    """Return the values of JOB_MUTABLE_COLUMNS and the id."""
    return (
        job.priority,
        _STATE_TEXT[job.state],
        job.due_at - offset_us if job.due_elapsed else job.due_at,
        job.rank,
        job.picked_at,
        job.started_at,
        job.ended_at,
        job.attempt,
        job.failures,
        job.losses,
        job.epoch,
        job.worker,
        job.missed_count,
        job.unique_key,
        _stored_expiry(job, offset_us) if job.expires_elapsed else job.expires_at,
        job.cancel_requested_at,
        job.result,
        None if job.failure is None else _encode(job.failure).decode(),
        1 if job.due_elapsed else 0,
        1 if job.expires_elapsed else 0,
        job.id,
    )


def _stored_expiry(job: Job, offset_us: int) -> int | None:
    return None if job.expires_at is None else job.expires_at - offset_us


def job_from_row(row: Row, offset_us: int) -> Job:
    """Return the job whose columns are JOB_COLUMNS."""
    job = Job(*row)
    # Thousands of waiting jobs share a few names.
    job.task = intern(row[1])
    job.queue = intern(row[2])
    job.options = PLAIN if row[5] is None else _options_from_text(row[5])
    job.state = _STATES[row[6]]
    job.trigger = _TRIGGERS[row[20]]
    if row[26] is not None:
        job.failure = _decode_failure(row[26])
    job.due_elapsed, job.expires_elapsed = bool(row[27]), bool(row[28])
    if offset_us:
        job.shift(offset_us)
    return job


def jobs_from_rows(rows: Iterable[Row], offset_us: int) -> list[Job]:
    """Return the jobs in the order of their rows."""
    return [job_from_row(row, offset_us) for row in rows]


def options_text(options: Options) -> str | None:
    """Return the options as JSON, or None if they are the defaults."""
    return None if options is PLAIN or options == PLAIN else _encode(options).decode()


def requirements_text(requirements: Requirements | None) -> str:
    """Return the requirements as the index of ready keys has them."""
    return "" if requirements is None else _encode(requirements).decode()


def ready_key_from_row(row: Row) -> ReadyKey:
    """Return the ready key of (queue, task, route)."""
    return ReadyKey(row[0], row[1], requirements=_decode_requirements(row[2]) if row[2] else None)


@lru_cache(maxsize=256)
def _options_from_text(text: str) -> Options:
    return _decode_options(text)  # waiting jobs with the same options share one object


def schedule_row(schedule: Schedule, offset_us: int) -> Row:
    """Return the values of SCHEDULE_COLUMNS."""
    elapsed = schedule.counts_elapsed
    if elapsed and offset_us:
        schedule = schedule.copy()
        schedule.shift(-offset_us)
    return (
        schedule.id,
        schedule.spec.name,
        _encode(schedule.spec).decode(),
        schedule.created_at,
        schedule.updated_at,
        schedule.evaluated_through,
        schedule.next_fire_at,
        schedule.paused,
        schedule.note,
        schedule.fired,
        schedule.missed,
        schedule.overlap_skipped,
        schedule.buffered,
        schedule.last_fired_at,
        schedule.last_job_id,
        schedule.phase_us,
        int(elapsed),
    )


def schedule_from_row(row: Row, offset_us: int) -> Schedule:
    """Return the schedule of SCHEDULE_COLUMNS, without its active jobs."""
    schedule = Schedule(row[0], *row[2:-1])
    schedule.spec = _decode_spec(row[2])
    schedule.paused = bool(row[7])
    schedule.shift(offset_us)
    return schedule


def attempt_row(attempt: AttemptRecord) -> dict[str, Any]:
    """Return the named values of an attempt."""
    failure = None if attempt.failure is None else _encode(attempt.failure).decode()
    return {**attempt._asdict(), "failure": failure}


def attempt_from_row(row: Row) -> AttemptRecord:
    """Return the attempt whose columns are the AttemptRecord's fields."""
    attempt = AttemptRecord(*row)
    return attempt if row[7] is None else attempt._replace(failure=_decode_failure(row[7]))


def output_row(output: Output) -> dict[str, Any]:
    """Return the named values of an output."""
    capture = output.capture
    return {
        "job_id": output.job_id,
        "attempt": output.attempt,
        "stream": capture.stream,
        "head": capture.head,
        "tail": capture.tail,
        "total_bytes": capture.total_bytes,
    }


def decision_row(decision: DecisionRecord) -> Row:
    """Return the values of the DecisionRecord's fields."""
    return (
        decision.schedule_id,
        decision.scheduled_for,
        decision.decided_at,
        _DECISION_TEXT[decision.decision],
        decision.job_id,
        decision.count,
    )


def decision_from_row(row: Row) -> DecisionRecord:
    """Return the decision whose columns are the DecisionRecord's fields."""
    return DecisionRecord(row[0], row[1], row[2], Decision(row[3]), row[4], row[5])


def queue_row(queue: Queue) -> Row:
    """Return the values of the Queue's fields."""
    return (queue.name, queue.concurrency, queue.paused, queue.weight, queue.priority_step_us)


def queue_from_row(row: Row) -> Queue:
    """Return the queue whose columns are the Queue's fields."""
    return Queue(row[0], row[1], bool(row[2]), row[3], row[4])


def idempotency_record_from_row(row: Row) -> IdempotencyRecord:
    """Return the record whose columns are the IdempotencyRecord's fields."""
    return IdempotencyRecord(*row)
