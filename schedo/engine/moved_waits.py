"""Waits for the ends of jobs whose shard has moved to another server of the cluster.

The new owner of the shard commits the end of the job, and sends no event to the server where the
caller waits. So that server reads the store in short intervals until each such wait has ended.
"""

from __future__ import annotations

import asyncio
import logging

from schedo.engine.waiters import EndWaiters
from schedo.errors import SchedoError
from schedo.store.base import Store
from schedo.store.cluster import ShardOwner

log = logging.getLogger("schedo.engine")

LOOK_S = 0.2  # between two reads; a caller gets its response that much later at most


class MovedWaits:
    """Completes the waits for jobs of other servers."""

    def __init__(self, store: Store, cluster: ShardOwner, waiters: EndWaiters) -> None:
        self._store, self._cluster, self._waiters = store, cluster, waiters
        self._task: asyncio.Task[None] | None = None

    def follow(self) -> None:
        """Look which of the awaited jobs have moved, and follow them: shards have changed."""
        self.stop()
        awaited = {*self._waiters.awaited}
        if awaited:
            self._task = asyncio.create_task(self._follow(awaited), name="schedo waits")

    def stop(self) -> None:
        """Follow no job any more."""
        if self._task is not None:
            self._task.cancel()

    async def _follow(self, awaited: set[int]) -> None:
        moved: set[int] | None = None
        while moved is None or moved & self._waiters.awaited:
            try:
                if moved is None:
                    moved = await self._find_moved(awaited)
                moved = await self._look(moved)
            except SchedoError as error:  # the recovery says why
                log.debug("the ends of jobs that have moved are not known now: %s", error)
            await asyncio.sleep(LOOK_S)

    async def _find_moved(self, awaited: set[int]) -> set[int]:
        """Return the jobs of other servers, and those that are gone: one of them has ended these.

        All that were awaited when the shards changed were in the store then.
        """
        shards = await self._cluster.shards_of_jobs([*awaited])
        own = {job for job, shard in shards.items() if self._cluster.is_mine(shard)}
        return awaited - own

    async def _look(self, moved: set[int]) -> set[int]:
        """Complete the waits for those that have ended; return the others."""
        ended = await self._cluster.find_ended([*(moved & self._waiters.awaited)])
        for job_id in ended:
            job = await self._store.get_job(job_id)
            if job is None:  # it is not kept
                self._waiters.end(job_id)
            else:
                self._waiters.release([job], ())
        return moved.difference(ended)
