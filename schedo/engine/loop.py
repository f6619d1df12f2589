"""The engine's loop: commands and due instants in, leases and changes out.

    commands -> tick(now) -> leases, stops -> commit -> arm the clock

A turn never waits. It takes all commands there are, lets the scheduler decide, and dispatches what
was decided. The committer makes it durable beside it.

The engine recovers in one way, at a start as after a failed commit: it builds a new scheduler under
a new epoch from a snapshot of the store, the attempts that workers still run and the results that
are not yet durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from typing import Any

from schedo.core.leases import AttemptResult, Lease
from schedo.core.loads import Load
from schedo.core.model import Job, LeaseKey
from schedo.core.scheduler import Scheduler
from schedo.core.value_limits import fit_report, is_refused
from schedo.core.worker_pool import WorkerPool, WorkerSpec
from schedo.engine.channel import Channel
from schedo.engine.clock_changes import ClockChanges, tick
from schedo.engine.command_queue import Command, QueuedCommand, refuse
from schedo.engine.committer import Batch, Committer
from schedo.engine.dispatch import Dispatcher, Transport
from schedo.engine.failures import MUST_END, Bugs, interrupted, log_fatal
from schedo.engine.health import LoopMonitor
from schedo.engine.progress import ProgressLog
from schedo.engine.recovery import Reconciliation
from schedo.engine.worker_messages import Progress
from schedo.errors import SchedoError, StaleLease, StoreRefused, Unavailable
from schedo.store.base import Snapshot, Store

log = logging.getLogger("schedo.engine")

INBOX_MAX = 100_000
RECOVERY_PAUSE_S = 1.0
SWITCH_INTERVAL_S = 0.0001


class EngineLoop:
    """Owns the scheduler and everything that touches it, in one event loop."""

    def __init__(
        self, store: Store, make_scheduler: Callable[[Snapshot], Scheduler], monitor: LoopMonitor
    ) -> None:
        self._store = store
        self.clock = monitor.clock
        self.monitor = monitor
        self._timekeeping = ClockChanges(store, monitor, self._follow_clock)
        self._make_scheduler = make_scheduler
        self._is_open = False
        self._is_turn_due = False
        self._replies: list[tuple[asyncio.Future[Any], Any]] = []
        self.progress = ProgressLog()
        self.dispatcher = Dispatcher(store.load_payload, self.report)
        self._tracked_replies: dict[asyncio.Future[Any], None] = {}  # of commands that acted
        self.waiters: dict[int, list[asyncio.Future[Job]]] = {}
        # The worker of the last server that may still run the attempt, or None.
        self.expect_worker: Callable[[Lease], tuple[WorkerSpec, Transport] | None] = _expect_nobody
        self.on_ended: Callable[[LeaseKey], None] = lambda key: None
        self.cordoned: set[str] = set()  # the workers that a person wants to get no more
        self.on_recovered: Callable[[], None] = lambda: None
        self.on_fatal: Callable[[BaseException], None] = log_fatal
        self.failure: SchedoError | None = Unavailable("the server is starting")
        self._bugs = Bugs()

    # Life.

    async def start(self) -> None:
        """Take the store, recover, and begin to turn; raise what the store raises."""
        # The loop and the thread that commits take turns at the interpreter; at the usual 5 ms a
        # commit's few statements would wait for a busy loop five times, and a timer for a commit.
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        self.loop = asyncio.get_running_loop()
        self._inbox: Channel[QueuedCommand | Command | AttemptResult] = Channel(
            self.wake, INBOX_MAX
        )
        self._committer = Committer(
            self._store, self._take_batch, self._release, self._deliver, self._timekeeping
        )
        self.prune = self._committer.prune
        self.clock.start(self._turn, self._committer.wake)
        try:
            await self._recover(await self._store.open())
        except BaseException:
            self.clock.close()
            await self._store.close()
            raise
        self._start_journal()

    async def stop(self) -> None:
        """Make everything durable, then stop turning and let go of the store."""
        with contextlib.suppress(SchedoError):  # a store that failed keeps what it has
            await self.flush()
        self._is_open = False
        self.failure = Unavailable("the server has stopped")
        self._runner.cancel()
        await asyncio.gather(self._runner, return_exceptions=True)
        await self.dispatcher.close()
        self.clock.close()
        self._fail_waiting(interrupted(self.failure))
        self._refuse_asked(self.failure)
        await self._store.close()

    # What others call.

    def try_enqueue(self, command: Command, reply: asyncio.Future[Any]) -> None:
        """Let the command act in the next turn; raise at once if that cannot be.

        The reply gets the SchedoError that the command raises, and an answer in any case.
        """
        if self.failure is not None:
            raise self.failure
        self._inbox.try_send(QueuedCommand(command, reply))

    def not_ready_reasons(self) -> list[str]:
        """Return in sentences why jobs are not accepted or would not start in time."""
        why = [] if self.failure is None else [str(self.failure)]
        return why + self.monitor.not_ready_reasons(
            self.clock.now(), None if why else self.scheduler
        )

    @property
    def uncommitted(self) -> int:
        """How many jobs wait to be made durable, those on their way not counted."""
        return len(self.scheduler.jobs.changes.jobs) if self._is_open else 0

    def enqueue(self, command: Command) -> None:
        """Let the command act in the next turn, however long the store fails until then."""
        self._inbox.send(command)

    def record_result(self, report: AttemptResult) -> None:
        """Keep a live lease's result for a recovery; called before anything else can fail."""
        if self.scheduler.attempts.is_live(report.key):
            self.dispatcher.record_result(report)

    def wake(self) -> None:
        """Turn soon."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self.loop.call_soon(self._turn)

    def reply(self, reply: asyncio.Future[Any], value: Any) -> None:
        """Answer once all changes made so far are durable."""
        self.track_reply(reply)
        self._replies.append((reply, value))

    def track_reply(self, reply: asyncio.Future[Any]) -> None:
        """Note that a command has begun to act: if the scheduler is dropped, so is its reply."""
        if reply not in self._tracked_replies:
            self._tracked_replies[reply] = None
            reply.add_done_callback(self._tracked_replies.pop)

    async def flush(self) -> None:
        """Return once all commands sent so far have acted and all changes are durable."""
        reply: asyncio.Future[None] = self.loop.create_future()
        self.try_enqueue(lambda scheduler, now: self.reply(reply, None), reply)
        await reply

    def attach(self, offer: WorkerSpec, transport: Transport) -> None:
        """Add a worker, or change what it offers."""

        def attach(scheduler: Scheduler, now: int) -> None:
            self.dispatcher.workers[offer.id] = (offer, transport)
            scheduler.attach(offer)
            if offer.id in self.cordoned:
                scheduler.workers.cordon(offer.id, True)

        self._inbox.send(attach)

    async def ask(self, worker_id: str, count: int) -> None:
        """Let the worker have at most so many more; return when it was given what there was."""
        turned: asyncio.Future[None] = self.loop.create_future()

        def ask(scheduler: Scheduler, now: int) -> None:
            if not turned.done():  # else it has hung up
                scheduler.workers.poll(worker_id, count)
                turned.set_result(None)

        self.try_enqueue(ask, turned)
        await turned

    @property
    def workers(self) -> WorkerPool:
        """The attached workers; nobody while the store fails."""
        return self.scheduler.workers if self._is_open else WorkerPool()

    def is_live(self, key: LeaseKey) -> bool:
        """Whether the lease holds its job."""
        return self._is_open and self.scheduler.attempts.is_live(key)

    def close_worker(self, worker_id: str) -> None:
        """Give the worker no more; what it runs goes on."""
        self._inbox.send(lambda scheduler, now: scheduler.workers.close(worker_id))

    def detach(self, worker_id: str, message: str) -> None:
        """Forget the worker; what it still held is lost."""

        def detach(scheduler: Scheduler, now: int) -> None:
            self.dispatcher.workers.pop(worker_id, None)
            for key in scheduler.detach(worker_id, message, now, self.dispatcher.is_waiting):
                self.dispatcher.record_loss(key, message)
                self._ended(key)

        self._inbox.send(detach)

    def note_progress(self, progress: Progress) -> None:
        """Keep what is said of an attempt, while it runs."""
        if self.is_live(progress.key):
            self.progress.note(progress, self.clock.now())

    def report(self, report: AttemptResult) -> None:
        """Take in how an attempt ended."""
        self._inbox.send(report)

    def _ended(self, key: LeaseKey) -> None:
        self.progress.forget(key.job_id)
        if self._is_open:  # while it recovers, nobody can be told how the job stands
            self.on_ended(key)

    def _settle(self, scheduler: Scheduler, report: AttemptResult, now: int) -> None:
        report = fit_report(report)
        if is_refused(report):
            log.error("the report of %s is refused: %s", report.key, report.outcome)
        self.record_result(report)
        try:
            scheduler.report(report, now)
        except StaleLease as error:
            self.dispatcher.record_refusal(report.key)
            log.warning("%s", error)
        else:
            self._ended(report.key)

    # The turn.

    def _turn(self) -> None:
        self._is_turn_due = False
        if not self._is_open:
            return
        now = self.clock.now()
        self.monitor.turn_began(now)
        scheduler = self.scheduler
        items = iter(self._inbox.drain())
        try:
            for each in items:
                if isinstance(each, QueuedCommand):
                    self._answer(each, scheduler, now)
                    if self.monitor.is_turn_long(now):
                        break  # the rest acts in the next turn, after what is due by then
                elif isinstance(each, AttemptResult):
                    self._settle(scheduler, each, now)
                else:
                    each(scheduler, now)
            self._inbox.put_back(list(items))
            wake_at = tick(scheduler, self.clock, now)
            leases, ready = scheduler.attempts.take_leases(), scheduler.take_ready()
            self.dispatcher.dispatch(leases)
            for stop in scheduler.attempts.take_stops():
                self.dispatcher.stop(stop)
        except Exception as error:
            self._inbox.put_back(list(items))  # the new scheduler hears of them
            self.break_off(error)
            return
        if scheduler.has_pending_work or self._replies or self.dispatcher.deferred:
            self._committer.wake()
        self.monitor.started(leases, scheduler.jobs, ready, now := self.clock.now())
        self._sleep_until(wake_at, now)

    def _answer(self, asked: QueuedCommand, scheduler: Scheduler, now: int) -> None:
        self.track_reply(asked.reply)
        try:
            asked.command(scheduler, now)
        except SchedoError as error:
            refuse(asked.reply, error)

    def _sleep_until(self, at: int | None, now: int) -> None:
        self.monitor.expect_turn(at, now)
        if at is not None and at <= now:
            self.wake()
        else:
            self.clock.arm(at)

    def _follow_clock(self, step_us: int) -> None:
        self.scheduler.follow_clock(step_us)
        self.wake()

    # The journal's side.

    def _take_batch(self) -> Batch:
        scheduler = self.scheduler
        batch = Batch(scheduler.take_changes(), scheduler.take_loads(), scheduler.jobs.changes)
        batch.replies, self._replies = self._replies, []
        batch.leases, batch.ended = self.dispatcher.take()
        if self.waiters:
            jobs = batch.changes.jobs.values()
            batch.finals = [job.copy() for job in jobs if job.is_final and job.id in self.waiters]
        return batch

    def _release(self, batch: Batch) -> None:
        self.scheduler.committed()
        self.dispatcher.forget(batch.ended)
        for reply, value in batch.replies:
            if not reply.done():
                reply.set_result(value)
        for lease in batch.leases:
            self.dispatcher.dispatch_deferred(lease)
        self.monitor.started_once(batch.leases, self.scheduler.jobs)
        if batch.changes:
            self.wake()  # what is durable now may run, and there is room for more
        for job in batch.finals:
            for waiter in self.waiters.pop(job.id, ()):
                if not waiter.done():
                    waiter.set_result(job)

    def _deliver(self, loaded: list[tuple[Load, Any]]) -> None:
        self.scheduler.deliver(loaded, self.clock.now())
        self.wake()

    async def _run_committer(self) -> None:
        """Run the journal; when it or a turn fails, recover and run it again."""
        while not isinstance(self.failure, MUST_END):
            try:
                if not self._is_open:
                    await self._recover(await self._store.snapshot())
                await self._committer.run()
            except Exception as error:
                was_open = self._is_open
                self._fail(error)
                if not was_open:
                    await asyncio.sleep(RECOVERY_PAUSE_S)

    def _start_journal(self) -> None:
        self._runner = self.loop.create_task(self._run_committer(), name="schedo journal")

    # Failure and recovery.

    def break_off(self, error: Exception) -> None:
        """A bug in a turn, or a store that is gone: nothing in memory can be trusted."""
        self._fail(error)
        self._runner.cancel()
        self._start_journal()

    def _fail(self, cause: Exception) -> None:
        self._is_open = False
        if isinstance(cause, StoreRefused) and self.dispatcher.refuse_reports(cause.jobs):
            log.error("%s; the jobs that brought it fail", cause)
            error: SchedoError = cause
        else:
            error = self._bugs.judge(cause, self.loop.time())
        self.monitor.failed(error, self.failure)
        self.failure = error
        self._fail_waiting(interrupted(error))
        if isinstance(error, MUST_END):
            self._refuse_asked(error)  # there will be no other turn
            self.on_fatal(error)

    def _fail_waiting(self, error: SchedoError) -> None:
        self._replies = []
        for reply in list(self._tracked_replies):
            if not reply.done():
                reply.set_exception(error)

    def _refuse_asked(self, error: SchedoError) -> None:
        for each in self._inbox.drain():
            if isinstance(each, QueuedCommand):
                refuse(each.reply, error)

    async def _recover(self, opening: Snapshot) -> None:
        """Make a new scheduler of the store, the workers' attempts and what they reported."""
        opening = await self._timekeeping.began(opening)
        scheduler = self.scheduler = self._make_scheduler(opening)
        scheduler.restore(opening.queues, opening.ready_keys, opening.blocked)
        for offer, _ in self.dispatcher.workers.values():
            scheduler.attach(offer)
        for name in self.cordoned:
            scheduler.workers.cordon(name, True)
        self.dispatcher.recover(scheduler.attempts)
        running = Reconciliation(self._store, self.dispatcher, scheduler, self.expect_worker)
        await running.run(self.clock.now(), was_killed=opening.was_killed)
        for report in self.dispatcher.results():
            self._settle(scheduler, report, self.clock.now())
        await self._committer.round()
        self.dispatcher.recovered()
        self.progress.forget_all_but(scheduler.attempts.runs)
        self._is_open = True
        self.failure = None
        self.on_recovered()
        self.wake()


def _expect_nobody(lease: Lease) -> None:
    return None
