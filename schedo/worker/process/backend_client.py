"""The backend of an application in a child process: sends its requests through the server's socket.

Each response carries the number of its request, so that several requests can be open at a time.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Literal

from schedo.errors import Invalid, SchedoError, all_errors
from schedo.protocol.frames import BackendRequest, BackendResponse, BadFrame, Refusal
from schedo.protocol.job_templates import JobTemplate
from schedo.protocol.jobs import SubmittedJob
from schedo.tasks.backend import Record


class ChildBackend:
    """A Backend that sends each request to the server; `send` writes a frame."""

    def __init__(self, send: Callable[[BackendRequest], None]) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[BackendResponse]] = {}

    async def submit(
        self, jobs: Sequence[tuple[JobTemplate, bytes]]
    ) -> list[SubmittedJob | SchedoError]:
        """Submit jobs; see Backend."""
        specs = [template.make_spec(payload) for template, payload in jobs]
        is_broadcast = jobs and jobs[0][0].request.broadcast
        verb: Literal["submit", "broadcast"] = "broadcast" if is_broadcast else "submit"
        try:
            response = await self._request(BackendRequest(next(self._numbers), verb, specs=specs))
        except BadFrame as error:
            if len(jobs) == 1:
                raise Invalid(f"the job is too large: {error}") from None
            half = len(jobs) // 2
            return [*await self.submit(jobs[:half]), *await self.submit(jobs[half:])]
        return [
            item if isinstance(item, SubmittedJob) else build_error(item)
            for item in response.tickets
        ]

    async def get(self, job_id: str) -> Record:
        """Return the job in its current state."""
        return (
            await self._request(BackendRequest(next(self._numbers), "get", job_id=job_id))
        ).record

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or in its current state after the timeout."""
        request = BackendRequest(next(self._numbers), "wait", job_id=job_id, timeout_s=timeout_s)
        return (await self._request(request)).record

    async def cancel(self, job_id: str) -> Record:
        """Cancel a waiting job; request a running one to stop."""
        return (
            await self._request(BackendRequest(next(self._numbers), "cancel", job_id=job_id))
        ).record

    def receive(self, response: BackendResponse) -> None:
        """Pass the response to its caller, unless the caller has given up."""
        future = self._pending.pop(response.number, None)
        if future is not None and not future.done():
            future.set_result(response)

    async def _request(self, request: BackendRequest) -> BackendResponse:
        response = await self._exchange(request)
        if response.refusal is not None:
            raise build_error(response.refusal)
        return response

    async def _exchange(self, request: BackendRequest) -> BackendResponse:
        future: asyncio.Future[BackendResponse] = asyncio.get_running_loop().create_future()
        self._pending[request.number] = future
        try:
            self._send(request)
            return await future
        finally:
            self._pending.pop(request.number, None)


def build_error(refusal: Refusal) -> SchedoError:
    """Return the error that the server raised."""
    return all_errors().get(refusal.code, SchedoError)(refusal.message)
