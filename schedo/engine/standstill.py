"""The standstill of an engine: no turn runs, no commit is under way, and everything is durable.

A freeze ends in one, so that another process can open the store. A change of the shards, which
happens between servers that share a store, is one for some milliseconds: the engine drops its
scheduler and recovers from the store, and what arrives meanwhile waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from schedo.clock import Clock
from schedo.core.commands import Command, CompletePolls, Flush, TransferAttempts
from schedo.core.leases import AttemptResult
from schedo.core.scheduler import Scheduler
from schedo.engine.command_queue import CommandQueue, QueuedCommand
from schedo.engine.committer import Committer
from schedo.engine.dispatch import Dispatcher
from schedo.engine.failures import MUST_END, interrupted
from schedo.engine.health import LoopMonitor
from schedo.engine.turn_notes import TurnNotes
from schedo.engine.unanswered import Unanswered
from schedo.engine.worker_polls import KeepsPoll, WorkerPolls, keep_none
from schedo.errors import SchedoError, StoreError, Unavailable
from schedo.store.base import Snapshot, Store

T = TypeVar("T")
_LAST_ROUNDS_MAX = 10  # what is left then has no reply, as after a crash
RESTART_S = 1.0  # for so long, requests wait for a change of the shards
DOUBT = "this server does not know whether it still owns its jobs"
# For those who run the server.
DOUBT_CAUSES = (
    f"{DOUBT}: its heartbeats had no response of the database in time, or its session there has"
    " ended; if a busy machine is the cause, give a longer --failover-timeout"
)
_IN_DOUBT = Unavailable(f"{DOUBT}; try again soon")


class Standstill(CommandQueue):
    """The part of the engine's loop that brings it to a standstill."""

    clock: Clock
    monitor: LoopMonitor
    scheduler: Scheduler
    dispatcher: Dispatcher
    notes: TurnNotes
    polls: WorkerPolls
    is_frozen: bool
    is_sure: Callable[[], bool] | None
    beat_error: Callable[[], StoreError | None]
    _store: Store
    _committer: Committer
    _unanswered: Unanswered
    _is_open: bool
    _on_fatal: Callable[[Exception], None]
    _doubts = _doubts_ended = 0

    # Freezing, for another process that opens the store next.

    async def freeze(self, worker: str) -> None:
        """Make everything durable, take no more turns, and close the store with its log and lock.

        The store then says that `worker` has the attempts that this server's workers run. What
        arrives from now on waits for `reopen`, or for `take_late`.
        """
        await self._hold_rounds()
        self.is_frozen = True
        try:
            await self._settle(TransferAttempts(worker, self.dispatcher.waiting))
        except Exception as error:
            self.is_frozen = False
            self._committer.pause.release()
            self.fail_and_recover(error)
            raise
        self._fail_waiting(Unavailable("the server passes its store to a new process"))
        try:
            await self.monitor.ends.save(self._store, self.clock.now())
            await self._store.close(keep_log=True)
        except Exception:
            await self.reopen()
            raise

    async def reopen(self) -> None:
        """Open the store again and recover, because the other process has died or given up."""
        try:
            await self._recover(await self._store.open())
        except Exception as error:
            self._fail(error)
            if not isinstance(self.failure, MUST_END):
                self._on_fatal(error)
            raise
        finally:
            self.is_frozen = False
            self._late_progress.clear()
            self._committer.pause.release()

    # A change of what the store gives to this server.

    async def restart(self, change: Callable[[], Awaitable[object]]) -> None:
        """Recover from the store as it is after `change`; requests wait.

        change: runs at the standstill. If it fails, or the recovery, the engine recovers as after a
        failed commit.
        """
        await self._hold_rounds(keeps_idle_polls=True)
        timer = self.loop.call_later(RESTART_S, self._refuse_waiting)
        try:
            last_poll = await self._settle(Flush())
            moving = Unavailable("the server takes over jobs of another one")
            idle = {*self.scheduler.idle_polls()}
            self._fail_waiting(moving, lambda id_: id_ > last_poll or id_ in idle)
            self.dispatcher.waiting |= self.scheduler.unsent
            await change()
            await self._recover(await self._store.snapshot())
        except Exception as error:
            self.fail_and_recover(error)
        finally:
            timer.cancel()
            self._committer.pause.release()

    def _refuse_waiting(self) -> None:
        self.failure = Unavailable("the server still takes over jobs of another one")
        self._refuse_queued(self.failure)

    # Doubt whether another server has the shards of this one.

    def suspend(self) -> None:
        """Refuse what waits for a reply, and what comes, until `resume`; attempts go on."""
        if self.failure is None:
            self.failure = _IN_DOUBT
            self._refuse_queued(_IN_DOUBT)
            self._unanswered.refuse(interrupted(_IN_DOUBT))
            self._doubts += 1

    async def end_doubt(self) -> None:
        """Return once all is durable that `suspend` has refused to confirm.

        The scheduler has it already, and the store does not show it yet. So what is looked for in
        the store, such as the key of a request, could be made a second time before.
        """
        doubts = self._doubts
        if doubts != self._doubts_ended:
            await self.flush()
            self._doubts_ended = doubts

    async def look_up(self, find: Callable[[], Awaitable[T]]) -> T:
        """Return what is found in the store, as of now for what the caller does without a pause.

        If the engine has recovered meanwhile, it looks again: the shard of a key may have been
        another server's, and the commit of an earlier request may have been on its way.
        """
        while True:
            scheduler = self.scheduler
            await self.end_doubt()
            found = await find()
            if self.scheduler is scheduler:
                return found

    def resume(self) -> None:
        """Take requests again after `suspend`."""
        if self.failure is _IN_DOUBT:
            self.failure = None
            self.wake()

    def failure_reasons(self) -> list[str]:
        """Return, as sentences for those who run the server, why it carries out no changes."""
        is_unsure = self.is_sure is not None and not self.is_sure()
        if self.failure is _IN_DOUBT or (self.failure is None and is_unsure):
            error = self.beat_error()
            return [DOUBT_CAUSES if error is None else f"{DOUBT}: its heartbeats fail: {error}"]
        return [] if self.failure is None else [str(self.failure)]

    # The standstill.

    async def _hold_rounds(self, *, keeps_idle_polls: bool = False) -> None:
        """End polls, and let the committer begin no round until its pause is released.

        If a round fails meanwhile, the engine recovers: this raises the error and holds nothing.
        """
        self.enqueue(CompletePolls(keeps_idle=keeps_idle_polls))
        await self.flush()  # turns go on meanwhile, so that little is left to the last commit
        await self._committer.pause.acquire()
        if not self._is_open:
            self._committer.pause.release()
            raise self.failure or Unavailable("the server has stopped")

    async def _settle(self, last: Command[None]) -> int:
        """Apply what has come, and then the last command; take no more turns, and commit it all.

        Return the id of the last poll that has come before; later ones are not applied.
        """
        last_poll = self.polls.last_id
        now, items = self.clock.now(), self._inbox.drain()
        try:
            while items:
                self._apply_items(items, now)
        finally:
            self._inbox.put_back(items)  # after a bug, they run with the new scheduler
        self.scheduler.apply(last, now)
        self._take_notes()
        self._is_open = False
        self.clock.arm(None)
        for _ in range(_LAST_ROUNDS_MAX):
            if not (self._unanswered or self.scheduler.has_changes):
                break
            await self._committer.round()
            self._take_notes()  # of the commands whose loads it has delivered
        return last_poll

    def _take_notes(self) -> None:
        self.notes.take(self.scheduler, self.clock.now())
        self.notes.log_failed()
        self.notes.decisions.release()

    # Of the loop.

    def fail_and_recover(self, error: Exception) -> None:
        """Drop the scheduler and recover."""
        raise NotImplementedError

    def _apply_items(self, items: list[QueuedCommand | AttemptResult], now: int) -> bool:
        raise NotImplementedError

    def _fail(self, cause: Exception) -> None:
        raise NotImplementedError

    def _fail_waiting(self, error: SchedoError, keeps: KeepsPoll = keep_none) -> None:
        raise NotImplementedError

    async def _recover(self, snapshot: Snapshot) -> None:
        raise NotImplementedError
