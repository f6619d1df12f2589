"""The backend of an application that has no engine of its own: a client of the HTTP API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from schedo.client import operations
from schedo.client.aio import AsyncClient
from schedo.errors import SchedoError
from schedo.protocol.jobs import JobTemplate
from schedo.tasks.backend import Record, SubmittedJob


class HttpBackend:
    """Submits jobs to the server at the URL.

    Within `async with` connections are kept; without it each call makes its own, so that a program
    may enqueue from any event loop and need not close anything.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url
        self._token = token
        self._kept: AsyncClient | None = None
        AsyncClient(url, token)  # a bad URL or token is refused now

    async def open(self) -> None:
        """Keep connections from now on."""
        self._kept = AsyncClient(self._url, self._token)

    async def close(self) -> None:
        """Close the connections that were kept."""
        if self._kept is not None:
            await self._kept.close()
            self._kept = None

    async def submit(
        self, template: JobTemplate, payloads: Sequence[bytes]
    ) -> list[SubmittedJob | SchedoError]:
        """Submit one job for each payload; see Backend."""
        requests = template.make_requests(payloads)
        async with self._client() as client:
            if len(requests) == 1:
                try:
                    return [_ticket(await client.send(operations.submit(requests[0])))]
                except SchedoError as error:
                    return [error]
            return [
                item if isinstance(item, SchedoError) else _ticket(item)
                for operation in operations.submit_many(requests)
                for item in await client.send(operation)
            ]

    async def get(self, job_id: str) -> Record:
        """Return the job as it stands."""
        async with self._client() as client:
            return await client.send(operations.get_job(job_id))

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or as it stands when the time is up."""
        async with self._client() as client:
            return (await client.wait(job_id, timeout_s)).record

    async def cancel(self, job_id: str) -> Record:
        """Cancel the job if it waits, ask it to stop if it runs."""
        async with self._client() as client:
            return await client.send(operations.cancel_job(job_id))

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[AsyncClient]:
        if self._kept is not None:
            yield self._kept
            return
        async with AsyncClient(self._url, self._token) as client:
            yield client


def _ticket(record: Record) -> SubmittedJob:
    return SubmittedJob(record["id"], bool(record.get("conflict")))
