"""Where an application's own code hands in jobs and asks about them, wherever that code runs.

Embedded it is the engine, in a child process the socket to its server, elsewhere an HTTP client.
All three take the same templates, answer with the job as the HTTP API shows it, and raise the same
errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from schedo.errors import SchedoError
from schedo.protocol.jobs import JobTemplate

Record = dict[str, Any]
T = TypeVar("T")


class SubmittedJob(msgspec.Struct, frozen=True, tag="ticket"):
    """The receipt for one job."""

    id: str
    is_conflict: bool = False  # an unfinished job holds the unique key, and this is it


class Backend(Protocol):
    """Takes jobs in and answers for them."""

    async def submit(
        self, template: JobTemplate, payloads: Sequence[bytes]
    ) -> list[SubmittedJob | SchedoError]:
        """Submit one job for each payload (JSON); all are durable on return.

        A job that was refused has its error in its place.
        """

    async def get(self, job_id: str) -> Record:
        """Return the job as it stands."""

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or as it stands when the time is up."""

    async def cancel(self, job_id: str) -> Record:
        """Cancel the job if it waits, ask it to stop if it runs."""


class ThreadsafeBackend:
    """A desk of the running event loop that others may use: a plain function has its thread's."""

    def __init__(self, desk: Backend) -> None:
        self._desk = desk
        self._loop = asyncio.get_running_loop()

    async def submit(
        self, template: JobTemplate, payloads: Sequence[bytes]
    ) -> list[SubmittedJob | SchedoError]:
        """Submit one job for each payload; see Desk."""
        return await self._carry(self._desk.submit(template, payloads))

    async def get(self, job_id: str) -> Record:
        """Return the job as it stands."""
        return await self._carry(self._desk.get(job_id))

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or as it stands when the time is up."""
        return await self._carry(self._desk.wait(job_id, timeout_s))

    async def cancel(self, job_id: str) -> Record:
        """Cancel the job if it waits, ask it to stop if it runs."""
        return await self._carry(self._desk.cancel(job_id))

    async def _carry(self, call: Coroutine[Any, Any, T]) -> T:
        if asyncio.get_running_loop() is self._loop:
            return await call
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))
