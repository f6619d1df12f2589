"""What the asyncio client returns: jobs, reserved slots, and the result of a trigger."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from schedo.client import operations
from schedo.client.messages import Operation, Record
from schedo.client.operations import INVOKE_WAIT_S
from schedo.client.options import CommitOptions, Duration, Instant
from schedo.client.records import JobView
from schedo.errors import Conflict

if TYPE_CHECKING:
    from schedo.client.aio import AsyncClient


class AsyncJobHandle(JobView):
    """A job on the server; calls that change the job also update `record`."""

    __slots__ = ("_client",)

    def __init__(self, client: AsyncClient, record: Record) -> None:
        super().__init__(record)
        self._client = client

    async def refresh(self) -> AsyncJobHandle:
        """Fetch the current record of the job."""
        return await self._update(operations.get_job(self.id))

    async def wait(self, timeout: float | None = None) -> AsyncJobHandle:  # noqa: ASYNC109
        """Wait until the job has ended, at most `timeout` seconds."""
        if not self.has_outcome:
            self.record = (await self._client.wait(self.id, timeout)).record
        return self

    async def result(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """Return the job's result; raise JobFailed, or TimeoutError after `timeout` seconds."""
        return (await self.wait(timeout)).read_result()

    async def cancel(self) -> AsyncJobHandle:
        """Cancel a waiting job, or request a running one to stop."""
        return await self._update(operations.cancel_job(self.id))

    async def retry(self) -> AsyncJobHandle:
        """Run the job again after it failed, was cancelled or expired."""
        return await self._update(operations.retry_job(self.id))

    async def run_now(self) -> AsyncJobHandle:
        """Make a waiting job due now."""
        return await self._update(operations.run_job_now(self.id))

    async def reschedule(
        self,
        *,
        run_at: Instant | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
    ) -> AsyncJobHandle:
        """Change the job's time or priority."""
        changes = {"run_at": run_at, "delay": delay, "priority": priority}
        return await self._update(operations.reschedule_job(self.id, changes))

    async def output(self) -> list[Record]:
        """Return the output of its attempts: {attempt, stream, text, total_bytes, truncated}."""
        return await self._client.output(self.id)

    async def history(self) -> Record:
        """Return {first_due_at, durable_at, items}: what happened to the job and when."""
        return await self._client.history(self.id)

    async def why(self) -> Record:
        """Return {state, why, reasons, checks, workers}: all that the job waits for."""
        return await self._client.why(self.id)

    async def attempts(self) -> list[Record]:
        """Return its attempts that did not complete the job, oldest first."""
        return await self._client.attempts(self.id)

    async def progress(self) -> list[Record]:
        """Return the latest progress reports of its running attempt, oldest first."""
        return await self._client.progress(self.id)

    async def _update(self, operation: Operation[Record]) -> AsyncJobHandle:
        self.record = await self._client.send(operation)
        return self


class AsyncReservation:
    """Reserved slots. As a context manager it releases the slots that were not used."""

    def __init__(self, client: AsyncClient, record: Record) -> None:
        self._client = client
        self.record = record  # {id, nonce, workers, expires_at}
        self._is_open = True

    @property
    def workers(self) -> list[str]:
        """The worker of each slot."""
        return list(self.record["workers"])

    async def commit(
        self,
        task: str,
        payload: object = None,
        *,
        wait: float = INVOKE_WAIT_S,
        **options: Unpack[CommitOptions],
    ) -> list[AsyncJobHandle]:
        """Run one job on each slot, and wait at most `wait` seconds for the end of all."""
        request = operations.render_job(task, payload, options)
        operation = operations.commit_reservation(self.record, request, wait)
        records = await self._client.send(operation)
        self._is_open = False
        return [AsyncJobHandle(self._client, record) for record in records]

    async def release(self) -> None:
        """Release the slots."""
        self._is_open = False
        await self._client.send(operations.release_reservation(self.record))

    async def __aenter__(self) -> AsyncReservation:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._is_open:
            with suppress(Conflict):  # it has expired
                await self.release()


class AsyncTriggered(NamedTuple):
    """The result of a trigger: a new job, or the job that prevented it."""

    job: AsyncJobHandle | None
    skipped_by: str | None
