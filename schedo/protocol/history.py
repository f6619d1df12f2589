"""The history of a job: what happened to it and when, derived from what is kept anyway.

That is its record, its attempts, the log of changes by hand, and what operations on many jobs
remember for their undo. Nothing is stored for it: a job that completes at once has only its own
record. So an instant that a later change overwrites is missing, such as the due instant before a
change by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple, Self

from msgspec import UNSET, Struct, UnsetType

from schedo.core.changes import AttemptRecord
from schedo.core.ids import render_id
from schedo.core.model import Job
from schedo.core.states import State
from schedo.protocol.fields import DurationText, Id, Instant, or_unset
from schedo.protocol.jobs import FailureResponse
from schedo.protocol.times import render_duration, render_instant

ENTRIES_MAX = 200
What = Literal[
    "created",
    "durable",
    "due",
    "picked",
    "started",
    "ended",
    "changed",
    "cancel_requested",
    "finished",
]


class Change(NamedTuple):
    """A change by hand: of the job, or of the schedule that made it, or by an operation.

    action: the name of the API operation. via: None if an operation on many jobs made the change.
    """

    at: int
    action: str
    by: str
    via: str | None = None
    operation: int | None = None


class HistoryEntry(Struct, forbid_unknown_fields=True):
    """One thing that happened to a job, or is due to happen.

    ran: how long the worker ran the attempt, by its own measure. A change by hand has its `action`,
    the name of an operation of this document, `by` whom and `via` what (page, cli, api); or the
    `operation` on many jobs that made it.
    """

    at: Instant
    what: What
    attempt: int | UnsetType = UNSET
    worker: str | UnsetType = UNSET
    outcome: str | UnsetType = UNSET
    error: FailureResponse | UnsetType = UNSET
    ran: DurationText | UnsetType = UNSET
    action: str | UnsetType = UNSET
    by: str | UnsetType = UNSET
    via: str | UnsetType = UNSET
    operation: Id | UnsetType = UNSET

    @classmethod
    def of_change(cls, change: Change) -> Self:
        number = change.operation
        return cls(
            render_instant(change.at),
            "changed",
            action=change.action,
            by=change.by,
            via=or_unset(change.via),
            operation=UNSET if number is None else render_id(number),
        )


class HistoryResponse(Struct, forbid_unknown_fields=True):
    """The life of a job, oldest first: the newest 200 entries, and always its creation.

    `first_due_at` is when its first attempt was due; a retry moves `scheduled_at`.
    """

    id: Id
    state: State
    first_due_at: Instant
    items: list[HistoryEntry]
    truncated: bool
    durable_at: Instant | UnsetType = UNSET

    @classmethod
    def of(
        cls,
        job: Job,
        attempts: Sequence[AttemptRecord],
        durable_at: int | None,
        changes: Iterable[Change] = (),
    ) -> Self:
        """attempts: the stored ones, oldest first; durable_at: None if it is not known."""
        entries = [*_list_entries(job, attempts, durable_at)]
        entries += map(HistoryEntry.of_change, changes)
        first, *rest = sorted(entries, key=attrgetter("at"))
        dues = (each.due_at for each in attempts if each.due_at is not None)
        return cls(
            render_id(job.id),
            job.state,
            render_instant(next(dues, job.due_at)),
            [first, *rest[-(ENTRIES_MAX - 1) :]],
            len(rest) >= ENTRIES_MAX,
            UNSET if durable_at is None else render_instant(durable_at),
        )


def _list_entries(
    job: Job, attempts: Sequence[AttemptRecord], durable_at: int | None
) -> Iterator[HistoryEntry]:
    """Yield all entries, those of one instant in their order; all instants have the same length."""
    yield HistoryEntry(render_instant(job.created_at), "created")
    if durable_at is not None:
        yield HistoryEntry(render_instant(durable_at), "durable")
    for record in attempts:
        yield from _list_attempt(record)
    if job.attempt not in {each.attempt for each in attempts if each.outcome != "stale"}:
        yield from _list_latest(job)
    elif not job.is_final:
        yield _due(job.due_at, job.attempt + 1)
    if job.cancel_requested_at is not None:
        yield HistoryEntry(render_instant(job.cancel_requested_at), "cancel_requested")
    if job.ended_at is not None:
        yield HistoryEntry(render_instant(job.ended_at), "finished", outcome=job.state.value)


def _list_attempt(record: AttemptRecord) -> Iterator[HistoryEntry]:
    if record.due_at is not None:
        yield _due(record.due_at, record.attempt)
    if record.started_at is not None:
        yield from _start(record.picked_at, record.started_at, record.attempt, record.worker)
    yield HistoryEntry(
        render_instant(record.ended_at),
        "ended",
        record.attempt,
        or_unset(record.worker),
        record.outcome,
        UNSET if record.failure is None else FailureResponse.of(record.failure),
        _ran(record.picked_at, record.started_at, record.ended_at),
    )


def _list_latest(job: Job) -> Iterator[HistoryEntry]:
    """Yield the entries of the attempt that runs, has completed the job or is to come."""
    if job.ended_at is None or job.due_at <= job.ended_at:
        yield _due(job.due_at, max(job.attempt, 1))
    if not job.attempt or job.started_at is None:
        return
    yield from _start(job.picked_at, job.started_at, job.attempt, job.worker)
    if job.ended_at is not None:
        at, worker = render_instant(job.ended_at), or_unset(job.worker)
        ran = _ran(job.picked_at, job.started_at, job.ended_at)
        yield HistoryEntry(at, "ended", job.attempt, worker, job.state.value, ran=ran)


def _due(at: int, attempt: int) -> HistoryEntry:
    return HistoryEntry(render_instant(at), "due", attempt)


def _start(
    picked_at: int | None, started_at: int, attempt: int, worker: str | None
) -> Iterator[HistoryEntry]:
    if picked_at is not None and picked_at != started_at:
        yield HistoryEntry(render_instant(picked_at), "picked", attempt, or_unset(worker))
    yield HistoryEntry(render_instant(started_at), "started", attempt, or_unset(worker))


def _ran(picked_at: int | None, started_at: int | None, ended_at: int) -> str | UnsetType:
    """Return how long the worker ran it; unset unless the worker has said so."""
    if picked_at is None or started_at is None or picked_at == started_at:
        return UNSET
    return render_duration(ended_at - started_at)
