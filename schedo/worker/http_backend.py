"""The backend of an application that has no engine of its own: a client of the HTTP API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from schedo.client import operations
from schedo.client.aio import AsyncClient
from schedo.core.ids import parse_id
from schedo.errors import SchedoError
from schedo.protocol.job_templates import JobTemplate
from schedo.protocol.jobs import SubmittedJob
from schedo.tasks.backend import Record


class HttpBackend:
    """Submits jobs to the server at the URL.

    After open() it keeps its connections; before, each call makes its own, so that a program may
    enqueue from any event loop and need not close anything.
    """

    def __init__(self, url: str, token: str | None, ca_cert: str | None = None) -> None:
        self._url = url
        self._token = token
        self._ca_cert = ca_cert
        self._client: AsyncClient | None = None
        self._make_client()  # so that a bad URL or token is an error now

    def use_token(self, token: str | None) -> None:
        """Send this token with the requests that follow."""
        self._token = token
        if self._client is not None:
            self._client.use_token(token)

    async def open(self) -> None:
        """Keep connections open from now on."""
        self._client = self._make_client()

    async def close(self) -> None:
        """Close the open connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def submit(
        self, jobs: Sequence[tuple[JobTemplate, bytes]]
    ) -> list[SubmittedJob | SchedoError]:
        """Submit jobs; see Backend."""
        requests = [template.make_request(payload) for template, payload in jobs]
        async with self._connect() as client:
            if jobs and jobs[0][0].request.broadcast:
                items = await client.send(operations.broadcast(requests[0]))
                return [
                    each if isinstance(each, SchedoError) else to_ticket(each) for each in items
                ]
            if len(requests) == 1:
                try:
                    return [to_ticket(await client.send(operations.submit(requests[0])))]
                except SchedoError as error:
                    return [error]
            return [
                to_result(item)
                for operation in operations.submit_many(requests)
                for item in await client.send(operation)
            ]

    async def get(self, job_id: str) -> Record:
        """Return the job in its current state."""
        async with self._connect() as client:
            return await client.send(operations.get_job(job_id))

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or in its current state after the timeout."""
        async with self._connect() as client:
            return (await client.wait(job_id, timeout_s)).record

    async def cancel(self, job_id: str) -> Record:
        """Cancel a waiting job; request a running one to stop."""
        async with self._connect() as client:
            return await client.send(operations.cancel_job(job_id))

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[AsyncClient]:
        if self._client is not None:
            yield self._client
            return
        async with self._make_client() as client:
            yield client

    def _make_client(self) -> AsyncClient:
        return AsyncClient(self._url, self._token, ca_cert=self._ca_cert)


def to_result(item: Record | SchedoError) -> SubmittedJob | SchedoError:
    """Return the receipt for a job of a batch, or the error of a rejected one."""
    return item if isinstance(item, SchedoError) else to_ticket(item)


def to_ticket(record: Record) -> SubmittedJob:
    """Return the receipt for a job of this record."""
    return SubmittedJob(parse_id(record["id"]), bool(record.get("conflict")))
