"""The committer: it groups the changes that arrive during one commit into the next.

A round has five steps: commit a batch, release what waited for it, prune if a caller requested it,
do the loads of the scheduler, deliver their results together. Nothing else writes to the store. So
a load sees exactly the commits before it, and its results stay valid until they are delivered (see
core/loads.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from typing import Any

from schedo.core.changes import Changes
from schedo.core.limits import (
    PAGE_ENTRIES_MAX,
    PROMOTED_MAX,
    PROMOTED_MIN,
    PROMOTING_US,
    PRUNED_MAX,
    PRUNED_MIN,
    PRUNING_US,
)
from schedo.core.loads import Load, Needs, PromoteDue
from schedo.core.model import Job, LeaseKey
from schedo.engine.clock_changes import ClockChanges
from schedo.engine.command_queue import QueuedCommand, refuse
from schedo.errors import SchedoError
from schedo.store.base import Retention, Store

# For how long changes that nothing waits for wait for others. It bounds what a crash repeats
# (docs/adr/0021).
COMMIT_DELAY_S = 0.008


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


@dataclass(slots=True)
class StepSize:
    """How many rows one step writes, such that it takes about `target_us`: commits wait for it."""

    rows: int
    least: int
    most: int
    target_us: int

    def adapt(self, took_us: int) -> None:
        """Halve the next step after a long one; let it grow after a short one."""
        if took_us > self.target_us:
            self.rows = max(self.least, self.rows // 2)
        else:
            self.rows = min(self.most, self.rows * 3 // 2)


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
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._prunes: list[tuple[asyncio.Future[int], tuple[int, Retention]]] = []
        self._pruned = StepSize(PRUNED_MIN, PRUNED_MIN, PRUNED_MAX, PRUNING_US)
        self._promoted = StepSize(PAGE_ENTRIES_MAX, PROMOTED_MIN, PROMOTED_MAX, PROMOTING_US)

    def wake(self) -> None:
        """Start a round: there is something to commit, to release, to prune or to load."""
        self._wake.set()

    def wake_later(self) -> None:
        """Start a round within COMMIT_DELAY_S: nothing waits for the changes.

        So the start and the end of a short attempt share one commit, and so do their neighbours.
        """
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(COMMIT_DELAY_S, self.wake)

    async def prune(self, now: int, retention: Retention) -> int:
        """Delete some jobs and idempotency records in the next round; return how many."""
        pruned: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._prunes.append((pruned, (now, retention)))
        self.wake()
        return await pruned

    async def run(self) -> None:
        """Do rounds until cancelled; raise StoreError when a commit or a load fails."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.round()

    async def round(self) -> None:
        """Commit the changes, release what waited for them, deliver the loads."""
        self._monitor.round_began()
        try:
            # The clock first: its step is saved while no batch is being written, so that the
            # store and memory shift their instants between the same two commits.
            await self._clock_changes.follow()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            batch = self._take_batch()
            is_pruning = bool(self._prunes)
            ended = {job.id for job in batch.changes.jobs.values() if is_pruning and job.is_final}
            if batch.changes:
                await self._store.commit(batch.changes)
                self._monitor.committed(batch.changes)
            self._release(batch)
            # If a job of this batch has ended and then changed again, the next commit needs its
            # row: pruning waits.
            if is_pruning and ended.isdisjoint(batch.later):
                await self._prune()
            if batch.loads:
                self._deliver([(load, await self._load(load)) for load in batch.loads])
        finally:
            self._monitor.round_ended()

    async def _prune(self) -> None:
        """Do the requested prunes; their errors go to the callers and do not fail the round."""
        clock = self._monitor.clock
        while self._prunes:
            pruned, arguments = self._prunes[0]  # a cancelled round leaves it to the next one
            began_at = clock.now()
            try:
                count = await self._store.prune(*arguments, self._pruned.rows)
                self._pruned.adapt(clock.now() - began_at)
            except SchedoError as error:
                refuse(pruned, error)
            else:
                if not pruned.done():
                    pruned.set_result(count)
            del self._prunes[0]

    async def _load(self, load: Load) -> Any:
        """Do the load. PromoteDue takes about PROMOTING_US, because commits wait for it."""
        if not isinstance(load, PromoteDue):
            return await self._store.load(load)
        clock = self._monitor.clock
        began_at = clock.now()
        promoted = await self._store.load(replace(load, limit=self._promoted.rows))
        self._promoted.adapt(clock.now() - began_at)
        return promoted
