"""What the event loop notes of a commit, until the telemetry's thread makes spans of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from schedo.core.changes import AttemptRecord, Changes
from schedo.core.model import DecisionRecord, Job, LeaseKey
from schedo.core.states import State

_COMPLETED = State.COMPLETED
_STALE = "stale"  # the outcome of a result that came too late: the attempt has ended before
_DONE = "completed"


class JobNote(NamedTuple):
    """The job that a span belongs to."""

    id: int
    task: str
    queue: str
    trigger: str
    traceparent: str | None
    tracestate: str | None


class SubmitNote(NamedTuple):
    """A new job; decision: of the schedule that has made it."""

    job: JobNote
    created_at: int
    decision: DecisionRecord | None


class AttemptNote(NamedTuple):
    """An attempt that has ended."""

    job: JobNote
    record: AttemptRecord


class DecisionNote(NamedTuple):
    """What was decided about an instant of a schedule; name: None if the schedule is gone."""

    name: str | None
    record: DecisionRecord


Note = SubmitNote | AttemptNote | DecisionNote


def take_notes(changes: Changes, ended: Iterable[LeaseKey]) -> list[Note]:
    """Return the notes of a commit before it is written: later turns change its records.

    ended: the attempts whose results are in it.
    """
    notes: list[Note] = []
    made_by: dict[int, DecisionRecord] = {}
    for decision in changes.decisions:
        if decision.job_id is not None:
            made_by.setdefault(decision.job_id, decision)
        notes.append(DecisionNote(_find_name(changes, decision.schedule_id), decision))
    for job in changes.jobs.values():
        if job.is_new:
            notes.append(SubmitNote(_note_job(job), job.created_at, made_by.get(job.id)))
    notes += _note_attempts(changes, ended)
    return notes


def _note_attempts(changes: Changes, ended: Iterable[LeaseKey]) -> Iterator[AttemptNote]:
    jobs = changes.jobs
    for key in dict.fromkeys(ended):  # a result may come twice
        done = jobs.get(key.job_id)
        if done is not None and done.state is _COMPLETED and done.key == key:
            yield AttemptNote(_note_job(done), _record_of(done))
    for record in changes.attempts:
        owner = jobs.get(record.job_id)  # None: it was deleted in the same commit
        if owner is not None and record.outcome != _STALE:
            yield AttemptNote(_note_job(owner), record)


def _find_name(changes: Changes, schedule_id: int) -> str | None:
    """Return the name of the schedule or of the named expectation, both of which have changed."""
    found = changes.schedules.get(schedule_id) or changes.expectations.get(schedule_id)
    return None if found is None else found.name


def _note_job(job: Job) -> JobNote:
    options = job.options
    return JobNote(
        job.id, job.task, job.queue, job.trigger, options.traceparent, options.tracestate
    )


def _record_of(job: Job) -> AttemptRecord:
    """Return the record of the attempt that has completed the job."""
    return AttemptRecord(
        *job.key, job.worker, job.started_at, job.ended_at or 0, _DONE, None, job.due_at
    )
