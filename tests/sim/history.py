"""Views of a trace: calls and their replies, the versions of each row, the leases of workers."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from schedo.core.bulk import BulkAction, BulkOperation
from schedo.core.job_filter import JobFilter
from schedo.core.keep import NOT_KEPT
from schedo.core.model import Job, JobSpec, LeaseKey, Schedule
from schedo.core.states import State
from tests.sim.trace import (
    Answered,
    Attached,
    Called,
    Calmed,
    Detached,
    Died,
    Doubted,
    Ended,
    Event,
    Kept,
    Marked,
    Opened,
    Pruned,
    Reported,
    Revoked,
    Started,
    Stepped,
    Stored,
    Trace,
)


class Submitted(NamedTuple):
    """One spec of a submit and its result: new, conflict, refused or unknown."""

    spec: JobSpec
    called: Called
    answered: Answered | None
    result: str
    job: Job | None


class History:
    """Views of one trace; positions are indexes into it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def of(self, kind: type[Any]) -> Iterator[tuple[int, Any]]:
        """Yield the positions and events of one class."""
        for position, event in enumerate(self.trace):
            if type(event) is kind:
                yield position, event

    @cached_property
    def calls(self) -> dict[int, tuple[int, Called]]:
        return {event.call: (position, event) for position, event in self.of(Called)}

    @cached_property
    def answers(self) -> dict[int, tuple[int, Answered]]:
        return {event.call: (position, event) for position, event in self.of(Answered)}

    def calls_of(self, *names: str) -> Iterator[tuple[int, Called, int | None, Answered | None]]:
        """Yield the calls of these names with their replies, and the positions of both."""
        for number, (position, called) in self.calls.items():
            if called.name in names:
                answered = self.answers.get(number)
                yield position, called, *(answered or (None, None))

    @cached_property
    def submitted(self) -> list[Submitted]:
        found = []
        for _, called, _, answered in self.calls_of("submit"):
            for number, spec in enumerate(called.subject):
                result, what = _submit_result(answered, number)
                job = what if result in ("new", "conflict") else None
                found.append(Submitted(spec, called, answered, result, job))
        return found

    @cached_property
    def rows(self) -> dict[int, list[tuple[int, Job]]]:
        """Return the durable versions of each job, with the position of their commits."""
        rows: dict[int, list[tuple[int, Job]]] = defaultdict(list)
        for position, event in self.of(Stored):
            for job in event.changes.jobs.values():
                rows[job.id].append((position, job))
        return rows

    @cached_property
    def schedule_rows(self) -> dict[int, list[tuple[int, Schedule]]]:
        """Return the durable versions of each schedule, with the position of their commits."""
        rows: dict[int, list[tuple[int, Schedule]]] = defaultdict(list)
        for position, event in self.of(Stored):
            for schedule in event.changes.schedules.values():
                rows[schedule.id].append((position, schedule))
        return rows

    @cached_property
    def gone(self) -> set[int]:
        """Return the jobs that were pruned, dropped at their end, or deleted by a request."""
        pruned = {ident for _, event in self.of(Pruned) for ident in event.jobs}
        dropped = {
            ident
            for ident, rows in self.rows.items()
            if any(job.kept_until == NOT_KEPT for _, job in rows)
        }
        deleted = (event.changes.jobs_deleted for _, event in self.of(Stored))
        return pruned.union(dropped, *deleted)

    @cached_property
    def operations(self) -> dict[int, list[tuple[int, BulkOperation]]]:
        """Return the durable versions of each operation, with the position of their commits."""
        versions: dict[int, list[tuple[int, BulkOperation]]] = defaultdict(list)
        for position, event in self.of(Stored):
            for number, operation in event.changes.bulk_operations.items():
                if operation is not None:
                    versions[number].append((position, operation))
        return versions

    @cached_property
    def retried(self) -> dict[int, list[int]]:
        """Return the positions at which a client requested a retry, successful or not."""
        return self._asked("retry")

    @cached_property
    def moved(self) -> dict[int, list[int]]:
        """Return the positions at which a client requested another time of a job."""
        return self._asked("retry", "run_now", "reschedule")

    def _asked(self, *names: str) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for position, called, _, _ in self.calls_of(*names):
            found[called.subject[0]].append(position)
        return found

    @cached_property
    def retried_in_bulk(self) -> set[int]:
        """Return the jobs that an operation may have retried at any time since it began."""
        return self._changed_in_bulk(BulkAction.RETRY)

    @cached_property
    def moved_in_bulk(self) -> set[int]:
        """Return the jobs that an operation may have queued at any time since it began."""
        return self._changed_in_bulk(BulkAction.RETRY, BulkAction.RUN)

    def _changed_in_bulk(self, *actions: BulkAction) -> set[int]:
        begun = [versions[0][1] for versions in self.operations.values()]
        return {
            ident
            for operation in begun
            if operation.action in actions
            for ident, rows in self.rows.items()
            if ident < operation.id and _may_match(operation.which, rows[0][1])
        }

    @cached_property
    def starts(self) -> dict[int, list[tuple[int, Started]]]:
        starts: dict[int, list[tuple[int, Started]]] = defaultdict(list)
        for position, event in self.of(Started):
            starts[event.lease.key.job_id].append((position, event))
        return starts

    @property
    def end(self) -> Ended | None:
        last = self.trace[-1] if self.trace else None
        return last if isinstance(last, Ended) else None

    def is_calm_at(self, position: int) -> bool:
        """Return whether the position is after the last fault."""
        return self._calmed < position

    @cached_property
    def _calmed(self) -> int:
        return next((position for position, _ in self.of(Calmed)), len(self.trace))

    def is_running(self, key: LeaseKey, position: int) -> bool:
        """Return whether the attempt runs according to the disk at the position."""
        before = [job for at, job in self.rows.get(key.job_id, ()) if at < position]
        return bool(before) and before[-1].state is State.RUNNING and before[-1].key == key

    def was_deleted(self, schedule_id: int, position: int) -> bool:
        """Return whether a commit before the position has deleted the schedule."""
        return self._deleted.get(schedule_id, position) < position

    @cached_property
    def _deleted(self) -> dict[int, int]:
        return {
            schedule_id: position
            for position, event in self.of(Stored)
            for schedule_id in event.changes.schedules_deleted
        }

    @cached_property
    def high_water(self) -> list[int]:
        """Return the latest time that the wall clock had shown at each position.

        Until the disk has the new offset, a server goes on by the clock as it was before a step.
        """
        highest = 0
        marks = []
        for position, event in enumerate(self.trace):
            offset_us = self.offset_at(position - 1)  # for a mark, too: it ends the old offset
            highest = max(highest, self.elapsed(event) + offset_us)
            was = event.wall - event.delta_us if isinstance(event, Stepped) else event.wall
            highest = max(highest, was, event.wall)
            marks.append(highest)
        return marks

    def elapsed(self, event: Event) -> int:
        """Return the instant of an event on the elapsed timeline."""
        return event.at + self.began_at

    @property
    def began_at(self) -> int:
        """The instant of the elapsed timeline at which the world began."""
        return next((mark.base_us - mark.offset_us for _, mark in self.of(Marked)), 0)

    def offset_at(self, position: int) -> int:
        """Return the clock's offset for the instants on disk at the position."""
        return self._offsets[bisect_right(self._marked, position)]

    def was_set_between(self, first: int, last: int) -> bool:
        """Return whether the clock was set between two positions of the trace.

        If it was set twice, the offset may be the same at both positions.
        """
        since, until = (bisect_right(self._marked, position) for position in (first, last))
        return len({*self._offsets[since : until + 1]}) > 1

    @cached_property
    def _marked(self) -> list[int]:
        return [position for position, _ in self.of(Marked)]

    @cached_property
    def _offsets(self) -> list[int]:
        return [0, *(event.offset_us for _, event in self.of(Marked))]

    def is_pending(self, names: tuple[str, ...], subject: object, position: int) -> bool:
        """Return whether a call about the subject was in progress at the position."""
        return any(
            asked < position and (answered is None or answered > position)
            for asked, answered in self._spans.get(subject, {}).get(names, ())
        )

    def acts_until(self, answered: int | None, answer: Answered | None) -> int | None:
        """Return the position up to which a call may take effect: its reply, or None for the end.

        What has failed may be brought back by a broken disk when the next server opens it.
        """
        if answered is None or answer is None or answer.status < 500:
            return answered
        return next((at for at, _ in self.of(Opened) if at > answered), None)

    @cached_property
    def _spans(self) -> dict[object, dict[tuple[str, ...], list[tuple[int, int | None]]]]:
        spans: dict[object, dict[tuple[str, ...], list[tuple[int, int | None]]]] = {}
        for names in (EDITS, TRIGGERS):
            for position, called, answered, answer in self.calls_of(*names):
                span = (position, self.acts_until(answered, answer))
                subject = called.subject if isinstance(called.subject, tuple) else (called.subject,)
                name = getattr(subject[0], "name", subject[0])
                spans.setdefault(name, {}).setdefault(names, []).append(span)
        return spans


class Live:
    """The leases that workers hold: dispatched, not reported, with worker and server alive.

    Those of a remote worker outlive the server, unless their start was not on disk.
    """

    def __init__(self) -> None:
        self.leases: dict[LeaseKey, Started | Kept] = {}
        self._servers: dict[int, int] = {}  # of the connections

    def record(self, event: Event) -> None:
        if isinstance(event, Started | Kept):
            self.leases[event.lease.key] = event
        elif isinstance(event, Doubted | Revoked) or (
            isinstance(event, Reported) and event.is_live
        ):
            self.leases.pop(event.key, None)
        elif isinstance(event, Attached):
            self._servers[event.connection] = event.server
        elif isinstance(event, Detached):
            self.leases = {
                k: held for k, held in self.leases.items() if held.connection != event.connection
            }
        elif isinstance(event, Died):
            self.leases = {
                key: held
                for key, held in self.leases.items()
                if self._servers.get(held.connection, event.server) != event.server
            }


EDITS = ("put_schedule", "pause_schedule", "resume_schedule", "delete_schedule")
TRIGGERS = ("trigger_schedule",)


def _may_match(which: JobFilter, job: Job) -> bool:
    """Return whether the job may match at some time: its queue and its task never change."""
    return which.queue in (None, job.queue) and which.task in (None, job.task)


def _submit_result(answered: Answered | None, number: int) -> tuple[str, Any]:
    if answered is None:
        return ("unknown", None)
    if answered.code is None:
        result, what = answered.value[number]
        return (result, what)
    return ("refused" if answered.status < 500 else "unknown", None)
