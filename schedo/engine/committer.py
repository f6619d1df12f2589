"""Group commit: what changes while one commit is on its way goes together into the next.

A round is: commit a batch, release what waited for it, delete what is past its retention if that
was asked for, fetch what the scheduler wants, deliver that in one step. Nothing else writes, so a
load sees exactly the commits before it, and what it has found is there until it is used (see
core/loads.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from schedo.core import loads
from schedo.core.changes import Changes
from schedo.core.leases import Lease
from schedo.core.limits import PAGE_ENTRIES_MAX, PROMOTED_MAX, PROMOTED_MIN, PROMOTING_US
from schedo.core.model import Job, LeaseKey
from schedo.engine.clock_changes import ClockChanges
from schedo.engine.command_queue import refuse
from schedo.errors import SchedoError
from schedo.store.base import Retention, Store


@dataclass(slots=True)
class Batch:
    """One commit's changes, and what happens once they are durable."""

    changes: Changes
    wants: list[loads.Load] = field(default_factory=list)
    later: Changes = field(default_factory=Changes)  # what changes while this is on its way
    replies: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)  # those that wait for this commit
    ended: list[LeaseKey] = field(default_factory=list)
    finals: list[Job] = field(default_factory=list)  # copies, for those who wait for a job's end


class Committer:
    """The one writer; `run` is its loop, started and ended by the turn loop."""

    def __init__(
        self,
        store: Store,
        take: Callable[[], Batch],
        release: Callable[[Batch], None],
        deliver: Callable[[list[tuple[loads.Load, Any]]], None],
        timekeeping: ClockChanges,
    ) -> None:
        self._store = store
        self._take = take
        self._release = release
        self._deliver = deliver
        self._timekeeping = timekeeping
        self._watch = timekeeping.watch
        self._wake = asyncio.Event()
        self._prunes: list[tuple[asyncio.Future[int], tuple[int, Retention, int]]] = []
        self._promoted_max = PAGE_ENTRIES_MAX

    def wake(self) -> None:
        """Say that there is something to commit, to release or to fetch."""
        self._wake.set()

    async def prune(self, now: int, retention: Retention, limit: int) -> int:
        """Let the next round delete up to limit jobs and answers; return how many it deleted."""
        pruned: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._prunes.append((pruned, (now, retention, limit)))
        self.wake()
        return await pruned

    async def run(self) -> None:
        """Do rounds until cancelled; raise StoreError when a commit or a load fails."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.round()

    async def round(self) -> None:
        """Commit what there is, release what waited for it, deliver what was wanted."""
        self._watch.round_began()
        try:
            await self._timekeeping.follow()
            batch = self._take()
            is_pruning = bool(self._prunes)
            ended = {job.id for job in batch.changes.jobs.values() if is_pruning and job.is_final}
            if batch.changes:
                await self._store.commit(batch.changes)
                self._watch.committed(batch.changes)
            self._release(batch)
            # An ended job that has changed again meanwhile must be there for the next commit.
            if is_pruning and ended.isdisjoint(batch.later.jobs):
                await self._prune()
            if batch.wants:
                self._deliver([(want, await self._fetch(want)) for want in batch.wants])
        finally:
            self._watch.round_ended()

    async def _prune(self) -> None:
        """Do what `prune` asked for; its error is no error of the round."""
        while self._prunes:
            pruned, what = self._prunes[0]  # a round that is cancelled leaves it to the next
            try:
                count = await self._store.prune(*what)
            except SchedoError as error:
                refuse(pruned, error)
            else:
                if not pruned.done():
                    pruned.set_result(count)
            del self._prunes[0]

    def _fetch(self, want: loads.Load) -> Awaitable[Any]:
        store = self._store
        match want:
            case loads.LoadTimers():
                return store.load_timers(want.after, want.limit)
            case loads.PromoteDue():
                return self._promote_due(want)
            case loads.LoadReady():
                return store.load_ready(want.ready_key, want.after, want.limit)
            case loads.LoadSchedules():
                return store.load_schedules(want.after, want.limit)
            case loads.LoadExpired():
                return store.load_expired(want.now, want.limit)
            case loads.LoadJob():
                return store.load_job(want.job_id)
            case loads.LoadUniqueHolder():
                return store.load_unique(want.key)
            case loads.LoadSchedule():
                return store.load_schedule(want.which)

    async def _promote_due(self, want: loads.PromoteDue) -> loads.Promoted:
        """Queue as many as take about PROMOTING_US: until it is done no commit can be made."""
        clock = self._watch.clock
        began_at = clock.now()
        promoted = await self._store.promote_due(want.after, want.until, self._promoted_max)
        if clock.now() - began_at > PROMOTING_US:
            self._promoted_max = max(PROMOTED_MIN, self._promoted_max // 2)
        else:
            self._promoted_max = min(PROMOTED_MAX, self._promoted_max * 3 // 2)
        return promoted
