"""What the blocking client returns: jobs, reserved slots, and the result of a trigger."""

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
    from schedo.client.sync import Client


class SyncJobHandle(JobView):
    """A job on the server; calls that change the job also update `record`."""

    __slots__ = ("_client",)

    def __init__(self, client: Client, record: Record) -> None:
        super().__init__(record)
        self._client = client

    def refresh(self) -> SyncJobHandle:
        """Fetch the current record of the job."""
        return self._update(operations.get_job(self.id))

    def wait(self, timeout: float | None = None) -> SyncJobHandle:
        """Wait until the job has ended, at most `timeout` seconds."""
        if not self.has_outcome:
            self.record = self._client.wait(self.id, timeout).record
        return self

    def result(self, timeout: float | None = None) -> Any:
        """Return the job's result; raise JobFailed, or TimeoutError after `timeout` seconds."""
        return self.wait(timeout).read_result()

    def cancel(self) -> SyncJobHandle:
        """Cancel a waiting job, or request a running one to stop."""
        return self._update(operations.cancel_job(self.id))

    def retry(self) -> SyncJobHandle:
        """Run the job again after it failed, was cancelled or expired."""
        return self._update(operations.retry_job(self.id))

    def run_now(self) -> SyncJobHandle:
        """Make a waiting job due now."""
        return self._update(operations.run_job_now(self.id))

    def reschedule(
        self,
        *,
        run_at: Instant | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
    ) -> SyncJobHandle:
        """Change the job's time or priority."""
        changes = {"run_at": run_at, "delay": delay, "priority": priority}
        return self._update(operations.reschedule_job(self.id, changes))

    def output(self) -> list[Record]:
        """Return the output of its attempts: {attempt, stream, text, total_bytes, truncated}."""
        return self._client.output(self.id)

    def history(self) -> Record:
        """Return {first_due_at, durable_at, items}: what happened to the job and when."""
        return self._client.history(self.id)

    def why(self) -> Record:
        """Return {state, why, reasons, checks, workers}: all that the job waits for."""
        return self._client.why(self.id)

    def attempts(self) -> list[Record]:
        """Return its attempts that did not complete the job, oldest first."""
        return self._client.attempts(self.id)

    def progress(self) -> list[Record]:
        """Return the latest progress reports of its running attempt, oldest first."""
        return self._client.progress(self.id)

    def _update(self, operation: Operation[Record]) -> SyncJobHandle:
        self.record = self._client.send(operation)
        return self


class Reservation:
    """Reserved slots. As a context manager it releases the slots that were not used."""

    def __init__(self, client: Client, record: Record) -> None:
        self._client = client
        self.record = record  # {id, nonce, workers, expires_at}
        self._is_open = True

    @property
    def workers(self) -> list[str]:
        """The worker of each slot."""
        return list(self.record["workers"])

    def commit(
        self,
        task: str,
        payload: object = None,
        *,
        wait: float = INVOKE_WAIT_S,
        **options: Unpack[CommitOptions],
    ) -> list[SyncJobHandle]:
        """Run one job on each slot, and wait at most `wait` seconds for the end of all."""
        request = operations.render_job(task, payload, options)
        operation = operations.commit_reservation(self.record, request, wait)
        records = self._client.send(operation)
        self._is_open = False
        return [SyncJobHandle(self._client, record) for record in records]

    def release(self) -> None:
        """Release the slots."""
        self._is_open = False
        self._client.send(operations.release_reservation(self.record))

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_open:
            with suppress(Conflict):  # it has expired
                self.release()


class Triggered(NamedTuple):
    """The result of a trigger: a new job, or the job that prevented it."""

    job: SyncJobHandle | None
    skipped_by: str | None
