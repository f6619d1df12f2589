"""A job for calling a task directly, without a server: `current_job()` works in the call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from schedo.client.options import Instant, render_value
from schedo.core.ids import parse_id
from schedo.core.leases import Lease, StopReason
from schedo.core.model import LeaseKey, Options, Trigger
from schedo.core.progress import ProgressUpdate
from schedo.protocol.fields import read_instant
from schedo.tasks.current_job import CurrentJob, entered
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
    attempt: int = 1,
    scheduled_for: Instant | None = None,
    trigger: Trigger | str = Trigger.SUBMIT,
    missed_count: int = 0,
    tags: Sequence[str] = (),
    meta: Mapping[str, Any] | None = None,
    traceparent: str | None = None,
) -> Iterator[TestedJob]:
    """Make a job the current one inside the `with` block; the default instant is now.

    with job_context(attempt=2) as job:
        await send_email("ada@example.org")
    """
    instant = datetime.now(UTC) if scheduled_for is None else scheduled_for
    progress: list[ProgressUpdate] = []
    lease = Lease(
        key=LeaseKey(parse_id(id), attempt, 1),
        worker="test",
        task=task,
        queue=queue,
        payload=None,
        options=Options(
            tags=tuple(tags),
            meta=None if meta is None else dict(meta),
            traceparent=traceparent,
        ),
        scheduled_for=read_instant("/scheduled_for", str(render_value(instant))),
        trigger=Trigger(trigger),
        missed_count=missed_count,
    )
    context = AttemptContext(lease, StopSignal(), lambda _, update: progress.append(update))
    with entered(context):
        yield TestedJob(context, progress)
