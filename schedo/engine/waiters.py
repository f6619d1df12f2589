"""The callers that wait for the end of a job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from schedo.core.model import Job


class EndWaiters:
    """The futures of the waiting callers, by job id."""

    def __init__(self) -> None:
        self._waiters: dict[int, list[asyncio.Future[Job]]] = {}

    def add(self, job_id: int) -> asyncio.Future[Job]:
        """Return a future of the job's final record. The caller removes it."""
        waiter: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(job_id, []).append(waiter)
        return waiter

    def remove(self, job_id: int, waiter: asyncio.Future[Job]) -> None:
        """Forget a waiter."""
        waiters = self._waiters.get(job_id, [])
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            self._waiters.pop(job_id, None)

    def copy_ended(self, jobs: Iterable[Job]) -> list[Job]:
        """Return copies of those jobs that have ended and that a caller waits for."""
        waiters = self._waiters
        return [job.copy() for job in jobs if job.id in waiters and job.is_final] if waiters else []

    def release(self, jobs: Iterable[Job]) -> None:
        """Give the callers the final records, which are durable now."""
        for job in jobs:
            for waiter in self._waiters.pop(job.id, ()):
                if not waiter.done():
                    waiter.set_result(job)
