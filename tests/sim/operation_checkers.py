"""The invariants of operations on many jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from schedo.core.bulk import BulkOperation, BulkState
from schedo.core.model import Job
from schedo.core.states import TIMED
from tests.sim.history import History
from tests.sim.trace import Stored

Findings = Iterator[str]


def operations_come_to_an_end(history: History) -> Findings:
    """After the last fault, every operation ends."""
    for number, versions in history.operations.items():
        if versions[-1][1].is_active:
            yield f"operation {number} is still {versions[-1][1].state}"


def operations_change_as_many_jobs_as_they_count(history: History) -> Findings:
    """Each job that a step counts as done is changed in the commit of the step, and is older.

    To cancel a job that has been requested to stop already changes nothing.
    """
    for number, versions in history.operations.items():
        for (_, before), (position, after) in pairwise(versions):
            stored = history.trace[position]
            assert isinstance(stored, Stored)
            touched = {*stored.changes.jobs, *stored.changes.jobs_deleted}
            older = sum(1 for ident in touched if ident < number)
            if after.done - before.done > older:
                older += _count_stopping(history, number, position)
            if after.done - before.done > older:
                yield f"operation {number} counts {after.done - before.done} jobs, not {older}"
            if after.before > before.before or after.matched < before.matched:
                yield f"operation {number} goes back at {position}"


def _count_stopping(history: History, number: int, position: int) -> int:
    count = 0
    for ident, rows in history.rows.items():
        latest = next((job for at, job in reversed(rows) if at < position), None)
        if ident < number and latest is not None and latest.cancel_requested_at is not None:
            count += not latest.is_final
    return count


def operations_miss_no_job(history: History) -> Findings:
    """A job that matches when an operation begins, and does not change until its end, is done."""
    for number, versions in history.operations.items():
        began, ended = versions[0][0], versions[-1][0]
        if versions[-1][1].state is not BulkState.DONE:
            continue
        for ident, rows in history.rows.items():
            at_begin = next((job for at, job in reversed(rows) if at <= began), None)
            if at_begin is None or ident in history.gone:
                continue
            is_untouched = not any(began < at <= ended for at, _ in rows)
            # The store queues jobs that are overdue by itself, which is no event.
            is_due = at_begin.state in TIMED and at_begin.due_at <= history.high_water[ended]
            if is_untouched and not is_due and _must_change(versions[0][1], at_begin):
                yield f"operation {number} has missed job {ident}, which is {at_begin.state}"


def _must_change(operation: BulkOperation, job: Job) -> bool:
    is_stopping = operation.action == "cancel" and job.cancel_requested_at is not None
    return job.id < operation.id and operation.which.matches(job) and not is_stopping


Checker = Callable[[History], Findings]
CHECKERS: tuple[Checker, ...] = (
    operations_come_to_an_end,
    operations_change_as_many_jobs_as_they_count,
    operations_miss_no_job,
)
