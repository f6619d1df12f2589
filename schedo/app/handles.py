"""One submitted job, from the side of the code that submitted it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from schedo.client.errors import job_failed
from schedo.core.states import FINAL, State
from schedo.tasks.backend import Backend, Record, SubmittedJob

# How long one question for the end of a job is held.
POLL_S = 20.0
T_co = TypeVar("T_co", covariant=True)


class JobHandle(Generic[T_co]):
    """A job that was handed in. `is_conflict`: it was there already and holds the unique key."""

    __slots__ = ("_desk", "_read", "id", "is_conflict")

    def __init__(self, desk: Backend, ticket: SubmittedJob, read: Callable[[Any], T_co]) -> None:
        self._desk = desk
        self._read = read
        self.id = ticket.id
        self.is_conflict = ticket.is_conflict

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"

    async def status(self) -> Record:
        """Return the job as it stands, with the fields of `GET /v1/jobs/{id}`."""
        return await self._desk.get(self.id)

    async def cancel(self) -> Record:
        """Cancel the job if it waits, ask it to stop if it runs; return it as it then stands."""
        return await self._desk.cancel(self.id)

    async def result(self, timeout: float | None = None) -> T_co:  # noqa: ASYNC109
        """Wait for the end and return what the handler returned.

        Raise JobFailed, or JobCancelled, or TimeoutError when `timeout` seconds are over.
        """
        async with asyncio.timeout(timeout):
            record = await self._desk.wait(self.id, POLL_S)
            while record["state"] not in FINAL:
                record = await self._desk.wait(self.id, POLL_S)
        if record["state"] == State.COMPLETED:
            return self._read(record.get("result"))
        raise job_failed(record)
