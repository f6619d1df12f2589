"""A naive store, the model of the real one: it passes the same contract, by scans of dictionaries.

The simulation compares SQLite's results with the model's.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

from schedo.core import limits, loads
from schedo.core.bulk import BulkOperation
from schedo.core.changes import AttemptRecord, Changes, IdempotencyRecord
from schedo.core.cordoned_worker import CordonedWorker
from schedo.core.expectations import Expectation
from schedo.core.ids import first_id, newest_at
from schedo.core.job_filter import JobFilter, Order
from schedo.core.keep import NOT_KEPT
from schedo.core.leases import CapturedOutput
from schedo.core.model import Job, Location, Pause, PauseScope, Queue, Schedule
from schedo.core.paged_index import Pair
from schedo.core.run_history import RunHistory, ScheduleStatus
from schedo.core.schedule_filter import ANY_SCHEDULE, ScheduleCounts, ScheduleFilter
from schedo.core.states import TIMED, State
from schedo.errors import NotFound, StoreError
from schedo.store.base import ClockMark, OutputPiece, OutputSize, Retention, Snapshot, Waiting
from schedo.store.pages import DecisionPage, IdPage, JobPage, SchedulePage
from tests.store import model_schedules
from tests.store.model_checks import check_jobs, check_schedules
from tests.store.model_records import (
    RunReleases,
    add_runs,
    count_waiting,
    is_expired,
    loaded,
    prunable,
    put_or_delete,
    trim,
    with_active,
)
from tests.store.model_rest import ModelRest

_DUE, _RANK = attrgetter("due_at", "id"), attrgetter("rank", "id")
_ID, _EXPIRY = attrgetter("id", "attempt"), attrgetter("expires_at", "id")


class ModelStore(ModelRest):
    """A Store whose records survive close and open of the same object."""

    path = None

    def __init__(self) -> None:
        super().__init__()
        self._epoch, self._is_open = 0, False
        self._jobs: dict[int, Job] = {}
        self._schedules: dict[int, Schedule] = {}
        self._histories: dict[int, RunHistory] = {}
        self._releases = RunReleases()
        self._queues: dict[str, Queue] = {}
        self._pauses: dict[PauseScope, Pause] = {}
        self._cordons: dict[str, CordonedWorker] = {}
        self._bulk_operations: dict[int, BulkOperation] = {}
        self._expectations: dict[int, Expectation] = {}
        self._attempts: dict[int, list[AttemptRecord]] = {}
        self._outputs: dict[int, dict[tuple[int, str], CapturedOutput]] = {}
        self._decided_at = 0
        self._decisions: dict[int, model_schedules.Decisions] = {}
        self._idempotency_records: dict[str, IdempotencyRecord] = {}
        self._clock = ClockMark()
        self._waiting: Waiting = {}

    async def open(self) -> Snapshot:
        assert not self._is_open, "the store is open already"
        self._is_open = True
        return await self.snapshot()

    async def close(self, *, keep_log: bool = False) -> None:
        self._is_open = False

    async def check(self) -> None:
        self._check_open()

    async def commit(self, changes: Changes) -> None:
        self._check_open()
        for job_id in changes.jobs_deleted:
            self._drop_job(job_id)
        check_jobs(changes, self._jobs)
        check_schedules(changes, self._schedules)
        for job in changes.jobs.values():
            self._put_job(job)
        for schedule_id in changes.schedules_deleted:
            self._schedules.pop(schedule_id, None)
            self._decisions.pop(schedule_id, None)
            self._histories.pop(schedule_id, None)
            self._protect(schedule_id)
        for schedule in changes.schedules.values():
            if schedule.id not in changes.schedules_deleted:
                stored = schedule.copy()
                stored.active, stored.blocked = [], None
                self._schedules[schedule.id] = stored
        put_or_delete(self._pauses, changes.pauses)
        put_or_delete(self._cordons, changes.cordons)
        put_or_delete(self._bulk_operations, changes.bulk_operations)
        for ident, record in (*changes.bulk_operations.items(), *changes.expectations.items()):
            self._protect(ident if record is None else 0)
        copies = {ident: each and each.copy() for ident, each in changes.expectations.items()}
        put_or_delete(self._expectations, copies)
        for queue in changes.queues.values():
            self._queues[queue.name] = queue.changed()
        add_runs(self._histories, self._schedules, changes)
        self._releases.note(changes)
        self._put_evidence(changes, set(changes.schedules_deleted))

    # Ordered with commits.

    async def save_clock(self, mark: ClockMark) -> None:
        self._check_open()
        delta_us = mark.offset_us - self._clock.offset_us
        self._clock = mark
        for records in (self._jobs, self._schedules, self._expectations):
            for record in records.values():
                record.shift(delta_us)

    async def snapshot(self) -> Snapshot:
        self._check_open()
        self._epoch += 1
        jobs = self._jobs.values()
        self._waiting = count_waiting(jobs)
        ids = (*self._jobs, *self._schedules, *self._expectations, *self._bulk_operations)
        queued = {job.ready_key for job in jobs if job.state is State.QUEUED}
        seen_at = max(self._clock.seen_at, *(j.created_at - j.offset_us for j in jobs), 0)
        return Snapshot(
            epoch=self._epoch,
            last_id=max([first_id(self._decided_at), *ids]),
            bulk_operations=[each for _, each in sorted(self._bulk_operations.items())],
            expectations=[each.copy() for _, each in sorted(self._expectations.items())],
            pauses=[pause for _, pause in sorted(self._pauses.items())],
            cordons=[cordoned for _, cordoned in sorted(self._cordons.items())],
            queues=[queue.changed() for _, queue in sorted(self._queues.items())],
            ready_keys=sorted(queued, key=lambda key: key[:2]),
            store_id=1,
            has_blocked=any(job.state is State.BLOCKED for job in jobs),
            clock=self._clock._replace(seen_at=seen_at),
        )

    async def load(self, load: loads.Load) -> Any:  # noqa: C901, PLR0912  # one arm for each load
        self._check_open()
        jobs = self._jobs.values()
        match load:
            case loads.LoadTimers(after, limit):
                return self._page(lambda job: job.state in TIMED, _DUE, after, limit)
            case loads.PromoteDue():
                return self._promote_due(load)
            case loads.LoadReady(key, after, limit):
                queued = (job for job in jobs if job.state is State.QUEUED)
                wanted = {job.id for job in queued if job.ready_key == key}
                return self._page(lambda job: job.id in wanted, _RANK, after, limit)
            case loads.LoadSchedules():
                return self._page_of_schedules(load)
            case loads.LoadBlocked():
                return self._page_of_blocked(load)
            case loads.LoadExpired(now, limit):
                return self._page(lambda job: is_expired(job, now), _EXPIRY, None, limit)
            case loads.LoadJob():
                return next((loaded(job) for job in jobs if job.id == load.job_id), None)
            case loads.LoadJobs(job_ids):
                return {job.id: loaded(job) for job in jobs if job.id in job_ids}
            case loads.LoadUniqueHolders(keys):
                return {job.unique_key: loaded(job) for job in jobs if job.unique_key in keys}
            case loads.LoadSchedule():
                found = await self.get_schedule(load.which)
                return None if found is None else self._schedule(found)

    def _promote_due(self, load: loads.PromoteDue) -> loads.Promoted:
        page = self._page(
            lambda job: job.state in TIMED and job.due_at <= load.until,
            *(_DUE, load.after, load.limit),
        )
        retrying = frozenset(job.id for job in page if job.state is State.RETRYING)
        for job in page:
            self._jobs[job.id].state = State.QUEUED
        last = _DUE(page[-1]) if len(page) == load.limit else None
        return loads.Promoted([(job.ready_key, _RANK(job)) for job in page], last, retrying)

    def _page_of_blocked(self, load: loads.LoadBlocked) -> list[loads.BlockedRun]:
        after = (load.after, 1 << 62)
        page = self._page(lambda job: job.state is State.BLOCKED, _ID, after, load.limit)
        known = {schedule.id: self._schedule(schedule) for schedule in self._schedules.values()}
        owners = [(job.id, job.schedule_id or 0) for job in page]
        return load.take_page(
            loads.BlockedRun(job_id, ident, known.get(ident)) for job_id, ident in owners
        )

    def _page_of_schedules(self, load: loads.LoadSchedules) -> list[Schedule]:
        found = sorted(
            (schedule.next_fire_at, schedule.id)
            for schedule in self._schedules.values()
            if schedule.next_fire_at is not None and not schedule.paused
        )
        ids = (ident for at, ident in found if (at, ident) > load.after)
        return load.take_page(self._schedule(self._schedules[ident]) for ident in ids)

    async def load_running(self, after: int, limit: int) -> list[Job]:
        def runs(job: Job) -> bool:
            return job.state is State.RUNNING and job.id > after

        return self._page(runs, lambda job: (job.id, 0), None, limit)

    async def load_payload(self, job_id: int) -> bytes:
        self._check_open()
        job = self._jobs.get(job_id)
        if job is None:
            raise NotFound(f"job {job_id} is not in the store")
        assert job.payload is not None, "the store has every payload"
        return job.payload

    async def prune(self, now: int, retention: Retention, limit: int) -> int:
        self._check_open()
        kept = retention.schedule_runs
        effort = self._releases.release(self._jobs, self._schedules, now, kept, limit)
        room = max(0, limit - effort)
        ended = sorted(prunable(self._jobs, now, retention, self._releases.released))
        jobs = [job_id for _, _, job_id in ended[:room]]
        for job_id in jobs:
            self._drop_job(job_id)
        oldest = now - retention.idempotency_us
        records = self._idempotency_records.items()
        stale = (scope for scope, answer in records if answer.created_at <= oldest)
        answers = list(islice(stale, room - len(jobs)))
        for scope in answers:
            del self._idempotency_records[scope]
        return effort + len(jobs) + len(answers)

    def _drop_job(self, job_id: int) -> None:
        """Delete the job, whose id is not used again."""
        self._delete_job(job_id)
        self._protect(job_id)

    def _protect(self, ident: int) -> None:
        """Let no later record have the id."""
        self._decided_at = max(self._decided_at, newest_at(ident) + 1)

    def _delete_job(self, job_id: int) -> None:
        self._jobs.pop(job_id, None)
        self._attempts.pop(job_id, None)
        self._outputs.pop(job_id, None)

    # Concurrent with commits.

    async def get_job(self, job_id: int) -> Job | None:
        self._check_open()
        job = self._jobs.get(job_id)
        return None if job is None else job.copy()

    async def list_jobs(
        self, which: JobFilter, after: int | None, limit: int, order: Order = Order.NEWEST
    ) -> JobPage[int]:
        sign = -1 if order is Order.NEWEST else 1

        def fits(job: Job) -> bool:
            return (after is None or sign * job.id > sign * after) and which.matches(job)

        jobs = self._page(fits, lambda job: (sign * job.id, 0), None, limit)
        for job in jobs:
            if job.result is not None and len(job.result) > limits.PAYLOAD_INLINE_BYTES_MAX:
                job.result = None
        return JobPage(jobs, jobs[-1].id if len(jobs) == limit else None)

    async def list_due(self, which: JobFilter, after: Pair | None, limit: int) -> JobPage[Pair]:
        def fits(job: Job) -> bool:
            return job.state in TIMED and which.matches(job)

        jobs = self._page(fits, lambda job: (job.due_at, job.id), after, limit)
        return JobPage(jobs, (jobs[-1].due_at, jobs[-1].id) if len(jobs) == limit else None)

    async def find_job_ids(self, which: JobFilter, before: int | None, limit: int) -> IdPage:
        jobs, before, _ = await self.list_jobs(which, before, limit)
        return IdPage([job.id for job in jobs], before)

    async def settle(self) -> None: ...

    async def list_attempts(self, job_id: int) -> list[AttemptRecord]:
        self._check_open()
        return list(self._attempts.get(job_id, ()))

    async def list_output_sizes(self, job_id: int) -> list[OutputSize]:
        self._check_open()
        return [
            OutputSize(attempt, stream, len(kept.head), len(kept.tail), kept.total_bytes)
            for (attempt, stream), kept in sorted(self._outputs.get(job_id, {}).items())
        ]

    async def read_output(self, job_id: int, piece: OutputPiece) -> bytes:
        kept = self._outputs.get(job_id, {}).get((piece.attempt, piece.stream))
        data = b"" if kept is None else kept.head if piece.part == "head" else kept.tail
        return data[piece.at : piece.at + piece.length]

    async def get_schedule(self, which: str | int) -> Schedule | None:
        self._check_open()
        for schedule in self._schedules.values():
            if which in (schedule.name, schedule.id):
                return schedule.copy()
        return None

    async def list_schedules(
        self, after: str | None, limit: int, which: ScheduleFilter = ANY_SCHEDULE
    ) -> SchedulePage:
        self._check_open()
        return model_schedules.list_schedules(self._schedules, self._histories, after, limit, which)

    async def count_schedules(self, overdue: Sequence[int]) -> ScheduleCounts:
        self._check_open()
        return model_schedules.count_schedules(self._schedules, self._histories, overdue)

    async def get_histories(self, schedule_ids: Sequence[int]) -> dict[int, RunHistory]:
        self._check_open()
        return {each: self._histories[each] for each in schedule_ids if each in self._histories}

    async def list_schedule_statuses(self, after: int, limit: int) -> list[ScheduleStatus]:
        self._check_open()
        return model_schedules.list_statuses(self._schedules, self._histories, after, limit)

    async def list_owned(self, owner: str) -> list[str]:
        self._check_open()
        return sorted(each.name for each in self._schedules.values() if each.owner == owner)

    async def list_decisions(
        self, schedule_id: int, limit: int, before: int | None = None
    ) -> DecisionPage:
        self._check_open()
        return self._decisions.get(schedule_id, model_schedules.Decisions()).list(limit, before)

    async def count_waiting(self, epoch: int) -> Waiting:
        self._check_open()
        if epoch != self._epoch:
            raise StoreError("the waiting jobs of this snapshot were not counted")
        return self._waiting

    async def find_idempotency_record(
        self, scope: str, fingerprint: bytes
    ) -> IdempotencyRecord | None:
        self._check_open()
        found = self._idempotency_records.get(scope)
        if found is not None and found.fingerprint != fingerprint:
            return found._replace(body=b"")
        return found

    async def size_bytes(self) -> int:
        return 0

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("the store is not open")

    def _put_job(self, job: Job) -> None:
        if job.kept_until == NOT_KEPT:
            self._drop_job(job.id)
            return
        stored = job.copy()
        stored.is_new, stored.location, stored.poison_suspect = False, Location.NOWHERE, False
        if not job.is_new:
            stored.payload = self._jobs[job.id].payload
        assert stored.payload is not None, "a new job has its payload"
        self._jobs[job.id] = stored

    def _put_evidence(self, changes: Changes, deleted: set[int]) -> None:
        for attempt in changes.attempts:
            if attempt.job_id in self._jobs:
                attempts = self._attempts.setdefault(attempt.job_id, [])
                attempts.append(attempt)
                del attempts[: -limits.ATTEMPTS_MAX]
        for output in changes.outputs:
            if output.job_id in self._jobs:
                outputs = self._outputs.setdefault(output.job_id, {})
                key = (output.attempt, output.capture.stream)
                outputs[key] = output.capture
                trim(outputs)
        at = model_schedules.put_decisions(self._decisions, changes, deleted)
        self._decided_at = max(self._decided_at, at)
        self._commit_rest(changes)
        for answer in changes.idempotency_records:
            self._idempotency_records[answer.scope] = answer

    def _page(
        self,
        matches: Callable[[Job], bool],
        order: Callable[[Job], tuple[int, int]],
        after: tuple[int, int] | None,
        limit: int,
    ) -> list[Job]:
        self._check_open()
        jobs = filter(matches, self._jobs.values())
        matching = (job for job in jobs if after is None or order(job) > after)
        return [loaded(job) for job in heapq.nsmallest(limit, matching, key=order)]

    def _schedule(self, schedule: Schedule) -> Schedule:
        return with_active(schedule, self._jobs.values())
