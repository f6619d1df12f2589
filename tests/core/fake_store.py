"""A durable store in a dictionary.

It keeps copies, checks what the unique indexes of SQLite would check, and answers loads in the
documented orders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from schedo.core import loads
from schedo.core.bulk import BulkOperation
from schedo.core.changes import AttemptRecord, Output
from schedo.core.cordoned_worker import CordonedWorker
from schedo.core.expectations import Expectation
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX
from schedo.core.model import (
    DecisionRecord,
    Failure,
    Job,
    Location,
    Pause,
    PauseScope,
    Queue,
    ReadyKey,
    Schedule,
    Trigger,
)
from schedo.core.paged_index import Pair
from schedo.core.run_history import EndedRun
from schedo.core.states import FINAL, TIMED, WAITING, State

PROMOTED = 3  # jobs that are queued in bulk at a time
OOPS = Failure("exit-code", "it ended with 1", exit_code=1)


@dataclass
class Written:
    """A copy of the changes of one commit."""

    jobs: list[Job]
    schedules: list[Schedule]
    schedules_deleted: list[int]
    queues: list[Queue]
    pauses: dict[PauseScope, Pause | None]
    cordons: dict[str, CordonedWorker | None]
    bulk_operations: dict[int, BulkOperation | None]
    jobs_deleted: list[int]
    expectations: dict[int, Expectation | None]
    attempts: list[AttemptRecord]
    outputs: list[Output]
    decisions: list[DecisionRecord]
    ended_runs: list[EndedRun]


@dataclass
class FakeStore:
    """All durable records."""

    epoch: int = 0
    offset_us: int = 0
    jobs: dict[int, Job] = field(default_factory=dict)
    schedules: dict[int, Schedule] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    pauses: dict[PauseScope, Pause | None] = field(default_factory=dict)
    cordons: dict[str, CordonedWorker | None] = field(default_factory=dict)
    bulk_operations: dict[int, BulkOperation | None] = field(default_factory=dict)
    expectations: dict[int, Expectation | None] = field(default_factory=dict)
    attempts: list[AttemptRecord] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    decisions: list[DecisionRecord] = field(default_factory=list)
    ended_runs: list[EndedRun] = field(default_factory=list)

    def shift(self, delta_us: int) -> None:
        """Shift the instants that count elapsed time."""
        self.offset_us += delta_us
        for job in self.jobs.values():
            job.shift(delta_us)
        for schedule in self.schedules.values():
            schedule.shift(delta_us)
        for expectation in self.expectations.values():
            if expectation is not None:
                expectation.shift(delta_us)

    def write(self, written: Written) -> None:
        """Apply a commit: deletes, updates, those without a key before the others, new jobs."""
        for job_id in written.jobs_deleted:
            del self.jobs[job_id]
        for job in sorted(written.jobs, key=lambda job: (job.is_new, job.unique_key is not None)):
            assert job.is_new == (job.id not in self.jobs), f"job {job.id} is_new is wrong"
            self._check_unique(job)
            stored = job.copy()
            stored.is_new = stored.poison_suspect = False
            stored.location = Location.NOWHERE
            if not job.is_new and stored.payload is None:
                stored.payload = self.jobs[job.id].payload
            self.jobs[job.id] = stored
        for ident in written.schedules_deleted:
            self.schedules.pop(ident, None)
        for schedule in written.schedules:
            self.schedules[schedule.id] = schedule
        names = [schedule.name for schedule in self.schedules.values()]
        assert len(names) == len(set(names)), "two schedules have one name"
        self.queues.update((queue.name, queue) for queue in written.queues)
        self.pauses.update(written.pauses)
        self.cordons.update(written.cordons)
        self.bulk_operations.update(written.bulk_operations)
        self.expectations.update(written.expectations)
        self.attempts += written.attempts
        self.outputs += written.outputs
        self.decisions += written.decisions
        self.ended_runs += written.ended_runs

    def _check_unique(self, job: Job) -> None:
        for other in self.jobs.values():
            if other.id == job.id:
                continue
            assert job.unique_key is None or job.unique_key != other.unique_key, (
                f"jobs {other.id} and {job.id} hold the key {job.unique_key}"
            )
            assert job.trigger not in (Trigger.SCHEDULE, Trigger.CATCHUP) or (
                (job.schedule_id, job.scheduled_for, job.offset_us)
                != (other.schedule_id, other.scheduled_for, other.offset_us)
                or other.trigger not in (Trigger.SCHEDULE, Trigger.CATCHUP)
            ), f"schedule {job.schedule_id} fired twice for {job.scheduled_for}"

    def load(self, load: loads.Load) -> Any:  # noqa: C901, PLR0912  # one arm for each load
        """Answer a load with copies."""
        match load:
            case loads.LoadTimers(after, limit):
                return self._page(
                    lambda j: j.state in TIMED, lambda j: (j.due_at, j.id), after, limit
                )
            case loads.PromoteDue(after, until):
                return self._promote_due(after, until)
            case loads.LoadReady(ready_key, after, limit):
                return self._page(
                    lambda j: j.state is State.QUEUED and j.ready_key == ready_key,
                    lambda j: (j.rank, j.id),
                    after,
                    limit,
                )
            case loads.LoadSchedules(after):
                due = sorted(
                    (s.next_fire_at, s.id)
                    for s in self.schedules.values()
                    if s.next_fire_at is not None and not s.paused
                )
                later = (self.load_schedule(i) for at, i in due if (at, i) > after)
                return load.take_page(each for each in later if each is not None)
            case loads.LoadBlocked():
                return self._page_of_blocked(load)
            case loads.LoadExpired(now, limit):
                return self._page(
                    lambda j: (
                        j.state in WAITING and j.expires_at is not None and j.expires_at <= now
                    ),
                    lambda j: (j.expires_at or 0, j.id),
                    (-1, 0),
                    limit,
                )
            case loads.LoadJob(job_id):
                return self.load_job(job_id)
            case loads.LoadJobs(job_ids):
                return {job_id: self.load_job(job_id) for job_id in job_ids if job_id in self.jobs}
            case loads.LoadUniqueHolders(keys):
                held = [job for job in self.jobs.values() if job.unique_key in keys]
                return {job.unique_key: self.load_job(job.id) for job in held}
            case loads.LoadSchedule(which):
                return self.load_schedule(which)

    def _promote_due(self, after: Pair, until: int) -> loads.Promoted:
        page = self._page(
            lambda j: j.state in TIMED and j.due_at <= until,
            lambda j: (j.due_at, j.id),
            after,
            PROMOTED,
        )
        retrying = frozenset(job.id for job in page if job.state is State.RETRYING)
        for job in page:
            self.jobs[job.id].state = State.QUEUED
        last = (page[-1].due_at, page[-1].id) if len(page) == PROMOTED else None
        return loads.Promoted([(job.ready_key, (job.rank, job.id)) for job in page], last, retrying)

    def load_job(self, job_id: int) -> Job | None:
        """Return a copy of the job, or None."""
        if job_id not in self.jobs:
            return None
        job = self.jobs[job_id].copy()
        if job.payload is not None and len(job.payload) > PAYLOAD_INLINE_BYTES_MAX:
            job.payload = None
        return job

    def load_schedule(self, which: str | int) -> Schedule | None:
        """Return a copy of the schedule with its unfinished jobs, or None."""
        for stored in self.schedules.values():
            if which in (stored.id, stored.name):
                found = stored.copy()
                active = [
                    self.jobs[i]
                    for i in sorted(self.jobs)
                    if self.jobs[i].schedule_id == stored.id and not self.jobs[i].is_final
                ]
                found.active = [job.id for job in active]
                blocked = (job.id for job in active if job.state is State.BLOCKED)
                found.blocked = max(blocked, default=None)
                return found
        return None

    def ready_keys(self) -> list[ReadyKey]:
        """Return the ready keys that have queued jobs."""
        return sorted({job.ready_key for job in self.jobs.values() if job.state is State.QUEUED})

    def count_waiting(self) -> dict[str, dict[State, int]]:
        """Return the numbers of the waiting jobs by queue and state."""
        counts: dict[str, dict[State, int]] = {}
        for job in self.jobs.values():
            if job.state in WAITING:
                by_state = counts.setdefault(job.queue, {})
                by_state[job.state] = by_state.get(job.state, 0) + 1
        return counts

    def has_blocked(self) -> bool:
        """Return whether a run is blocked."""
        return any(job.state is State.BLOCKED for job in self.jobs.values())

    def _page_of_blocked(self, load: loads.LoadBlocked) -> list[loads.BlockedRun]:
        runs = (
            (ident, self.jobs[ident].schedule_id or 0)
            for ident in sorted(self.jobs)
            if ident > load.after and self.jobs[ident].state is State.BLOCKED
        )
        return load.take_page(
            loads.BlockedRun(ident, of, self.load_schedule(of)) for ident, of in runs
        )

    def unfinished(self) -> list[Job]:
        """Return the jobs that have not ended, by id."""
        return [job for _, job in sorted(self.jobs.items()) if job.state not in FINAL]

    def _page(
        self,
        matches: Callable[[Job], bool],
        order: Callable[[Job], Pair],
        after: Pair,
        limit: int,
    ) -> list[Job]:
        found = sorted(order(job) for job in self.jobs.values() if matches(job))
        page = [self.load_job(ident) for key, ident in found if (key, ident) > after]
        return [job for job in page if job is not None][:limit]
