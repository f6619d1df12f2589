"""Nothing waits in silence: one sentence about what a job waits for."""

from __future__ import annotations

from collections.abc import Callable

from schedo.core.job_table import JobTable
from schedo.core.model import Job, Location, ReadyKey
from schedo.core.requirements import render_amount
from schedo.core.states import State
from schedo.core.worker_pool import WorkerPool, first_unmet_requirement


def explain(job: Job, memory: JobTable, workers: WorkerPool) -> str:
    """Return why the job is not running, or that it is, or how it ended."""
    if job.state is State.QUEUED:
        return _explain_queued(job, memory, workers)
    return _SENTENCES[job.state](job)


def _explain_queued(job: Job, memory: JobTable, workers: WorkerPool) -> str:
    line = memory.ready_queues.queue_state(job.queue)
    if line.queue.paused:
        return f"queue {job.queue} is paused"
    if not line.is_open:
        return f"queue {job.queue} runs {line.running} jobs, as many as its concurrency allows"
    lane = job.ready_key
    servers = workers.eligible_workers(lane)
    if not servers:
        return _explain_nobody(lane, workers)
    if all(worker.is_cordoned or not worker.is_open for worker in servers):
        names = ", ".join(worker.spec.id for worker in servers[:_NAMED_MAX])
        return f"whoever could run it is cordoned or draining: {names}"
    able = [worker for worker in servers if worker.slots_free > 0]
    if not able:
        slots = sum(w.spec.slots for w in servers if w.is_open and not w.is_cordoned)
        return f"all {slots} slots for task {job.task} are taken"
    able = [worker for worker in able if worker.fit(lane.requirements, 1) > 0]
    if not able:
        return f"what it needs is taken: {_render_needs(lane)}"
    if not any(worker.free > 0 for worker in able):
        names = ", ".join(worker.spec.id for worker in able[:_NAMED_MAX])
        return f"whoever could run it does not ask for work now: {names}"
    if job.location is not Location.LANE:
        return f"{len(memory.ready_queues.window(job.ready_key) or ())} jobs of its lane go first"
    return "it is next"


def _explain_nobody(lane: ReadyKey, workers: WorkerPool) -> str:
    """Return what no worker has: the first thing that keeps those away that know the task."""
    able = [each.spec for each in workers.eligible_workers(lane._replace(requirements=None))]
    if not able or lane.requirements is None:
        return f"no worker offers task {lane.task} on queue {lane.queue}"
    missing = {first_unmet_requirement(lane.requirements, offer): None for offer in able}
    return f"no worker offers {' and '.join(str(each) for each in missing)}"


def _render_needs(lane: ReadyKey) -> str:
    needs = lane.requirements.resources if lane.requirements is not None else ()
    return ", ".join(f"{render_amount(amount)} {name}" for name, amount in needs)


_NAMED_MAX = 5


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
