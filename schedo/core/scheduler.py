"""The scheduler decides: what is due, who runs it, what an outcome means.

Rule 1: this is the only mutator of jobs and schedules. A method that raises has changed nothing.
Rule 2: no clock, no I/O, no randomness of its own: `now` is an argument, and `random` is given.
Rule 3: what must be remembered, told or fetched is drained afterwards as plain values, by
`take_changes`, `take_leases`, `take_stops`, `take_wants`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from schedo.core import wants
from schedo.core.accepting import Acceptor, Answered
from schedo.core.attempts import Attempts, holds, renew
from schedo.core.changes import Attempt, Changes, Output
from schedo.core.expiry import Expiry
from schedo.core.ids import IdSource, render_id
from schedo.core.leases import HandedBack, Lease, Lost, Outcome, Report, StopReason
from schedo.core.lifecycle import TIMED, WAITING, State
from schedo.core.limits import (
    COMMIT_FIRES_MAX,
    TURN_ENTRIES_MAX,
    TURN_FIRES_MAX,
    WINDOW_ENTRIES,
)
from schedo.core.memory import JobMemory
from schedo.core.model import Job, JobSpec, Lane, LeaseKey, Place, Queue, Schedule, Trigger
from schedo.core.moves import Moves
from schedo.core.placing import Placements
from schedo.core.runs import NewRun, retry_before
from schedo.core.schedules import Schedules
from schedo.core.settling import Circumstances, settle
from schedo.core.why import explain
from schedo.core.workers import WorkerOffer, Workers
from schedo.errors import IllegalTransition, StaleLease

_QUEUED, _COMPLETED = State.QUEUED, State.COMPLETED
_NOWHERE = Place.NOWHERE


class Scheduler:
    """All jobs and schedules of one store, as far as they must be in memory."""

    def __init__(
        self,
        *,
        epoch: int,
        last_id: int,
        random: Callable[[], float],
        capacity: int = WINDOW_ENTRIES,
        lane_limit: int | None = None,
        ended: dict[State, int] | None = None,
        offset_us: int = 0,
    ) -> None:
        self.epoch = epoch
        self._random = random
        self._ids = IdSource(last_id)
        self.workers = Workers()
        self.memory = JobMemory(capacity, lane_limit, workers=self.workers, offset_us=offset_us)
        self.schedules = Schedules(self.memory, self._ids, self, capacity)
        self._acceptor = Acceptor(self.memory, self._ids, self.workers, self.cancel)
        self._moves = Moves(self.memory, self.schedules, self._acceptor.rank, ended)
        self._expiry = Expiry(self.memory, self._moves)
        self.attempts = Attempts(self.memory, self.workers, epoch)
        self.placements = Placements(
            self.memory, self._acceptor, self.workers, self.attempts, self._moves
        )
        self._wanted: list[wants.Want] = []

    @property
    def last_id(self) -> int:
        """The largest id that was handed out or found in the store."""
        return self._ids.last

    # Restoring: what the store knew when it was opened.

    def restore(
        self, queues: Sequence[Queue], lanes: Sequence[Lane], blocked: list[tuple[int, int]]
    ) -> None:
        """Learn the queues, which lanes have jobs, and which schedules have a blocked run."""
        for queue in queues:
            self.memory.lanes.set_queue(queue)
        for lane in lanes:
            self.memory.lanes.announce(lane)
        self.schedules.restore_blocked(blocked)

    def adopt_running(self, job: Job, lease: Lease, now: int) -> None:
        """Take in a job of which a worker has the attempt.

        A start is write-behind, so the record may be older than the lease.
        """
        self.attempts.resume(self.memory.adopt(job), lease, now)

    def adopt_ended(self, job: Job, outcome: Outcome, now: int) -> None:
        """Take in a job whose record says that it runs, but whose attempt nobody has."""
        job = self.memory.adopt(job)
        self._moves.apply(job, settle(job, outcome, Circumstances(now, 0.0, None, None)), now)

    # Commands. Each takes a record that `find` or a want delivered.

    def submit(self, specs: Sequence[JobSpec], now: int, then: Answered) -> None:
        """Accept the specs in one step and call `then` with an answer for each, in order.

        That is at once, unless the store must first say who holds a unique key.
        """
        self._acceptor.submit(specs, now, then)

    def with_job(self, job_id: int, then: Callable[[Job | None, int], None], now: int) -> None:
        """Call `then` with the record, from memory at once or from the store later."""
        job = self.memory.find(job_id)
        if job is not None:
            then(job, now)
        else:
            self._wanted.append(wants.JobWanted(job_id, then))

    def with_schedule(
        self, which: str | int, then: Callable[[Schedule | None, int], None], now: int
    ) -> None:
        """Call `then` with the schedule, from memory at once or from the store later."""
        schedule = self.schedules.find(which)
        if schedule is not None:
            then(schedule, now)
        else:
            self._wanted.append(wants.ScheduleWanted(which, then))

    def cancel(self, job: Job, now: int) -> Job:
        """End a waiting job; ask a running one to stop. Cancelling twice is harmless."""
        if job.state in WAITING:
            job = self.memory.adopt(job)
            self._moves.finish(job, State.CANCELLED, now)
        elif job.state is State.RUNNING:
            if job.cancel_requested_at is None:
                job.cancel_requested_at = now
                self.memory.touch(job)
                self.attempts.stop(job, StopReason.CANCEL)
        elif job.state is not State.CANCELLED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state}; it cannot be cancelled"
            )
        return job

    def retry(self, job: Job, now: int) -> Job:
        """Queue an ended job again, with a fresh budget of failures and losses."""
        if not job.is_final or job.state is State.COMPLETED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state};"
                " only a failed, cancelled or expired job can be retried"
            )
        if job.trigger is Trigger.INVOKE:
            raise IllegalTransition(
                f"job {render_id(job.id)} was invoked, so it is not queued; invoke it anew"
            )
        job = self.memory.adopt(job)
        renew(job)
        self._moves.queue_at(job, now, now)
        return job

    def run_now(self, job: Job, now: int) -> Job:
        """Make a job that waits for its time due now."""
        if job.state not in TIMED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state};"
                " only a scheduled or retrying job can be run early"
            )
        job = self.memory.adopt(job)
        self._moves.queue_at(job, now, now)
        return job

    def reschedule(
        self,
        job: Job,
        due_at: int | None,
        priority: int | None,
        now: int,
        delay_us: int | None = None,
    ) -> Job:
        """Change when a waiting job is due, or how urgent it is; its id stays."""
        if job.state not in WAITING or job.state is State.BLOCKED:
            raise IllegalTransition(
                f"job {render_id(job.id)} is {job.state}; only a waiting job can be changed"
            )
        job = self.memory.adopt(job)
        if priority is not None:
            job.priority = priority
        if delay_us is not None:
            self._moves.put_off(job, now + delay_us, now, elapsed=True)
        elif due_at is not None:
            self._moves.put_off(job, due_at, now, elapsed=False)
        else:
            self._moves.rank_anew(job)
        return job

    def set_queue(self, queue: Queue) -> Queue:
        """Set the limits of a queue; waiting jobs keep the rank they have."""
        self.memory.lanes.set_queue(queue)
        self.memory.changes.queues[queue.name] = queue
        return queue

    # Time.

    def tick(self, now: int) -> None:
        """Do what is due at now, a bounded amount; `next_wake_at` tells when to come again."""
        if self._may_fire:
            self.schedules.fire_due(now, TURN_FIRES_MAX)
        self.memory.queue_due(now, TURN_ENTRIES_MAX)
        self.tick_attempts(now)

    def tick_attempts(self, now: int) -> None:
        """Stop attempts whose time is up, and start jobs that are due while workers have room."""
        self.attempts.stop_overdue(now, TURN_ENTRIES_MAX)
        find, start = self.memory.find, self.attempts.start
        while taken := self.memory.lanes.take():
            for job_id, worker in taken:
                job = find(job_id)
                assert job is not None, "the lanes hold records in memory"
                job.place = _NOWHERE
                if job.expires_at is not None and job.expires_at <= now:
                    self._moves.finish(job, State.EXPIRED, now)
                else:
                    start(job, worker, now)

    def follow_clock(self, delta_us: int) -> None:
        """Shift what counts elapsed time, as the store has; nothing may be on its way there."""
        self.memory.shift(delta_us)
        self.schedules.shift(delta_us)
        self.attempts.shift_deadlines(delta_us)

    def next_wake_at(self) -> int | None:
        """Return the soonest instant at which there is something to do, or None."""
        timer = self.memory.timers.first()
        instants = (
            timer[0] if timer is not None else None,
            self.schedules.next_at() if self._may_fire else None,
            self.attempts.next_timeout_at(),
            self.memory.backlog.next_at(),
        )
        return min((at for at in instants if at is not None), default=None)

    @property
    def _may_fire(self) -> bool:
        """Whether the next commit has room for another fire; `committed` makes room."""
        return len(self.memory.changes.schedules) < COMMIT_FIRES_MAX

    def sweep(self, now: int) -> None:
        """Ask for waiting jobs whose expiry has come, and tidy up; called about once a second."""
        self._expiry.sweep(now)
        self.memory.lanes.forget_idle()

    # Workers.

    def attach(self, offer: WorkerOffer) -> None:
        """Let the worker have jobs from now on, or change what it offers."""
        self.workers.attach(offer)
        self._acceptor.forget_defaults()

    def detach(
        self, worker: str, message: str, now: int, unsent: Callable[[LeaseKey], bool] | None = None
    ) -> list[LeaseKey]:
        """Forget the worker; whatever it still held is lost, and returned.

        What it was never sent is handed back instead.
        """
        held = self.workers.detach(worker)
        self._acceptor.forget_defaults()
        for key in held:
            self.report(Report(key, HandedBack() if unsent and unsent(key) else Lost(message)), now)
        return held

    def report(self, report: Report, now: int) -> Job:
        """Settle an ended attempt; StaleLease, and kept as evidence, if the lease is not live."""
        key = report.key
        job = self.memory.find(key.job_id)
        if job is None or not holds(key, job):
            self.memory.changes.attempts.append(
                Attempt(key.job_id, key.attempt, key.epoch, None, None, now, "stale", None)
            )
            raise StaleLease(
                f"attempt {key.attempt} of job {render_id(key.job_id)} no longer holds it;"
                " its result was refused"
            )
        for capture in report.output:
            self.memory.changes.outputs.append(Output(key.job_id, key.attempt, capture))
        stop = self.attempts.end(job, key)
        schedule = None if job.schedule_id is None else self.schedules.find(job.schedule_id)
        around = Circumstances(now, self._random(), stop, retry_before(schedule))
        job.place = _NOWHERE
        self._moves.apply(job, settle(job, report.outcome, around), now)
        if job.state is State.RETRYING and job.schedule_id is not None and schedule is None:
            self._check_retry(job.schedule_id, job.key, job.due_at - self.memory.offset_us)
        return job

    def _check_retry(self, schedule_id: int, key: LeaseKey, due: int) -> None:
        """Give the retry, due on the elapsed timeline, up if the schedule's next run is sooner."""

        def give_up(job: Job | None, now: int) -> None:
            if job is not None and job.state is State.RETRYING and job.key == key:
                self._moves.finish(self.memory.adopt(job), State.FAILED, now)

        def check(schedule: Schedule | None, now: int) -> None:
            bound = retry_before(schedule)
            if bound is not None and due + self.memory.offset_us >= bound:
                self.with_job(key.job_id, give_up, now)

        self._wanted.append(wants.ScheduleWanted(schedule_id, check))

    # Drains.

    def take_changes(self) -> Changes:
        """Return what must be made durable; see JobMemory."""
        return self.memory.take_changes()

    def take_ready(self) -> set[int]:
        """Return the jobs that have become runnable since the last call, by timer or commit."""
        ready, self.memory.ready = self.memory.ready, set()
        return ready

    def committed(self) -> None:
        """Note that the changes taken last are durable."""
        self.memory.committed()
        self.schedules.committed()

    @property
    def has_news(self) -> bool:
        """Whether there is something to commit or to load."""
        return bool(
            self.memory.changes
            or self._wanted
            or self._acceptor.wanted
            or self._expiry.wanted
            or self.memory.needs_pages()
            or self.schedules.needs_loads()
        )

    def take_wants(self) -> list[wants.Want]:
        """Return what must be loaded."""
        wanted = self._wanted + self._acceptor.wanted + self._expiry.wanted
        self._wanted, self._acceptor.wanted, self._expiry.wanted = [], [], []
        # First of all what the store is to change: everything that is loaded must show it.
        return self.memory.wants() + wanted + self.schedules.wants()

    def deliver(self, loaded: Sequence[tuple[wants.Want, Any]], now: int) -> None:
        """Take in what was loaded for each want; memory wins over what the store said."""
        for want, found in loaded:
            self._deliver(want, found, now)
        self.memory.place_changed()

    def _deliver(self, want: wants.Want, loaded: Any, now: int) -> None:
        match want:
            case wants.TimersWanted():
                self.memory.extend_timers(want, loaded)
            case wants.PromoteDue():
                self.memory.promoted(want, loaded)
            case wants.LaneWanted():
                self.memory.extend_lane(want, loaded)
            case wants.SchedulesWanted():
                self.schedules.extend(want, loaded)
            case wants.ExpiredWanted():
                self._expiry.take(want, loaded, now)
            case wants.JobWanted(job_id, then):
                then(self.memory.find(job_id) or loaded, now)
            case wants.KeyWanted(key, then):
                then(self.memory.holder(key, loaded), now)
            case wants.ScheduleWanted(which, found):  # pragma: no branch - these are all wants
                found(self.schedules.current(which, loaded), now)

    def why(self, job: Job) -> str:
        """Return one sentence about what the job waits for, or how it ended."""
        return explain(job, self.memory, self.workers)

    # What the schedules ask for (schedules.Runs).

    def make_run(self, run: NewRun, now: int) -> Job:
        """Make the job of a fire."""
        return self._acceptor.make_run(run, now)

    def cancel_run(self, job_id: int, now: int) -> None:
        """Cancel an unfinished run, wherever it is."""

        def cancel(job: Job | None, now: int) -> None:
            if job is not None and not job.is_final:
                self.cancel(job, now)

        self.with_job(job_id, cancel, now)

    def wake_run(self, job_id: int, now: int) -> None:
        """Let a run that was blocked go its way; jitter may have it wait on."""

        def wake(job: Job | None, now: int) -> None:
            if job is None or job.state is not State.BLOCKED:
                return
            job = self.memory.adopt(job)
            if job.due_at > now:
                self._moves.wait_until(job, State.SCHEDULED, job.due_at)
            else:
                self._moves.queue_at(job, job.due_at, now)

        self.with_job(job_id, wake, now)
