"""What the engine of a cluster's server needs of the servers that own other jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

from schedo.core.model import JobSpec
from schedo.engine.call_results import Accepted
from schedo.errors import SchedoError

Record = dict[str, Any]  # a job in the form of the HTTP API
# Submits jobs to this server; the shards must be its own, else it raises Unavailable.
SubmitHere = Callable[
    [Sequence[JobSpec], Collection[int]], Awaitable[list[Accepted[int] | SchedoError]]
]


class OtherOwners(Protocol):
    """The servers of a cluster, for calls about jobs that need not be this server's.

    `here` carries a call out in this server.
    """

    async def submit(
        self, specs: Sequence[JobSpec], here: SubmitHere
    ) -> list[Accepted[int] | SchedoError]:
        """Submit each job to the server that must have it; the result has the ids in this order."""

    async def wait(
        self, job_id: int, timeout_s: float, here: Callable[[float], Awaitable[Record]]
    ) -> Record:
        """Return the job when it has ended, or its current state after the timeout."""

    async def cancel(self, job_id: int, here: Callable[[], Awaitable[Record]]) -> Record:
        """Cancel a waiting job; request a running one to stop."""
