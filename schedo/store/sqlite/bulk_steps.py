"""The rows of operations on many jobs, and of the steps by which they can be undone."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from schedo.core.bulk import BulkOperation
from schedo.core.bulk_undo import BulkStep, JobBefore
from schedo.core.changes import Changes
from schedo.store import rows

_UPSERT = (
    "INSERT INTO {} (id, record) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record ="
    " excluded.record"
)
UPSERT_OPERATION = _UPSERT.format("bulk_operation")
UPSERT_UNDO = _UPSERT.format("bulk_undo")
INSERT_STEP = "INSERT INTO bulk_step (operation, number, jobs) VALUES (?, ?, ?)"
DELETE_STEP = "DELETE FROM bulk_step WHERE operation = ? AND number = ?"
_DELETES = (
    "DELETE FROM bulk_operation WHERE id = ?",
    "DELETE FROM bulk_undo WHERE id = ?",
    "DELETE FROM bulk_step WHERE operation = ?",
)
NEXT_STEP = """
SELECT operation, number, jobs FROM bulk_step WHERE operation = ? AND number < ?
ORDER BY number DESC LIMIT 1
"""

# A step has jobs with smaller ids than its number, and the next step goes on below them. So each
# operation has one step in which the job can be; the text is the begin of its record.
STEPS_OF_JOB = """
SELECT bulk_operation.record, step.jobs
FROM bulk_operation CROSS JOIN bulk_step AS step ON step.operation = bulk_operation.id
AND step.number = (
    SELECT min(number) FROM bulk_step WHERE operation = bulk_operation.id AND number > :job
)
WHERE bulk_operation.id > :job AND instr(step.jobs, :text) > 0"""

_encode = msgspec.json.Encoder().encode
_decode_jobs = msgspec.json.Decoder(tuple[JobBefore, ...]).decode


def encode(changes: Changes) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Return the statements, with their rows, that write operations and their steps."""
    put = [each for each in changes.bulk_operations.values() if each is not None]
    deleted = [(number,) for number, each in changes.bulk_operations.items() if each is None]
    steps = [(step.operation, step.number, _encode(step.jobs).decode()) for step in changes.steps]
    return [
        (UPSERT_OPERATION, [rows.bulk_operation_row(each) for each in put if not each.undoes]),
        (UPSERT_UNDO, [rows.bulk_operation_row(each) for each in put if each.undoes]),
        (INSERT_STEP, steps),
        (DELETE_STEP, changes.steps_deleted),
        *((sql, deleted) for sql in _DELETES),
    ]


def next_step(connection: sqlite3.Connection, operation: int, before: int) -> BulkStep | None:
    """Return the step of the operation with the largest number below `before`."""
    found = connection.execute(NEXT_STEP, (operation, before)).fetchone()
    return BulkStep(found[0], found[1], _decode_jobs(found[2])) if found is not None else None


def changes_of(connection: sqlite3.Connection, job_id: int) -> list[tuple[BulkOperation, int]]:
    """Return the operations that have changed the job, and when."""
    found = connection.execute(STEPS_OF_JOB, {"job": job_id, "text": f"[{job_id},"})
    return [
        (rows.decode_bulk_operation(record), each.changed_at)
        for record, jobs in found
        for each in _decode_jobs(jobs)
        if each.id == job_id
    ]
