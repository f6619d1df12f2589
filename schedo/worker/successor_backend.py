"""The backend of an application whose server was replaced while its tasks run: the new server.

A child process of the old server sends its requests there, as before. The old server sends them on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from schedo.client import operations
from schedo.client.async_transport import AsyncTransport, Connect
from schedo.client.messages import parse_address
from schedo.client.records import is_final
from schedo.core.model import JobSpec
from schedo.errors import SchedoError
from schedo.protocol.job_specs import spec_fields
from schedo.protocol.jobs import SubmittedJob
from schedo.tasks.backend import Record
from schedo.worker.http_backend import to_result

_ADDRESS = parse_address("http://localhost", None)  # of the requests; `connect` opens the way


class SuccessorBackend:
    """Sends what child processes request to the new server; see EngineBackend."""

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
            for item in await self._transport.send(operation)
        ]

    async def broadcast(self, spec: JobSpec) -> list[SubmittedJob | SchedoError]:
        """Submit one job for each connected worker that may run it."""
        items = await self._transport.send(operations.broadcast(spec_fields(spec)))
        return [to_result(each) for each in items]

    async def get(self, job_id: str) -> Record:
        """Return the job in its current state."""
        return await self._transport.send(operations.get_job(job_id))

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or in its current state after the timeout."""
        record: Record = {}
        for operation in operations.wait_job(job_id, timeout_s, time.monotonic):
            record = await self._transport.send(operation)
            if is_final(record):
                break
        return record

    async def cancel(self, job_id: str) -> Record:
        """Cancel a waiting job; request a running one to stop."""
        return await self._transport.send(operations.cancel_job(job_id))
