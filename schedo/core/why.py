"""Nothing waits in silence: one sentence about what a job waits for."""

from __future__ import annotations

from collections.abc import Callable

from schedo.core.lifecycle import State
from schedo.core.memory import JobMemory
from schedo.core.model import Job, Place
from schedo.core.workers import Workers


def explain(job: Job, memory: JobMemory, workers: Workers) -> str:
    """Return why the job is not running, or that it is, or how it ended."""
    if job.state is State.QUEUED:
        return _explain_queued(job, memory, workers)
    return _SENTENCES[job.state](job)


def _explain_queued(job: Job, memory: JobMemory, workers: Workers) -> str:
    line = memory.lanes.line(job.queue)
    if line.queue.paused:
        return f"queue {job.queue} is paused"
    if not line.is_open:
        return f"queue {job.queue} runs {line.running} jobs, as many as its concurrency allows"
    servers = workers.find_servers(job.lane)
    if not servers:
        return f"no worker offers task {job.task} on queue {job.queue}"
    if not any(worker.free > 0 for worker in servers):
        return f"all {sum(w.offer.slots for w in servers)} slots for task {job.task} are taken"
    if job.place is not Place.LANE:
        return f"{len(memory.lanes.window(job.lane) or ())} jobs of its lane go first"
    return "it is next"


_SENTENCES: dict[State, Callable[[Job], str]] = {
    State.SCHEDULED: lambda job: "its time has not come",
    State.BLOCKED: lambda job: "an earlier run of its schedule is not finished",
    State.RUNNING: lambda job: f"attempt {job.attempt} is running on {job.worker}",
    State.RETRYING: lambda job: f"attempt {job.attempt} failed; the next one has its time set",
    State.COMPLETED: lambda job: "it has completed",
    State.FAILED: lambda job: job.failure.message if job.failure is not None else "it has failed",
    State.CANCELLED: lambda job: "it was cancelled",
    State.EXPIRED: lambda job: "its expiry came before it could start",
}
