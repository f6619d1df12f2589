"""The scheduler: it decides which jobs are due, which worker runs them and what an outcome means.

Rule 1: `apply` is the only door for a change that a caller wants, `tick` for what becomes due, and
`deliver` for what was loaded. A command that is refused has changed nothing.
Rule 2: the scheduler has no clock, no I/O and no randomness. The caller passes `now` and `random`.
Rule 3: effects leave the scheduler as plain values. After each turn the engine takes what the
store must write (`take_changes`), what workers must do (`take_leases`, `take_stops`) and what it
must load (`take_loads`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence, Set
from functools import partial
from typing import Any, TypeVar, overload

from schedo.core import commands, loads
from schedo.core import stats as figures
from schedo.core.admission import Admission
from schedo.core.adoption import Adoption
from schedo.core.bulk import BulkOperation
from schedo.core.bulk_operations import BulkOperations
from schedo.core.changes import Changes
from schedo.core.cordoned_worker import CordonedWorker
from schedo.core.cordons import Cordons
from schedo.core.dry_runs import DryRuns
from schedo.core.expectation_table import Expectations
from schedo.core.expectations import Expectation
from schedo.core.expiry import Expiry
from schedo.core.explain import Explainer
from schedo.core.ids import IdSource
from schedo.core.job_commands import JobCommands
from schedo.core.job_maker import JobMaker
from schedo.core.job_table import JobTable
from schedo.core.leases import AttemptResult, Lease
from schedo.core.limits import COMMIT_FIRES_MAX, TURN_ENTRIES_MAX, TURN_FIRES_MAX
from schedo.core.loading import Loading
from schedo.core.loads import NOTHING_LOADED, Appliers, Loaded, Needs
from schedo.core.log_commands import NoteChange
from schedo.core.model import Job, LeaseKey, Location, Pause, Queue, ReadyKey
from schedo.core.paged_index import DEFAULT_WINDOW, Window
from schedo.core.pauses import Pauses
from schedo.core.placement import Placement
from schedo.core.results import Results
from schedo.core.running import RunningAttempts
from schedo.core.schedule_commands import ScheduleCommands
from schedo.core.schedule_table import ScheduleTable
from schedo.core.schedules import Schedules
from schedo.core.states import State
from schedo.core.timers import earliest
from schedo.core.transitions import JobTransitions
from schedo.core.worker_commands import WorkerCommands
from schedo.core.worker_messages import Notes
from schedo.core.worker_pool import WorkerPool
from schedo.core.worker_session import PreviousServer, SessionTable
from schedo.core.worker_sessions import WorkerSessions

R = TypeVar("R")
_NOWHERE = Location.NOWHERE


class Scheduler:
    """The jobs and schedules of one store that must be in memory, and the commands on them."""

    def __init__(  # noqa: PLR0913  # what a store and a server say
        self,
        *,
        epoch: int,
        last_id: int,
        random: Callable[[], float],
        window: Window = DEFAULT_WINDOW,
        offset_us: int = 0,
        page_url: str = "",
        slot: int = 0,
    ) -> None:
        self.epoch = epoch
        self._ids = ids = IdSource(last_id, slot)
        self._loads: list[loads.Load] = []
        self._session_table = sessions = SessionTable()
        self._workers = workers = WorkerPool(sessions.cordoned)
        self._jobs = jobs = JobTable(*window, workers=self._workers, offset_us=offset_us)
        self._schedule_table = table = ScheduleTable(self._jobs, window.capacity)
        maker, follow_up = JobMaker(jobs, ids, self._workers, page_url), self._follow_up
        self.expectations = expectations = Expectations(jobs, ids, maker)
        self._schedules = Schedules(table, jobs, ids, maker.make_run, follow_up, expectations)
        self._transitions = JobTransitions(jobs, self._schedules, maker, expectations)
        self._expiry = Expiry(jobs, self._transitions, self._loads)
        self._attempts = attempts = RunningAttempts(jobs, workers, expectations, epoch)
        # The numbers of waiting jobs, by queue and state; the shares in the limits of queues.
        self.waiting, self.limits = jobs.waiting, jobs.ready_queues.limits
        self.find_job, self.find_schedule, self.is_live = jobs.find, table.find, attempts.is_live
        self.stop_reason, self.unserved = attempts.stop_reason, workers.groups.unserved
        self.runs, self.has_suspects_for = attempts.runs, jobs.ready_queues.has_suspects_for
        self.unsent: Set[LeaseKey] = attempts.unsent  # they wait for a commit or their gang
        # The attempts that the workers must start and stop.
        self.take_leases, self.take_stops = self._attempts.take_leases, self._attempts.take_stops
        of_jobs = JobCommands(self._jobs, self._transitions, self._attempts)
        of_schedules = ScheduleCommands(table, self._schedules, jobs, ids, expectations, follow_up)
        self._placement = Placement(jobs, maker, workers, attempts, self._transitions, sessions)
        self._loading = Loading(self._loads, jobs, table, self._schedules, self._expiry, follow_up)
        # The loads that the store must carry out, each once; and what they have found.
        self.take_loads, self.deliver = self._loading.take, self._loading.deliver
        self._pauses = Pauses(self._jobs, self._placement.appliers)
        self._bulk = BulkOperations(self._jobs, self._ids, of_jobs)
        self.pauses, self.bulk_operations = self._pauses.all, self._bulk.all
        self._appliers: Appliers = {
            **Admission(jobs, maker, of_jobs.cancel, self._transitions).appliers,
            **of_jobs.appliers,
            **of_schedules.appliers,
            **self._placement.appliers,
            **self._pauses.appliers,
            **self._bulk.appliers,
            **expectations.appliers,
            **self._make_sessions(random),
            commands.KeepIdempotencyRecord: self._jobs.keep_idempotency_record,
            NoteChange: self._jobs.note_change,
            commands.ExpireAndTrim: self._expire_and_trim,
            commands.Flush: _change_nothing,
        }

    def _make_sessions(self, random: Callable[[], float]) -> Appliers:
        """Make the parts that handle results and workers; return their commands with functions."""
        table, attempts, placement = self._session_table, self._attempts, self._placement
        parts = self._jobs, self._transitions, attempts, placement
        results = Results(*parts, self._pauses, self.find_schedule, random, self._follow_up)
        self._adoption = Adoption(table, self._jobs, attempts, self._pauses)
        self._cordons = cordons = Cordons(table, self._workers, self._jobs)
        sessions = self._sessions = WorkerSessions(
            table, self._workers, attempts, placement, self._adoption, cordons, results.apply
        )
        workers = WorkerCommands(self._workers, attempts, table, sessions, cordons, results)
        self.apply_result, self.recover_lost = results.apply, results.recover_lost
        self.worker_status, self.worker_statuses = workers.status, workers.statuses
        explainer = Explainer(self._jobs, self._workers, table.by_name, self.pauses)
        # All that a job waits for, or how it ended; and what each worker says about a ready key.
        self.explain, self.explain_workers = explainer.explain, explainer.explain_workers
        self.explain_remote = explainer.explain_remote
        self.held_by, self.list_unheard = workers.held_by, workers.list_unheard
        self.find_waiting = partial(figures.find_waiting, self._jobs, explainer)
        self.dry_run = DryRuns(self._pauses, self._placement, self._workers, explainer).find
        self.find_surplus = partial(figures.find_surplus, self._jobs, self._pauses)
        self.slots = partial(figures.count_slots, self._workers)  # all, and those in use
        self.idle_polls, self.shift_sessions = sessions.polls.list_idle, sessions.shift  # recovery
        self.take_replies = sessions.take_replies  # to complete polls, after `take_leases`
        return {AttemptResult: results.apply, **workers.appliers, **sessions.appliers}

    @property
    def last_id(self) -> int:
        return self._ids.last

    @property
    def offset_us(self) -> int:
        """The wall clock minus the elapsed timeline."""
        return self._jobs.offset_us

    # Commands.

    @overload
    def apply(self, command: AttemptResult, now: int) -> Job: ...

    @overload
    def apply(self, command: commands.Command[R], now: int, loaded: Loaded = ...) -> R | Needs: ...

    def apply(self, command: Any, now: int, loaded: Loaded = NOTHING_LOADED) -> Any:
        """Carry out the command and return its reply; raise a SchedoError if it is refused.

        If a record is not in memory, this returns Needs and has changed nothing. Then the caller
        applies the command again in the step that delivers the loads, with what they have found.
        """
        return self._appliers[type(command)](command, now, loaded)

    def _follow_up(
        self,
        command: commands.JobFollowUp | commands.ScheduleFollowUp,
        now: int,
        loaded: Loaded = NOTHING_LOADED,
    ) -> None:
        """Apply a command of the core itself: at once if its record is in memory or loaded."""
        if self.apply(command, now, loaded) is not None:  # it needs its record
            self._loads.append(
                loads.LoadJob(command.job_id, command)
                if isinstance(command, commands.JobFollowUp)
                else loads.LoadSchedule(command.schedule_id, command)
            )

    def _expire_and_trim(self, command: commands.ExpireAndTrim, now: int, loaded: Loaded) -> None:
        self._expiry.sweep(now)
        self._jobs.ready_queues.evict_idle()
        self._jobs.ready_queues.end_period()

    # Recovery.

    def restore(  # noqa: PLR0913  # the parts of a snapshot
        self,
        queues: Sequence[Queue],
        ready_keys: Sequence[ReadyKey],
        has_blocked: bool,
        pauses: Sequence[Pause] = (),
        cordons: Sequence[CordonedWorker] = (),
        bulk_operations: Sequence[BulkOperation] = (),
        expectations: Sequence[Expectation] = (),
    ) -> None:
        """Restore the store's snapshot; ready_keys: those with queued jobs."""
        self._pauses.restore(pauses, queues)
        self._cordons.restore(cordons)
        self._bulk.restore(bulk_operations)
        self.expectations.restore(expectations)
        for queue in queues:
            self._jobs.set_queue(queue)
        for ready_key in ready_keys:
            self._jobs.ready_queues.announce(ready_key)
        if has_blocked:
            self._loads.append(self._schedule_table.blocked.restore())

    def recover_running(self, job: Job, lease: Lease, since: int, now: int) -> None:
        """Restore a running job from the lease that a worker still holds; see `resume`.

        The store writes a start after the worker has it, so the record may be older than the lease.
        """
        self._attempts.resume(self._jobs.track(job), lease, since, now)

    def take_over(self, old: Scheduler) -> None:
        """Continue with the sessions and offers of the old scheduler."""
        self._session_table.update(old._session_table)
        self._sessions.attach_workers()

    def follow_server(self, now: int, *, was_killed: bool, last_id: int | None = None) -> None:
        """Note that this server succeeds another one, whose workers may still reconnect."""
        previous = PreviousServer(now, self.epoch - 1, last_id or self.last_id, was_killed)
        self._sessions.follow_server(previous, now)

    def expect_worker(self, lease: Lease, now: int) -> None:
        """Expect the remote worker that may still run the attempt of the previous server."""
        self._sessions.expect(lease, now)

    def recovered(self, now: int, kept_polls: Container[int] = ()) -> None:
        """Continue with offers, sessions and polls, now that the running attempts are restored."""
        self._placement.restore(now)
        self._sessions.restore(now, kept_polls)

    # Time.

    def tick(self, now: int) -> None:
        """Handle a bounded number of due entries; `next_wake_at` returns when to call again."""
        self._pauses.end_due(now)
        if self._may_fire:
            self._schedules.fire_due(now, TURN_FIRES_MAX)
        self._jobs.queue_due(now, TURN_ENTRIES_MAX)
        self.expectations.tick(now)
        self.tick_attempts(now)

    def tick_attempts(self, now: int) -> None:
        """Handle the deadlines of workers and attempts; start due jobs on free slots."""
        if self._session_table.by_name:
            self._sessions.tick(now)
        if self._placement.has_deadlines:
            self._placement.tick(now)
        for lease in self._attempts.take_durable():
            if not self._placement.is_kept(lease, now):
                self._attempts.send(lease)
        self._attempts.stop_overdue(now, TURN_ENTRIES_MAX)
        if not self._pauses.starts:
            self._start_ready(now)

    def _start_ready(self, now: int) -> None:
        """Start ready jobs on free slots."""
        find, start = self._jobs.find, self._attempts.start
        is_early = self._adoption.awaits_workers(now)
        while taken := self._jobs.ready_queues.take():
            for job_id, worker in taken:
                job = find(job_id)
                assert job is not None, "a ready job in memory has a record"
                job.location = _NOWHERE
                if job.expires_at is not None and job.expires_at <= now:
                    self._transitions.finish(job, State.EXPIRED, now)
                elif not (is_early and self._adoption.hold_back(job, worker)):
                    start(job, worker, now)

    def follow_clock(self, delta_us: int) -> None:
        """Shift the instants that count elapsed time. No commit or load may be under way."""
        self._jobs.shift(delta_us)
        self._schedule_table.shift(delta_us)
        self.expectations.follow_clock(delta_us)
        self._attempts.shift_deadlines(delta_us)
        self._sessions.shift(delta_us)
        self._placement.shift(delta_us)

    @property
    def awaits_slots(self) -> bool:
        """Whether something may go on when a slot is free: a job, an invocation, a poll."""
        return (
            self._jobs.ready_queues.has_jobs
            or bool(self._session_table.by_name)
            or self._placement.has_deadlines
        )

    def next_wake_at(self) -> int | None:
        """Return the next instant at which `tick` has something to do, or None."""
        timer = self._jobs.timers.first()
        fire_at = self._schedule_table.order.next_at() if self._may_fire else None
        resume_at, limit_at = self._pauses.next_at(), self.expectations.next_at()
        backlog_at = self._jobs.backlog.next_at()
        others = (self.next_timeout_at(), backlog_at, resume_at, limit_at)
        return earliest(timer and timer[0], fire_at, *others)

    def next_timeout_at(self) -> int | None:
        """Return the next instant at which `tick_attempts` has something to do, or None."""
        at = self._attempts.next_timeout_at()
        if self._session_table.by_name or self._placement.has_deadlines:
            return earliest(at, self._sessions.next_at(), self._placement.next_at())
        return at  # without remote workers, which most servers do not have

    @property
    def _may_fire(self) -> bool:
        """Whether a schedule may fire before the next commit, which makes room for more."""
        if self._pauses.schedules or self._schedule_table.order.is_exhausted:
            return False
        return len(self._jobs.changes.schedules) < COMMIT_FIRES_MAX

    # Queries.

    @property
    def uncommitted(self) -> Set[int]:
        """The ids of the jobs that the next commit writes."""
        return self._jobs.changes.jobs.keys()

    def queue(self, name: str) -> figures.QueueStats:
        """Return the limits of a queue, and how many of its jobs run."""
        return figures.read_queue(name, self._jobs)

    def queue_names(self) -> Iterator[str]:
        """Yield the names of the queues that are in memory: with limits, or with active jobs."""
        return (state.queue.name for state in self._jobs.ready_queues.queue_states())

    def delays(self, now: int) -> figures.Delays:
        """Return what is due first, and for how long the backlogs have been due."""
        return figures.read_delays(self._jobs, self._schedule_table, self._pauses, now)

    def stats(self) -> figures.Stats:
        """Return figures for monitoring; this goes through all ready keys and workers."""
        return figures.read_stats(self._jobs, self._schedule_table, self._workers)

    # The results that the engine takes after a turn.

    def take_notes(self) -> Notes:
        """Return what was noted for the engine since the last call."""
        return Notes(
            self._attempts.take_results(),
            self._placement.take_decided(),
            self._sessions.take_progress(),
            self.expectations.take_warnings(self._sessions.take_warnings()),
            self._transitions.take_failed(),
            self._adoption.take(),
            self._workers.take_offered(),
        )

    def take_changes(self) -> Changes:
        """Return what the store must write; see `JobTable.take_changes`."""
        self._attempts.begin_commit()
        self._sessions.uncommitted.begin_commit()
        return self._jobs.take_changes()

    def take_ready(self) -> set[int]:
        """Return the jobs that a timer or a commit has made runnable since the last call."""
        ready, self._jobs.ready = self._jobs.ready, set()
        return ready

    def committed(self) -> None:
        """Mark the changes that were taken last as durable."""
        self._jobs.committed()
        self._schedule_table.committed()
        self._attempts.committed()
        self._sessions.uncommitted.committed()

    @property
    def may_go_on(self) -> bool:
        """Whether the next tick may start jobs, or send what the last commit has made durable."""
        polls = self._sessions.uncommitted
        return bool(self._jobs.ready or self._attempts.has_durable or polls.durable)

    @property
    def has_changes(self) -> bool:
        """Whether the store has something to write."""
        return bool(self._jobs.changes)

    @property
    def awaits_commit(self) -> bool:
        """Whether something goes on after the next commit: a job, a schedule, a lease, a poll."""
        polls = self._sessions.uncommitted
        return self._jobs.awaits_commit or self._attempts.needs_commit or bool(polls.new)

    @property
    def awaits_load(self) -> bool:
        """Whether a record or a page must be loaded."""
        return self._loading.is_needed


def _change_nothing(command: commands.Flush, now: int, loaded: Loaded) -> None:
    """The reply to a Flush comes with the next commit."""
