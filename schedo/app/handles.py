"""The handle that `enqueue` returns: the state, the result and the cancel of one job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from schedo.client.errors import job_failed
from schedo.core.states import FINAL, State
from schedo.protocol.jobs import SubmittedJob
from schedo.tasks.backend import Backend, Record

# The longest wait of one request for the end of a job.
POLL_S = 20.0
T_co = TypeVar("T_co", covariant=True)


class JobHandle(Generic[T_co]):
    """A submitted job; with `is_conflict`, the existing job that holds the unique key."""

    __slots__ = ("_backend", "_read", "id", "is_conflict")

    def __init__(self, backend: Backend, ticket: SubmittedJob, read: Callable[[Any], T_co]) -> None:
        self._backend = backend
        self._read = read
        self.id = ticket.id
        self.is_conflict = ticket.is_conflict

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"

    async def status(self) -> Record:
        """Return the current record of the job, with the fields of `GET /v1/jobs/{id}`."""
        return await self._backend.get(self.id)

    async def cancel(self) -> Record:
        """Cancel a waiting job, or request a running one to stop; return its new record."""
        return await self._backend.cancel(self.id)

    async def result(self, timeout: float | None = None) -> T_co:  # noqa: ASYNC109
        """Wait for the end of the job and return the result of its handler.

        Raise JobFailed, JobCancelled, or TimeoutError after `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            record = await self._backend.wait(self.id, POLL_S)
            while record["state"] not in FINAL:
                record = await self._backend.wait(self.id, POLL_S)
        if record["state"] == State.COMPLETED:
            return self._read(record.get("result"))
        raise job_failed(record)
