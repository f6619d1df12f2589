"""The backend of an application whose server was replaced while its tasks run: the new server.

A child process of the old server sends its requests there, as before. The old server sends them on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from schedo.client import operations
from schedo.client.async_transport import AsyncTransport, Connect
from schedo.client.errors import Unreachable
from schedo.client.messages import Operation, parse_address
from schedo.client.records import is_final
from schedo.core.model import JobSpec
from schedo.errors import SchedoError
from schedo.protocol.job_specs import spec_fields
from schedo.protocol.jobs import SubmittedJob
from schedo.tasks.backend import Record
from schedo.worker.http_backend import to_result

_ADDRESS = parse_address("http://localhost", None)  # of the requests; `connect` opens the way
REPEAT_S = 10.0  # after a first failure: the new server may itself be replaced, or start again
_PAUSE_S = 0.05

T = TypeVar("T")


class SuccessorBackend:
    """Sends what child processes request to the new server; see EngineBackend.

    A server that is replaced in its turn drops the connections over which these requests come, and
    may have carried them out by then. They are repeated, which all of them allow.
    """

    def __init__(self, connect: Connect) -> None:
        self._transport = AsyncTransport(_ADDRESS, connect=connect)

    async def close(self) -> None:
        """Close the open connections."""
        await self._transport.close()

    async def submit_specs(self, specs: Sequence[JobSpec]) -> list[SubmittedJob | SchedoError]:
        """Submit the jobs; a rejected job has its error at its position in the list."""
        return [
            to_result(item)
            for operation in operations.submit_many([*map(spec_fields, specs)])
            for item in await self._send(operation)
        ]

    async def broadcast(self, spec: JobSpec) -> list[SubmittedJob | SchedoError]:
        """Submit one job for each connected worker that may run it."""
        items = await self._send(operations.broadcast(spec_fields(spec)))
        return [to_result(each) for each in items]

    async def get(self, job_id: str) -> Record:
        """Return the job in its current state."""
        return await self._send(operations.get_job(job_id))

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or in its current state after the timeout."""
        end = time.monotonic() + timeout_s

        def wait_on() -> Operation[Record]:
            left_s = max(0.0, end - time.monotonic())
            return next(operations.wait_job(job_id, left_s, time.monotonic))

        while True:
            record = await self._repeat(wait_on)
            if is_final(record) or time.monotonic() >= end:
                return record

    async def cancel(self, job_id: str) -> Record:
        """Cancel a waiting job; request a running one to stop."""
        return await self._send(operations.cancel_job(job_id))

    async def _send(self, operation: Operation[T]) -> T:
        return await self._repeat(lambda: operation)

    async def _repeat(self, make_operation: Callable[[], Operation[T]]) -> T:
        """Send the operation, until a server responds or the time for that is over."""
        until: float | None = None
        while True:
            operation = make_operation()
            try:
                return await self._transport.send(operation)
            except Unreachable:
                now = time.monotonic()
                until = until or now + REPEAT_S
                if not operation.is_repeatable or now >= until:
                    raise
            await asyncio.sleep(_PAUSE_S)
