"""The engine's loop: it turns commands and due instants into leases and changes.

    commands -> tick(now) -> leases, stops -> commit -> arm the clock

A turn never waits. It runs all queued commands, lets the scheduler decide, and dispatches the
leases and stop requests. The committer writes the changes concurrently.

Recovery is the same at a start and after a failed commit: the loop builds a new scheduler under a
new epoch from a snapshot of the store, the attempts that workers still run, and the results that
are not yet durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from schedo.core.commands import Command
from schedo.core.leases import AttemptResult, Completed
from schedo.core.loads import NOTHING_LOADED, Load, Loaded, Needs
from schedo.core.scheduler import Scheduler
from schedo.core.worker_messages import Progress
from schedo.engine.clock_changes import ClockChanges, tick
from schedo.engine.command_queue import QueuedCommand, refuse
from schedo.engine.committer import Batch, Committer
from schedo.engine.dispatch import Dispatcher
from schedo.engine.failures import MUST_END, Bugs, interrupted
from schedo.engine.health import LoopMonitor
from schedo.engine.recovery import Reconciliation, restore
from schedo.engine.turn_end import FEW_STARTS, TurnEnd
from schedo.engine.turn_notes import TurnNotes
from schedo.engine.unanswered import Unanswered
from schedo.engine.waiters import EndWaiters
from schedo.engine.worker_polls import KeepsPoll, RemoteTransport, WorkerPolls, keep_none
from schedo.engine.workers_elsewhere import WorkersElsewhere
from schedo.errors import SchedoError, StaleLease, StoreError, Unavailable
from schedo.store.base import Snapshot, Store

log = logging.getLogger("schedo.engine")
RECOVERY_PAUSE_S = 1.0
_STARTS_MAX = 3  # of a server that others believe to be silent, because its machine is busy
SWITCH_INTERVAL_S = 0.0001


class EngineLoop(TurnEnd):
    """Owns the scheduler and everything that touches it; all of it runs in one event loop."""

    def __init__(
        self,
        store: Store,
        make_scheduler: Callable[[Snapshot], Scheduler],
        monitor: LoopMonitor,
        on_fatal: Callable[[Exception], None],
    ) -> None:
        super().__init__()
        self._store = store
        self.clock = monitor.clock
        self.monitor = monitor
        self._clock_changes = ClockChanges(store, monitor, self._follow_clock)
        self._make_scheduler = make_scheduler
        self._on_fatal = on_fatal
        self._is_open = self._is_dispatching = self.is_frozen = False
        self.turn_at = 0  # the instant of the commands that are being applied
        # Whether this server may start jobs. None: always, because no other one can have its jobs.
        self.is_sure: Callable[[], bool] | None = None
        self.beat_error: Callable[[], StoreError | None] = lambda: None  # why it is not sure
        # Whether other servers run jobs of the same queues, and share their limits.
        self.shares_limits: Callable[[], bool] | None = None
        self.adopt_minutes: Callable[[], Awaitable[list[tuple[int, str]]]] | None = None
        self.on_decided: Callable[[], None] = _ignore  # called after such decisions of a cluster
        self.on_recovered: list[Callable[[], None]] = []  # called before the first turn after it
        self._unanswered = Unanswered()
        self.polls = WorkerPolls(self.send, self.enqueue, store.load_payload)
        remote = RemoteTransport(self._apply_now)
        self.dispatcher = Dispatcher(store.load_payload, self.report, remote)
        self.notes = TurnNotes(self.dispatcher)
        monitor.ends.on_refused = self._note_refused
        self.waiters = EndWaiters()
        self.workers_elsewhere = WorkersElsewhere()
        self.bugs = Bugs(self.dispatcher.refuse_results)

    @property
    def unserved(self) -> dict[str, int]:
        """How many due jobs in memory no connected worker can run, by task."""
        return self.workers_elsewhere.count_unserved(self.scheduler.unserved())

    # Life.

    async def start(self) -> None:
        """Open the store, recover, and start the turns; raise the errors of the store."""
        # The loop and the thread that commits share the interpreter. At the default 5 ms the few
        # statements of a commit would wait for a busy loop five times, and a timer for a commit.
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        self._committer = Committer(
            self._store, self._take_batch, self._release, self._deliver, self._clock_changes
        )
        self.prune = self._committer.prune
        self.clock.start(self._turn, self._committer.wake)
        try:
            await self._begin()
        except BaseException:
            self.clock.close()
            await self._store.close()
            raise
        self._start_committer()

    async def _begin(self) -> None:
        """Open the store and recover; if other servers take its shards meanwhile, once more."""
        snapshot = await self._store.open()
        for _ in range(_STARTS_MAX if self.is_sure is not None else 0):
            try:
                await self._recover(snapshot)
                return
            except StoreError as error:
                log.warning("the start begins again: %s", error)
                snapshot = await self._store.snapshot()
        await self._recover(snapshot)

    async def stop(self) -> None:
        """Make everything durable, then stop the turns and close the store."""
        if not self.is_frozen:
            with contextlib.suppress(SchedoError):  # a store that has failed gets no more changes
                await self.flush()
        self._is_open = False
        self.failure = Unavailable("the server has stopped")
        self._runner.cancel()
        await asyncio.gather(self._runner, return_exceptions=True)
        await self.dispatcher.close()
        self.clock.close()
        self._fail_waiting(interrupted(self.failure))
        self._refuse_queued(self.failure)
        self.waiters.fail_all(self.failure)
        await self.monitor.ends.save(self._store, self.clock.now())
        await self._store.close()

    # Queries.

    def not_ready_reasons(self) -> list[str]:
        """Return, as sentences, why jobs are not accepted or would not start in time."""
        reasons = self.failure_reasons()
        return reasons + self.monitor.not_ready_reasons(
            self.clock.now(), None if reasons else self.scheduler
        )

    @property
    def is_open(self) -> bool:
        """Whether turns are taken."""
        return self._is_open

    @property
    def uncommitted(self) -> int:
        """The number of changed jobs that the next commit will write."""
        return len(self.scheduler.uncommitted) if self._is_open else 0

    def note_progress(self, progress: Progress) -> None:
        """Log the progress of an attempt while it runs."""
        if self._is_open and self.scheduler.is_live(progress.key):
            self.notes.progress.note(progress, self.clock.now())
        elif self.is_frozen:
            self._note_late(progress)

    # The turn.

    def _turn(self) -> None:  # noqa: PLR0912  # hot: no further call in a turn
        self._is_turn_due = False
        if not self._is_open:
            self._has_late_items.set()
            if not self.is_frozen:
                self.dispatcher.note_late(self._hold_back_commands(), self.clock.now())
            return
        now, step_us = self.clock.now(), self.clock.step_us()
        self.turn_at = now
        self.monitor.turn_began(now)
        must_decide, self._must_decide = self._must_decide, False
        items, awaited = self._inbox.drain(), 0
        try:
            is_quiet = self._apply_items(items, now)
            # If attempts have ended and no job waits for their slots, nothing is left to decide.
            # New jobs are decided about when they are durable: their commit wakes the loop.
            must_decide |= not is_quiet or self.scheduler.awaits_slots
            if must_decide or step_us or self.monitor.is_turn_due(now):
                if self.is_sure is None:
                    awaited = self._decide(now, step_us)
                elif self.is_sure():
                    awaited = self._decide(now, step_us)
                    self.on_decided()
                else:  # another server may have the shards of this one
                    self._must_decide = True
            was_ended, self._rest = self._rest is None, (now, step_us, is_quiet)
            if was_ended and 0 < awaited <= FEW_STARTS:
                self.loop.call_soon(self._follow_starts, context=self._context)
            else:
                self._end_turn()
        except Exception as error:
            self._inbox.put_back(items)  # they run with the new scheduler
            self.fail_and_recover(error)
            return
        self._inbox.put_back(items)

    def _apply_items(self, items: list[QueuedCommand | AttemptResult], now: int) -> bool:
        """Apply the items and remove them from the list; return whether they make nothing due."""
        scheduler, count, is_quiet = self.scheduler, 0, bool(items)
        # Results before timers: a result that has arrived counts, even if its timeout is due now.
        try:
            for count, item in enumerate(items, 1):
                if isinstance(item, AttemptResult):
                    is_quiet = self._apply_result(scheduler, item, now) and is_quiet
                    continue
                is_quiet = is_quiet and not item.command.makes_due
                self._apply(item, now)
                if count < len(items) and self.monitor.is_turn_long(now):
                    break  # the other commands run in the next turn, after its timers
        finally:
            del items[:count]
        return is_quiet

    def _decide(self, now: int, step_us: int) -> int:
        """Handle what is due, send leases and stops; return how many leases or polls that are."""
        scheduler = self.scheduler
        tick(scheduler, now, step_us)
        leases, ready = self.monitor.mark(scheduler.take_leases()), scheduler.take_ready()
        self._is_dispatching = True
        self.dispatcher.dispatch(leases, scheduler.take_stops())
        self._is_dispatching = False
        replies = scheduler.take_replies(now)
        self.polls.complete(replies)
        self.monitor.started(leases, scheduler, ready)
        self.monitor.expect_turn(None, now)
        self._must_arm = True
        return max(len(leases), len(replies))

    def _apply_now(self, command: Command[None]) -> None:
        """Apply a command of a transport: within a turn at once, else in the next one."""
        if self._is_dispatching:
            self.scheduler.apply(command, self.clock.now())
        else:
            self.enqueue(command)

    def _apply_result(self, scheduler: Scheduler, result: AttemptResult, now: int) -> bool:
        """Apply the result; return whether it only frees a slot, and makes nothing due."""
        try:
            job = scheduler.apply_result(result, now)
        except StaleLease as error:
            self.dispatcher.record_refusal(result.key)
            log.warning("%s", error)
            return False
        return type(result.outcome) is Completed and job.schedule_id is None

    def _apply(  # noqa: C901, PLR0912  # hot: no further call for each command
        self, queued: QueuedCommand, now: int, loaded: Loaded = NOTHING_LOADED
    ) -> None:
        """Apply the command, and reply unless it needs loads first."""
        command, reply = queued.command, queued.reply
        if reply is not None and reply.done() and not command.is_durable:
            return  # the caller has gone
        try:
            value = self.scheduler.apply(command, now, loaded)
            if type(value) is Needs:
                self._unanswered.unloaded.append((queued, value))
                return
            value = queued.finish(value)
        except SchedoError as error:
            if reply is None:
                raise
            refuse(reply, error)
            return
        except Exception:
            if reply is not None:
                # It fails together with the scheduler.
                self._unanswered.replies.append((reply, None))
            raise
        if reply is not None:
            if command.is_durable:
                self._unanswered.replies.append((reply, value))
            else:
                reply.set_result(value)

    def _follow_clock(self, step_us: int) -> None:
        self.scheduler.follow_clock(step_us)
        self.wake()

    # Callbacks of the committer.

    def _take_batch(self) -> Batch:
        self._end_turn()
        scheduler = self.scheduler
        is_awaited = scheduler.awaits_commit
        batch = Batch(scheduler.take_changes(), scheduler.take_loads())
        batch.is_awaited, batch.last_id = is_awaited, scheduler.last_id
        batch.later = scheduler.uncommitted
        self._unanswered.move_to(batch)
        batch.ended = self.dispatcher.take_ended()
        self.notes.begin_commit()
        batch.finals = self.waiters.copy_ended(batch.changes)
        return batch

    def _release(self, batch: Batch) -> None:
        self.scheduler.committed()
        if batch.is_awaited and self.scheduler.may_go_on:
            self.wake()  # the turn comes before the responses, so that jobs start on time
        self.dispatcher.forget(batch.ended)
        self.notes.committed()
        for reply, value in batch.replies:
            if not reply.done():
                reply.set_result(value)
        self.waiters.release(batch.finals, batch.changes.outputs)
        if batch.is_awaited:
            self.wake()  # schedules may fire again, and new jobs may be due

    def _deliver(self, loaded: list[tuple[Load, Any]]) -> None:
        now = self.turn_at = self.clock.now()
        self.scheduler.deliver(loaded, now)
        found: dict[Any, Any] = dict(loaded)
        for queued, _ in self._unanswered.batch.unloaded:
            if self.polls.has_caller(queued.command):  # else it would end the worker's next poll
                self._apply(queued, now, found)
        self.wake()

    async def _run_committer(self) -> None:
        """Run the committer; when it or a turn fails, recover and run it again."""
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

    def _start_committer(self) -> None:
        self._runner = self.loop.create_task(self._run_committer(), name="schedo committer")

    # Failure and recovery.

    def fail_and_recover(self, error: Exception) -> None:
        """Drop the scheduler and recover: after a bug or a lost store its state is unreliable."""
        self._fail(error)
        self._runner.cancel()
        self._start_committer()

    def _fail(self, cause: Exception) -> None:
        self._is_open = self._is_dispatching = False
        self.notes.take(self.scheduler, self.clock.now())
        self.notes.log_failed()
        self.dispatcher.waiting |= self.scheduler.unsent
        error = self.bugs.classify(cause, self.loop.time())
        self.monitor.failed(error, self.failure)
        self.failure = error
        self._fail_waiting(interrupted(error))
        if isinstance(error, MUST_END):
            self._refuse_queued(error)  # no turn follows that could run them
            self._on_fatal(error)

    def _fail_waiting(self, error: SchedoError, keeps: KeepsPoll = keep_none) -> None:
        """Fail the replies to commands whose changes are not durable: the scheduler is dropped.

        keeps: whether a poll waits for the next scheduler, by its id. The others are not applied
        any more: a lease in their response would reach no worker.
        """
        self._unanswered.fail(error)
        self.polls.fail(error, keeps)
        self.keep_queued(lambda queued: self.polls.has_caller(queued.command))

    async def _recover(self, snapshot: Snapshot) -> None:
        """Build a new scheduler from the store, the running attempts and the pending results."""
        self._rest, self._must_arm, step_us = None, False, self.clock.step_us()
        if step_us and hasattr(self, "scheduler"):  # at once: `now` jumps, whatever fails then
            self.scheduler.shift_sessions(step_us)
        snapshot = await self._clock_changes.began(snapshot)  # the store shifts all the others
        scheduler = self.scheduler = self._make_scheduler(snapshot)
        if self.shares_limits is not None and self.shares_limits():
            scheduler.limits.begin()
        restore(scheduler, snapshot, self.dispatcher, self.clock.now())
        # Running attempts come first: without them the results would be refused as stale.
        running = Reconciliation(self._store, self.dispatcher, scheduler)
        await running.run(snapshot, self.clock.now())
        for result, at in self.dispatcher.results():
            self._apply_result(scheduler, result, running.comparable(at, self.clock.now()))
        self.notes.take(scheduler, self.clock.now())
        await self._committer.round()
        await self._store.recovered()
        await self.waiters.recovered(self._store.get_job)
        self.dispatcher.recovered()
        self.notes.progress.keep_only(scheduler.runs)
        scheduler.recovered(self.clock.now(), self.polls.list_open())
        self._is_open, self.failure = True, None
        self._put_back(self.dispatcher.take_late())
        for call in self.on_recovered:
            call()
        self.wake()


def _ignore() -> None:
    """Do nothing: no other server has shards of this store."""
