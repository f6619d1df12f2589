"""Group commit: what changes while one commit is on its way goes together into the next.

A round is: commit a batch, release what waited for it, fetch what the scheduler wants, deliver
that in one step. Nothing else commits, so a load sees exactly the commits before it (see
core/wants.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from schedo.core import wants
from schedo.core.changes import Changes
from schedo.core.leases import Lease
from schedo.core.model import Job, LeaseKey
from schedo.engine.watch import Watch
from schedo.store.base import Store


@dataclass(slots=True)
class Batch:
    """One commit's changes, and what happens once they are durable."""

    changes: Changes
    wants: list[wants.Want] = field(default_factory=list)
    replies: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)  # of jobs that run at most once
    ended: list[LeaseKey] = field(default_factory=list)
    finals: list[Job] = field(default_factory=list)  # copies, for those who wait for a job's end


class Journal:
    """The one writer; `run` is its loop, started and ended by the turn loop."""

    def __init__(
        self,
        store: Store,
        take: Callable[[], Batch],
        release: Callable[[Batch], None],
        deliver: Callable[[list[tuple[wants.Want, Any]]], None],
        watch: Watch,
    ) -> None:
        self._store = store
        self._take = take
        self._release = release
        self._deliver = deliver
        self._watch = watch
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Say that there is something to commit, to release or to fetch."""
        self._wake.set()

    async def run(self) -> None:
        """Do rounds until cancelled; raise StoreError when a commit or a load fails."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.round()

    async def round(self) -> None:
        """Commit what there is, release what waited for it, deliver what was wanted."""
        batch = self._take()
        self._watch.round_began()
        try:
            if batch.changes:
                await self._store.commit(batch.changes)
                self._watch.committed(batch.changes)
            self._release(batch)
            if batch.wants:
                self._deliver([(want, await self._fetch(want)) for want in batch.wants])
        finally:
            self._watch.round_ended()

    def _fetch(self, want: wants.Want) -> Awaitable[Any]:
        store = self._store
        match want:
            case wants.TimersWanted():
                return store.load_timers(want.after, want.limit)
            case wants.LaneWanted():
                return store.load_lane(want.lane, want.after, want.limit)
            case wants.SchedulesWanted():
                return store.load_schedules(want.after, want.limit)
            case wants.ExpiredWanted():
                return store.load_expired(want.now, want.limit)
            case wants.JobWanted():
                return store.load_job(want.job_id)
            case wants.KeyWanted():
                return store.load_unique(want.key)
            case wants.ScheduleWanted():
                return store.load_schedule(want.which)
