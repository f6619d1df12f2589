"""The scheduler: it decides which jobs are due, which worker runs them and what an outcome means.

Rule 1: only the scheduler changes jobs and schedules. A method that raises has changed nothing.
Rule 2: the scheduler has no clock, no I/O and no randomness. The caller passes `now` and `random`.
Rule 3: effects leave the scheduler as plain values. After each turn the engine takes what the
store must write (`take_changes`), what workers must do (`take_leases`, `take_stops` of `attempts`)
and what it must load (`take_loads`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from schedo.core import loads
from schedo.core.admission import Admission, Answered
from schedo.core.changes import AttemptRecord, Changes, Output
from schedo.core.expiry import Expiry
from schedo.core.explain import explain
from schedo.core.ids import IdSource, render_id
from schedo.core.job_table import JobTable
from schedo.core.leases import AttemptResult, Lease, Lost, Outcome, Released, StopReason
from schedo.core.limits import COMMIT_FIRES_MAX, TURN_ENTRIES_MAX, TURN_FIRES_MAX, WINDOW_ENTRIES
from schedo.core.model import Job, JobSpec, LeaseKey, Location, Queue, ReadyKey, Schedule, Trigger
from schedo.core.outcomes import OutcomeContext, settle
from schedo.core.placement import Placement
from schedo.core.running import RunningAttempts, is_current_lease, reset_budget
from schedo.core.runs import ScheduledRun, retry_before
from schedo.core.schedules import Schedules
from schedo.core.states import TIMED, WAITING, State
from schedo.core.transitions import JobTransitions
from schedo.core.worker_pool import WorkerPool, WorkerSpec
from schedo.errors import IllegalTransition, StaleLease

_QUEUED, _COMPLETED = State.QUEUED, State.COMPLETED
_NOWHERE = Location.NOWHERE


class Scheduler:
    """The jobs and schedules of one store that must be in memory, and the commands on them."""

    def __init__(
        self,
        *,
        epoch: int,
        last_id: int,
        random: Callable[[], float],
        capacity: int = WINDOW_ENTRIES,
        ready_limit: int | None = None,
        ended: dict[State, int] | None = None,
        offset_us: int = 0,
    ) -> None:
        self.epoch = epoch
        self._random = random
        self._ids = IdSource(last_id)
        self.workers = WorkerPool()
        self.jobs = JobTable(capacity, ready_limit, workers=self.workers, offset_us=offset_us)
        self.schedules = Schedules(self.jobs, self._ids, self, capacity)
        self._admission = Admission(self.jobs, self._ids, self.workers, self.cancel)
        self._transitions = JobTransitions(self.jobs, self.schedules, self._admission.rank, ended)
        self._expiry = Expiry(self.jobs, self._transitions)
        self.attempts = RunningAttempts(self.jobs, self.workers, epoch)
        self.placements = Placement(
            self.jobs, self._admission, self.workers, self.attempts, self._transitions
        )
        self._loads: list[loads.Load] = []

    @property
    def last_id(self) -> int:
        return self._ids.last

    # Recovery.

    def restore(
        self,
        queues: Sequence[Queue],
        ready_keys: Sequence[ReadyKey],
        blocked: list[tuple[int, int]],
    ) -> None:
        """Restore from the store's snapshot: queues, ready keys with jobs, blocked runs."""
        for queue in queues:
            self.jobs.ready_queues.set_queue(queue)
        for ready_key in ready_keys:
            self.jobs.ready_queues.announce(ready_key)
        self.schedules.restore_blocked(blocked)

    def recover_running(self, job: Job, lease: Lease, now: int) -> None:
        """Restore a running job from the lease that a worker still holds.

        The store writes a start after the worker has it, so the record may be older than the lease.
        """
        self.attempts.resume(self.jobs.track(job), lease, now)

    def recover_lost(self, job: Job, outcome: Outcome, now: int) -> None:
        """Apply the outcome to a job that is stored as running but that no worker runs."""
        job = self.jobs.track(job)
        self._transitions.apply(
            job, settle(job, outcome, OutcomeContext(now, 0.0, None, None)), now
        )

    # Commands. Each takes a record that is in memory or that a load has delivered.

    def submit(self, specs: Sequence[JobSpec], now: int, then: Answered) -> None:
        """Accept the specs in one step and call `then` with one answer per spec, in their order.

        The call is immediate unless the store must first be asked who holds a unique key.
        """
        self._admission.submit(specs, now, then)

    def with_job(self, job_id: int, then: Callable[[Job | None, int], None], now: int) -> None:
        """Call `then` with the record: at once if it is in memory, else when it is loaded."""
        job = self.jobs.find(job_id)
        if job is not None:
            then(job, now)
        else:
            self._loads.append(loads.LoadJob(job_id, then))

    def with_schedule(
        self, which: str | int, then: Callable[[Schedule | None, int], None], now: int
    ) -> None:
        """Call `then` with the schedule: at once if it is in memory, else when it is loaded."""
        schedule = self.schedules.find(which)
        if schedule is not None:
            then(schedule, now)
        else:
            self._loads.append(loads.LoadSchedule(which, then))

    def cancel(self, job: Job, now: int) -> Job:
        """End a waiting job, or ask the worker of a running one to stop. It may be repeated."""
        if job.state in WAITING:
            job = self.jobs.track(job)
            self._transitions.finish(job, State.CANCELLED, now)
        elif job.state is State.RUNNING:
            if job.cancel_requested_at is None:
                job.cancel_requested_at = now
                self.jobs.mark_dirty(job)
                self.attempts.stop(job, StopReason.CANCEL)
        elif job.state is not State.CANCELLED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state}; it cannot be cancelled"
            )
        return job

    def retry(self, job: Job, now: int) -> Job:
        """Queue an ended job again and reset its counts of failures and losses."""
        if not job.is_final or job.state is State.COMPLETED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state};"
                " only a failed, cancelled or expired job can be retried"
            )
        if job.trigger is Trigger.INVOKE:
            raise IllegalTransition(
                f"job {render_id(job.id)} was invoked, so it cannot be queued; invoke it again"
            )
        job = self.jobs.track(job)
        reset_budget(job)
        self._transitions.queue_at(job, now, now)
        return job

    def run_now(self, job: Job, now: int) -> Job:
        """Make a scheduled or retrying job due now."""
        if job.state not in TIMED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state};"
                " only a scheduled or retrying job can be run early"
            )
        job = self.jobs.track(job)
        self._transitions.queue_at(job, now, now)
        return job

    def reschedule(
        self,
        job: Job,
        due_at: int | None,
        priority: int | None,
        now: int,
        delay_us: int | None = None,
    ) -> Job:
        """Change the due instant or the priority of a waiting job."""
        if job.state not in WAITING or job.state is State.BLOCKED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state}; only a waiting job can be changed"
            )
        job = self.jobs.track(job)
        if priority is not None:
            job.priority = priority
        if delay_us is not None:
            self._transitions.put_off(job, now + delay_us, now, elapsed=True)
        elif due_at is not None:
            self._transitions.put_off(job, due_at, now, elapsed=False)
        else:
            self._transitions.rank_anew(job)
        return job

    def set_queue(self, queue: Queue) -> Queue:
        """Set the limits of a queue. Jobs that already wait keep their rank."""
        self.jobs.ready_queues.set_queue(queue)
        self.jobs.changes.queues[queue.name] = queue
        return queue

    # Time.

    def tick(self, now: int) -> None:
        """Handle a bounded number of due entries; `next_wake_at` returns when to call again."""
        if self._may_fire:
            self.schedules.fire_due(now, TURN_FIRES_MAX)
        self.jobs.queue_due(now, TURN_ENTRIES_MAX)
        self.tick_attempts(now)

    def tick_attempts(self, now: int) -> None:
        """Stop attempts whose timeout has passed; start due jobs while workers have free slots."""
        self.attempts.stop_overdue(now, TURN_ENTRIES_MAX)
        find, start = self.jobs.find, self.attempts.start
        while taken := self.jobs.ready_queues.take():
            for job_id, worker in taken:
                job = find(job_id)
                assert job is not None, "a ready job in memory has a record"
                job.location = _NOWHERE
                if job.expires_at is not None and job.expires_at <= now:
                    self._transitions.finish(job, State.EXPIRED, now)
                else:
                    start(job, worker, now)

    def follow_clock(self, delta_us: int) -> None:
        """Shift the instants that count elapsed time. No commit or load may be under way."""
        self.jobs.shift(delta_us)
        self.schedules.shift(delta_us)
        self.attempts.shift_deadlines(delta_us)

    def next_wake_at(self) -> int | None:
        """Return the next instant at which `tick` has something to do, or None."""
        timer = self.jobs.timers.first()
        instants = (
            timer[0] if timer is not None else None,
            self.schedules.next_at() if self._may_fire else None,
            self.attempts.next_timeout_at(),
            self.jobs.backlog.next_at(),
        )
        return min((at for at in instants if at is not None), default=None)

    @property
    def _may_fire(self) -> bool:
        """Whether the next commit may hold another fire. A commit makes room for more."""
        return len(self.jobs.changes.schedules) < COMMIT_FIRES_MAX

    def expire_and_trim(self, now: int) -> None:
        """Request the jobs that have expired, and evict idle queues. Called about once a second."""
        self._expiry.sweep(now)
        self.jobs.ready_queues.evict_idle()

    # Workers.

    def attach(self, spec: WorkerSpec) -> None:
        """Add a worker that may now get jobs, or replace its spec."""
        self.workers.attach(spec)
        self._admission.forget_defaults()

    def detach(
        self, worker: str, message: str, now: int, unsent: Callable[[LeaseKey], bool] | None = None
    ) -> list[LeaseKey]:
        """Remove the worker and return the leases that it still held.

        Their attempts are lost. Those that were never sent to the worker are released instead.
        """
        held = self.workers.detach(worker)
        self._admission.forget_defaults()
        for key in held:
            self.report(
                AttemptResult(key, Released() if unsent and unsent(key) else Lost(message)), now
            )
        return held

    def report(self, result: AttemptResult, now: int) -> Job:
        """Apply the result to its job. If it is stale, keep a record of it and raise StaleLease."""
        key = result.key
        job = self.jobs.find(key.job_id)
        if job is None or not is_current_lease(key, job):
            self.jobs.changes.attempts.append(
                AttemptRecord(key.job_id, key.attempt, key.epoch, None, None, now, "stale", None)
            )
            raise StaleLease(
                f"attempt {key.attempt} of job {render_id(key.job_id)} no longer holds it;"
                " its result was refused"
            )
        for capture in result.output:
            self.jobs.changes.outputs.append(Output(key.job_id, key.attempt, capture))
        stop = self.attempts.end(job, key)
        schedule = None if job.schedule_id is None else self.schedules.find(job.schedule_id)
        context = OutcomeContext(now, self._random(), stop, retry_before(schedule))
        job.location = _NOWHERE
        self._transitions.apply(job, settle(job, result.outcome, context), now)
        if job.state is State.RETRYING and job.schedule_id is not None and schedule is None:
            self._check_retry(job.schedule_id, job.key, job.due_at - self.jobs.offset_us)
        return job

    def _check_retry(self, schedule_id: int, key: LeaseKey, due: int) -> None:
        """Fail the retrying run if its schedule fires before `due` (on the elapsed timeline)."""

        def give_up(job: Job | None, now: int) -> None:
            if job is not None and job.state is State.RETRYING and job.key == key:
                self._transitions.finish(self.jobs.track(job), State.FAILED, now)

        def check(schedule: Schedule | None, now: int) -> None:
            bound = retry_before(schedule)
            if bound is not None and due + self.jobs.offset_us >= bound:
                self.with_job(key.job_id, give_up, now)

        self._loads.append(loads.LoadSchedule(schedule_id, check))

    # What the engine takes after a turn.

    def take_changes(self) -> Changes:
        """Return what the store must write; see `JobTable.take_changes`."""
        return self.jobs.take_changes()

    def take_ready(self) -> set[int]:
        """Return the jobs that a timer or a commit has made runnable since the last call."""
        ready, self.jobs.ready = self.jobs.ready, set()
        return ready

    def committed(self) -> None:
        """Mark the changes that were taken last as durable."""
        self.jobs.committed()
        self.schedules.committed()

    @property
    def has_pending_work(self) -> bool:
        """Whether the engine has something to commit or to load."""
        return bool(
            self.jobs.changes
            or self._loads
            or self._admission.loads
            or self._expiry.loads
            or self.jobs.needs_loads()
            or self.schedules.needs_loads()
        )

    def take_loads(self) -> list[loads.Load]:
        """Return the loads that the store must carry out, each once."""
        pending = self._loads + self._admission.loads + self._expiry.loads
        self._loads, self._admission.loads, self._expiry.loads = [], [], []
        # Promotions change the store, and all other loads must see that change: they go first.
        return self.jobs.loads() + pending + self.schedules.loads()

    def deliver(self, loaded: Sequence[tuple[loads.Load, Any]], now: int) -> None:
        """Apply the loaded records. Where memory has a newer record, it wins."""
        for load, found in loaded:
            self._deliver(load, found, now)
        self.jobs.place_changed()

    def _deliver(self, load: loads.Load, loaded: Any, now: int) -> None:
        match load:
            case loads.LoadTimers():
                self.jobs.extend_timers(load, loaded)
            case loads.PromoteDue():
                self.jobs.promoted(load, loaded)
            case loads.LoadReady():
                self.jobs.extend_ready(load, loaded)
            case loads.LoadSchedules():
                self.schedules.extend(load, loaded)
            case loads.LoadExpired():
                self._expiry.take(load, loaded, now)
            case loads.LoadJob(job_id, then):
                then(self.jobs.find(job_id) or loaded, now)
            case loads.LoadUniqueHolder(key, then):
                then(self.jobs.find_unique_holder(key, loaded), now)
            case loads.LoadSchedule(which, found):  # pragma: no branch - these are all loads
                found(self.schedules.current(which, loaded), now)

    def why(self, job: Job) -> str:
        """Return one sentence about what the job waits for, or how it ended."""
        return explain(job, self.jobs, self.workers)

    # The callbacks of the schedules (runs.RunCallbacks).

    def make_run(self, run: ScheduledRun, now: int) -> Job:
        """Make the job of a scheduled run."""
        return self._admission.make_run(run, now)

    def cancel_run(self, job_id: int, now: int) -> None:
        def cancel(job: Job | None, now: int) -> None:
            if job is not None and not job.is_final:
                self.cancel(job, now)

        self.with_job(job_id, cancel, now)

    def unblock_run(self, job_id: int, now: int) -> None:
        """Queue a blocked run, or schedule it if jitter makes it due later."""

        def wake(job: Job | None, now: int) -> None:
            if job is None or job.state is not State.BLOCKED:
                return
            job = self.jobs.track(job)
            if job.due_at > now:
                self._transitions.wait_until(job, State.SCHEDULED, job.due_at)
            else:
                self._transitions.queue_at(job, job.due_at, now)

        self.with_job(job_id, wake, now)
