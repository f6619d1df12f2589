"""The committer: it groups the changes that arrive during one commit into the next.

A round has four steps: commit a batch, release what waited for it, prune a little if it is time,
deliver together what the scheduler has requested to load. The loads are done right behind the
commit, or behind the pruning. Nothing else writes to the store. So a load sees exactly the commits
before it, and its results stay valid until they are delivered (see core/loads.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from typing import Any

from schedo.core.changes import Changes
from schedo.core.limits import PAGE_ENTRIES_MAX, PROMOTED_MAX, PROMOTED_MIN, PROMOTING_US
from schedo.core.loads import Load, Needs, PromoteDue
from schedo.core.model import Job, LeaseKey
from schedo.engine.clock_changes import ClockChanges
from schedo.engine.command_queue import QueuedCommand, refuse
from schedo.engine.pacing import PRUNE_PAUSE_S, PrunePace, Pruning, StepSize
from schedo.errors import SchedoError
from schedo.store.base import Retention, Store

# For how long changes that nothing waits for wait for others. It bounds what a crash repeats
# (docs/adr/0021).
COMMIT_DELAY_S = 0.012
# An attempt that ends so shortly before takes the commit with it, and saves the timer's wake-up.
COMMIT_SLACK_S = 0.003


@dataclass(slots=True)
class Batch:
    """The changes of one commit, and what the loop does once they are durable."""

    changes: Changes
    loads: list[Load] = field(default_factory=list)
    later: Set[int] = frozenset()  # jobs that change while this batch is written
    is_awaited: bool = False  # it lets something go on in the next turn
    replies: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    # Commands that are applied again when their loads are delivered.
    unloaded: list[tuple[QueuedCommand, Needs]] = field(default_factory=list)
    ended: list[LeaseKey] = field(default_factory=list)
    finals: list[Job] = field(default_factory=list)  # copies, for callers that wait for the end
    last_id: int = 0  # the batch, or an earlier one, has all jobs up to this id


class Committer:
    """The only writer of the store; the engine loop starts and cancels `run`."""

    def __init__(
        self,
        store: Store,
        take_batch: Callable[[], Batch],
        release: Callable[[Batch], None],
        deliver: Callable[[list[tuple[Load, Any]]], None],
        clock_changes: ClockChanges,
    ) -> None:
        self._store = store
        self._take_batch = take_batch
        self._release = release
        self._deliver = deliver
        self._clock_changes = clock_changes
        self._monitor = clock_changes.monitor
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self.pause = asyncio.Lock()  # `run` begins no round while another task holds it
        self._timer: asyncio.TimerHandle | None = None
        self._prunings: list[Pruning] = []
        self._pace = PrunePace()
        self._promoted = StepSize(PAGE_ENTRIES_MAX, PROMOTED_MIN, PROMOTED_MAX, PROMOTING_US)
        self._committed_at = 0

    def wake(self) -> None:
        """Start a round: there is something to commit, to release, to prune or to load."""
        self._wake.set()

    def wake_later(self, *, has_ended: bool = False) -> None:
        """Start a round within COMMIT_DELAY_S: nothing waits for the changes.

        So the start and the end of a short attempt share one commit, and so do their neighbours.
        has_ended: attempts have just ended, and none has begun.
        """
        if self._timer is None:
            self._timer = self._loop.call_later(COMMIT_DELAY_S, self.wake)
        elif has_ended and self._timer.when() - self._loop.time() < COMMIT_SLACK_S:
            self.wake()

    async def prune(self, retention: Retention) -> int:
        """Delete all jobs and idempotency records past their retention, a few after some commits.

        Return the number of deleted records and of pages that went back to the file system, in one
        sum.
        """
        loop = self._loop
        pruning = Pruning(retention, loop.create_future())
        self._prunings.append(pruning)
        try:
            while not pruning.done.done():
                if self._timer is None and self._pace.is_due(loop.time()):
                    self.wake()
                await asyncio.wait([pruning.done], timeout=PRUNE_PAUSE_S)
        finally:
            self._prunings.remove(pruning)
        return pruning.done.result()

    async def run(self) -> None:
        """Do rounds until cancelled; raise StoreError when a commit or a load fails."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            async with self.pause:
                await self.round()

    async def round(self) -> None:
        """Commit the changes, release what waited for them, deliver the loads."""
        self._monitor.round_began()
        try:
            # The clock first: its step is saved while no batch is being written, so that the
            # store and memory shift their instants between the same two commits.
            await self._clock_changes.follow()
            await self._monitor.ends.end_doubt(self._store)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            batch = self._take_batch()
            # The store runs calls in their order, so these loads follow the commit without a pause,
            # while the next turn runs. A step of pruning goes between the two: after a load, it
            # could delete what that has found.
            loading = [] if self._prunings else self._begin_loads(batch.loads)
            try:
                await self._commit(batch)
                loading = loading or self._begin_loads(batch.loads)
                if loading:
                    self._deliver([*zip(batch.loads, await _results(loading), strict=True)])
            except BaseException:
                for task in loading:
                    task.cancel()
                await asyncio.gather(*loading, return_exceptions=True)
                raise
        finally:
            self._monitor.round_ended()

    async def _commit(self, batch: Batch) -> None:
        """Commit the batch, release what waited for it, and prune a little if it is time."""
        is_pruning = bool(self._prunings)
        changed = batch.changes.jobs.values() if is_pruning else ()
        ended = {job.id for job in changed if job.is_final}
        if batch.changes:
            observer = self._monitor.observer
            notes = observer and observer.note(batch.changes, batch.ended)
            try:
                await self._store.commit(batch.changes)
            except BaseException:
                self._monitor.ends.doubt(batch.changes)
                raise
            self._committed_at = self._monitor.clock.now()
            self._monitor.committed(batch.changes, batch.last_id)
            if observer is not None and notes:
                observer.durable(notes, self._monitor.clock.now())
            self._pace.committed(len(ended), self._loop.time())
        self._release(batch)
        # If a job of this batch has ended and then changed again, the next commit needs its row:
        # pruning waits.
        if is_pruning and ended.isdisjoint(batch.later):
            await self._prune()

    async def _prune(self) -> None:
        """Take a step; an error goes to the caller of `prune` and does not fail the round."""
        clock, loop = self._monitor.clock, self._loop
        pruning = next((each for each in self._prunings if not each.done.done()), None)
        if pruning is None or not self._pace.is_due(loop.time()):
            return
        began_at = clock.now()
        try:
            count = await self._store.prune(began_at, pruning.retention, self._pace.size.rows)
        except SchedoError as error:
            refuse(pruning.done, error)
            return
        self._pace.stepped(clock.now() - began_at, loop.time())
        pruning.count += count
        if not count and not pruning.done.done():
            pruning.done.set_result(pruning.count)
        elif self._pace.is_due(loop.time()):
            self.wake()

    def _begin_loads(self, loads: list[Load]) -> list[asyncio.Task[Any]]:
        """Begin the loads, which run one after the other without a switch to this thread."""
        return [self._loop.create_task(self._load(load)) for load in loads]

    async def _load(self, load: Load) -> Any:
        """Do the load. PromoteDue takes about PROMOTING_US, because commits wait for it."""
        if not isinstance(load, PromoteDue):
            return await self._store.load(load)
        clock = self._monitor.clock
        began_at = clock.now()
        promoted = await self._store.load(replace(load, limit=self._promoted.rows))
        # It may have begun while the commit before it was under way.
        self._promoted.adapt(clock.now() - max(began_at, self._committed_at))
        return promoted


async def _results(loading: list[asyncio.Task[Any]]) -> list[Any]:
    """Return the results of the loads; when all have ended, raise the first error."""
    await asyncio.wait(loading)
    return [task.result() for task in loading]
