"""A job for calling a task directly, without a server: `current_job()` works in the call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from schedo.client.options import Duration, Instant, render_value
from schedo.core.ids import parse_id
from schedo.core.job_maker import TASK_RETRY
from schedo.core.leases import Lease, StopReason
from schedo.core.model import LeaseKey, Options, Trigger
from schedo.core.progress import ProgressUpdate
from schedo.protocol.fields import read_instant
from schedo.tasks.arguments import encode_custom
from schedo.tasks.current_job import CurrentJob, entered, to_microseconds
from schedo.tasks.runner import AttemptContext, StopSignal

JOB_ID = "0000000000001"


class TestedJob(CurrentJob):
    """The job of a direct call: what `current_job()` shows there, and what the task reported.

    progress: the updates of `report_progress`, each with percent, message and log.
    """

    __test__ = False  # pytest must not collect it

    def __init__(self, context: AttemptContext, progress: list[ProgressUpdate]) -> None:
        super().__init__(context)
        self.progress = progress

    def stop(self, reason: StopReason = StopReason.CANCEL) -> None:
        """Request the task to stop: `is_cancelled` is true from now on."""
        self._stop.set(reason)


@contextlib.contextmanager
def job_context(  # noqa: PLR0913 - one keyword for each property of the job
    task: str = "task",
    *,
    id: str = JOB_ID,
    queue: str = "default",
    payload: Any = None,
    attempt: int = 1,
    failures: int | None = None,
    max_attempts: int = TASK_RETRY.max_attempts,
    scheduled_for: Instant | None = None,
    started_at: Instant | None = None,
    timeout: Duration | None = None,
    schedule: str | None = None,
    trigger: Trigger | str | None = None,
    missed_count: int = 0,
    worker: str = "test",
    tags: Sequence[str] = (),
    meta: Mapping[str, Any] | None = None,
    traceparent: str | None = None,
) -> Iterator[TestedJob]:
    """Make a job the current one inside the `with` block.

    with job_context(attempt=2) as job:
        await send_email("ada@example.org")

    The default instants are now, and all earlier attempts have failed unless `failures` says
    otherwise. The trigger is "schedule" if there is a schedule, otherwise "submit".
    """
    now = datetime.now(UTC)
    progress: list[ProgressUpdate] = []
    lease = Lease(
        key=LeaseKey(parse_id(id), attempt, 1),
        worker=worker,
        task=task,
        queue=queue,
        payload=msgspec.json.encode(payload, enc_hook=encode_custom),
        options=Options(
            timeout_us=None if timeout is None else to_microseconds(timeout),
            tags=tuple(tags),
            meta=None if meta is None else dict(meta),
            traceparent=traceparent,
            schedule=schedule,
        ),
        scheduled_for=_read_instant(
            "scheduled_for", now if scheduled_for is None else scheduled_for
        ),
        trigger=Trigger(trigger or ("schedule" if schedule else "submit")),
        missed_count=missed_count,
        failures=attempt - 1 if failures is None else failures,
        max_attempts=max_attempts,
        started_at=_read_instant("started_at", now if started_at is None else started_at),
    )
    context = AttemptContext(lease, StopSignal(), lambda _, update: progress.append(update))
    with entered(context):
        yield TestedJob(context, progress)


def _read_instant(name: str, instant: Instant) -> int:
    return read_instant(f"/{name}", str(render_value(instant)))
