"""Lets each server change its own jobs for an operation on many jobs.

The operation is carried out by the server that began it. It searches the jobs of all servers, and
sends a request for each job that is another server's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from schedo.cluster.hops import OwnRequest
from schedo.core.bulk import BulkAction, BulkOperation
from schedo.core.bulk_commands import Outcomes
from schedo.core.ids import render_id
from schedo.errors import Unavailable
from schedo.protocol.roles import Role
from schedo.web.permissions import TokenPermission

if TYPE_CHECKING:
    from schedo.cluster.router import Router
    from schedo.store.cluster import Member

REQUESTS_MAX = 8  # at a time
_SKIPPED = (404, 409)  # the job is gone, or its state has changed since it was found
_PERMISSION = TokenPermission(Role.ADMIN, "operation")  # who began it was allowed to


class BulkChanges:
    """Changes jobs of other servers."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._room = asyncio.Semaphore(REQUESTS_MAX)

    async def change(
        self, operation: BulkOperation, ids: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Outcomes]:
        """Return the jobs that are this server's, and what became of the others.

        Raise Unavailable if a job has no owner now, or its owner cannot be reached.
        """
        if not self._router.others():
            return ids, Outcomes()
        outcomes = await asyncio.gather(*(self._change(operation, each) for each in ids))
        own = tuple(each for each, found in zip(ids, outcomes, strict=True) if found is None)
        counts = Counter(outcomes)
        return own, Outcomes(*(counts[name] for name in Outcomes._fields))

    async def _change(self, operation: BulkOperation, job_id: int) -> str | None:
        """Return what became of a job, by the name in Outcomes; None if it is this server's."""
        cluster = self._router.cluster
        async with self._room:
            shard = await cluster.shard_of_job(job_id)
            if shard is None:
                return "skipped"
            if cluster.is_mine(shard):
                return None
            owner = cluster.owner(shard)
            if owner is None:
                raise Unavailable("some jobs of the operation move to another server")
            return await self._send(operation, job_id, owner)

    async def _send(self, operation: BulkOperation, job_id: int, owner: Member) -> str:
        path = f"/v1/jobs/{render_id(job_id)}"
        method, target = "POST", f"{path}:{operation.action}"
        if operation.action is BulkAction.DELETE:
            method, target = "DELETE", path
        name = f"operation {render_id(operation.id)}"
        request = OwnRequest(method, target, name, _PERMISSION)
        response = await self._router.send(owner, "confirm", request)
        if response.status < 400:
            return "done"
        if response.status in _SKIPPED:
            return "skipped"
        if response.status >= 500:
            raise Unavailable(f"the server {owner.name} did not change a job: {response.status}")
        return "failed"
