"""The rows of jobs, schedules and their dependent records.

`*_row` returns the values to bind, `*_from_row` returns the record. A new field of a record needs a
migration that adds its column, and a codec here only if its type does not define its column.

Instants that count elapsed time are stored on the elapsed timeline, so that no row is rewritten
when the clock is set. The store has one offset: it is subtracted on a write and added on a read.
Everywhere else an instant is one of the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from sys import intern
from typing import Any

import msgspec

from schedo.core.bulk import BulkOperation
from schedo.core.changes import AttemptRecord, IdempotencyRecord, Output
from schedo.core.cordoned_worker import CordonedWorker
from schedo.core.expectations import Expectation
from schedo.core.model import (
    PLAIN,
    DecisionRecord,
    Job,
    Options,
    Pause,
    Queue,
    ReadyKey,
    Rule,
    Schedule,
)
from schedo.core.requirements import Requirements
from schedo.core.run_history import EndedRun, LastRun, RunHistory
from schedo.core.states import TIMED
from schedo.store.columns import Codec, Columns, Row

_encode = msgspec.json.Encoder().encode
decode_bulk_operation = msgspec.json.Decoder(BulkOperation).decode
_decode_rule = msgspec.json.Decoder(Rule).decode
_decode_requirements = msgspec.json.Decoder(Requirements).decode
# Waiting jobs with the same options share one object.
_decode_options = lru_cache(maxsize=256)(msgspec.json.Decoder(Options).decode)


JOB = Columns(
    Job,
    memory_only=("is_new", "location", "poison_suspect", "counted"),
    fixed=(
        *("id", "task", "queue", "payload", "options", "created_at", "schedule_id"),
        *("scheduled_for", "trigger", "offset_us"),
    ),
    # The requirements are in the options too: this column is for the index of ready keys.
    derived={"requirements": "requirements"},
    codecs={
        # Thousands of waiting jobs share a few names.
        "task": Codec("record.task", "intern({})"),
        "queue": Codec("record.queue", "intern({})"),
        "payload": Codec("payload and empty + payload"),  # None: it is large and in job_payload
        "result": Codec("record.result and empty + record.result"),
        "options": Codec("options", "PLAIN if {0} is None else decode_options({0})"),
        "due_at": Codec("record.due_at - offset_us if record.due_elapsed else record.due_at"),
        # That of a job which waits for an instant of the wall clock is as it was with the offset
        # when the job was created, and so for earlier versions as well.
        "rank": Codec(
            "record.rank + offset_us - record.offset_us if offset_us != record.offset_us"
            " and not record.due_elapsed and record.state in TIMED else record.rank",
            "{0} + record.offset_us if record.offset_us and not record.due_elapsed"
            " and record.state in TIMED else {0}",
        ),
        "expires_at": Codec(
            "record.expires_at - offset_us if record.expires_elapsed"
            " and record.expires_at is not None else record.expires_at"
        ),
    },
    scope={
        # To bind bytes, sqlite3 looks for an adapter; a bytearray takes a fourth of the time.
        "empty": bytearray(),
        **{"intern": intern, "PLAIN": PLAIN, "decode_options": _decode_options, "TIMED": TIMED},
    },
)
SCHEDULE = Columns(
    Schedule,
    memory_only=("active", "blocked"),
    fixed=("id",),
    derived={"name": "record.spec.name", "elapsed": "1 if record.counts_elapsed else 0"},
)
QUEUE = Columns(Queue, fixed=("name",))
PAUSE = Columns(Pause, fixed=("scope",))
CORDON = Columns(CordonedWorker, fixed=("name",))
EXPECTATION = Columns(
    Expectation,
    codecs={"early": Codec("encode(record.early).decode()", "decode_instants({})")},
    scope={"decode_instants": msgspec.json.Decoder(tuple[int, ...]).decode},
)
RUN_HISTORY = Columns(
    RunHistory,
    codecs={"last_runs": Codec("", "decode_runs({})")},
    scope={"decode_runs": msgspec.json.Decoder(tuple[LastRun, ...]).decode},
)
ATTEMPT = Columns(AttemptRecord)
DECISION = Columns(DecisionRecord)
IDEMPOTENCY_RECORD = Columns(IdempotencyRecord)

# These values are arguments: jobs of one commit may share them, or they depend on the size.
# Jobs are read as JSON where many are read at once; it has these columns as texts.
JOB_TEXTS = ("payload", "result")
new_job_row = JOB.compile_row(JOB.inserted, "payload", "options", "requirements", "offset_us")
known_job_row = JOB.compile_row((*JOB.mutable, "id"), "offset_us")
_job_from_row: Callable[[Row], Job] = JOB.compile_record()
_job_from_json_row: Callable[[Row], Job] = JOB.compile_record(texts=JOB_TEXTS)
_decode_rows = msgspec.json.Decoder(list[tuple[Any, ...]]).decode
_schedule_row = SCHEDULE.compile_row(SCHEDULE.inserted)
_schedule_from_row: Callable[[Row], Schedule] = SCHEDULE.compile_record()
queue_row = QUEUE.compile_row(QUEUE.names)
queue_from_row: Callable[[Row], Queue] = QUEUE.compile_record()
pause_row = PAUSE.compile_row(PAUSE.names)
pause_from_row: Callable[[Row], Pause] = PAUSE.compile_record()
cordon_row = CORDON.compile_row(CORDON.names)
cordon_from_row: Callable[[Row], CordonedWorker] = CORDON.compile_record()
_expectation_row = EXPECTATION.compile_row(EXPECTATION.names)
_expectation_from_row: Callable[[Row], Expectation] = EXPECTATION.compile_record()
decision_row = DECISION.compile_row(DECISION.names)
decision_from_row: Callable[[Row], DecisionRecord] = DECISION.compile_record()
history_from_row: Callable[[Row], RunHistory] = RUN_HISTORY.compile_record()
_attempt_row = ATTEMPT.compile_row(ATTEMPT.names)
attempt_from_row: Callable[[Row], AttemptRecord] = ATTEMPT.compile_record()


def bulk_operation_row(operation: BulkOperation) -> Row:
    """Return the values of an operation: its id, and the record as JSON."""
    return operation.id, _encode(operation).decode()


def job_from_row(row: Row, offset_us: int) -> Job:
    """Return the job of the values of JOB.names."""
    job = _job_from_row(row)
    if offset_us:
        job.shift(offset_us)
    return job


def jobs_from_rows(rows: Iterable[Row], offset_us: int) -> list[Job]:
    """Return the jobs in the order of their rows."""
    return [job_from_row(row, offset_us) for row in rows]


def jobs_from_json(page: str, offset_us: int) -> list[Job]:
    """Return the jobs of an array of JSON arrays with the values of JOB.names, in its order."""
    jobs = [*map(_job_from_json_row, _decode_rows(page))]
    if offset_us:
        for job in jobs:
            job.shift(offset_us)
    return jobs


def job_from_new_row(row: Row, offset_us: int) -> Job:
    """Return the job of a row of new_job_row."""
    job = job_from_row(row[: len(JOB.names)], offset_us)
    job.payload, job.result = job.payload and bytes(job.payload), job.result and bytes(job.result)
    return job


def options_text(options: Options) -> str | None:
    """Return the options as JSON, or None if they are the defaults."""
    return None if options is PLAIN or options == PLAIN else _encode(options).decode()


def requirements_text(requirements: Requirements | None) -> str:
    """Return the requirements as the index of ready keys has them."""
    return "" if requirements is None else _encode(requirements).decode()


def ready_key_from_row(row: Row) -> ReadyKey:
    """Return the ready key of (queue, task, requirements)."""
    return ReadyKey(row[0], row[1], requirements=_decode_requirements(row[2]) if row[2] else None)


def schedule_row(schedule: Schedule, offset_us: int) -> Row:
    """Return the values of SCHEDULE.inserted."""
    if offset_us and schedule.counts_elapsed:
        schedule = schedule.copy()
        schedule.shift(-offset_us)
    return _schedule_row(schedule)


def rule_from(text: str, phase_us: int) -> Rule:
    """Return the rule in JSON of a schedule, with its phase in microseconds."""
    rule = _decode_rule(text)
    return msgspec.structs.replace(rule, phase_us=phase_us) if phase_us else rule


def schedule_from_row(row: Row, offset_us: int) -> Schedule:
    """Return the schedule of the values of SCHEDULE.names, without its active jobs."""
    schedule = _schedule_from_row(row)
    schedule.shift(offset_us)
    return schedule


def ended_run_row(run: EndedRun) -> Row:
    """Return the schedule, the state, the instant, the job, its failure, and the run as JSON."""
    last = LastRun(run.job_id, run.state, run.ended_at, run.duration_us, run.scheduled_for)
    failure = None if run.failure is None else _encode(run.failure).decode()
    return (
        *(run.schedule_id, run.state.value, run.ended_at, run.job_id, failure),
        _encode(last).decode(),
    )


def expectation_row(expectation: Expectation, offset_us: int) -> Row:
    """Return the values of EXPECTATION.names."""
    if offset_us:
        expectation = expectation.copy()
        expectation.shift(-offset_us)
    return _expectation_row(expectation)


def expectation_from_row(row: Row, offset_us: int) -> Expectation:
    """Return the expectation of the values of EXPECTATION.names."""
    expectation = _expectation_from_row(row)
    expectation.shift(offset_us)
    return expectation


def attempt_row(attempt: AttemptRecord, *, has_job: bool) -> dict[str, Any]:
    """Return the named values of an attempt; has_job: its commit writes the job too."""
    return dict(zip(ATTEMPT.names, _attempt_row(attempt), strict=True)) | {"has_job": has_job}


def output_row(output: Output, *, has_job: bool) -> dict[str, Any]:
    """Return the named values of an output; has_job: its commit writes the job too."""
    capture = output.capture
    return {
        "has_job": has_job,
        "job_id": output.job_id,
        "attempt": output.attempt,
        "stream": capture.stream,
        "head": capture.head,
        "tail": capture.tail,
        "total_bytes": capture.total_bytes,
    }
