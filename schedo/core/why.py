"""Nothing waits in silence: one sentence about what a job waits for."""

from __future__ import annotations

from collections.abc import Callable

from schedo.core.lifecycle import State
from schedo.core.memory import JobMemory
from schedo.core.model import Job, Lane, Place
from schedo.core.routes import render_amount
from schedo.core.workers import Workers, find_obstacle


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
    lane = job.lane
    servers = workers.servers(lane)
    if not servers:
        return _explain_nobody(lane, workers)
    if all(worker.is_cordoned or not worker.is_open for worker in servers):
        names = ", ".join(worker.offer.id for worker in servers[:_NAMED_MAX])
        return f"whoever could run it is cordoned or draining: {names}"
    able = [worker for worker in servers if worker.slots_free > 0]
    if not able:
        slots = sum(w.offer.slots for w in servers if w.is_open and not w.is_cordoned)
        return f"all {slots} slots for task {job.task} are taken"
    able = [worker for worker in able if worker.fit(lane.route, 1) > 0]
    if not able:
        return f"what it needs is taken: {_render_needs(lane)}"
    if not any(worker.free > 0 for worker in able):
        names = ", ".join(worker.offer.id for worker in able[:_NAMED_MAX])
        return f"whoever could run it does not ask for work now: {names}"
    if job.place is not Place.LANE:
        return f"{len(memory.lanes.window(job.lane) or ())} jobs of its lane go first"
    return "it is next"


def _explain_nobody(lane: Lane, workers: Workers) -> str:
    """Return what no worker has: the first thing that keeps those away that know the task."""
    able = [each.offer for each in workers.servers(lane._replace(route=None))]
    if not able or lane.route is None:
        return f"no worker offers task {lane.task} on queue {lane.queue}"
    missing = {find_obstacle(lane.route, offer): None for offer in able}
    return f"no worker offers {' and '.join(str(each) for each in missing)}"


def _render_needs(lane: Lane) -> str:
    needs = lane.route.resources if lane.route is not None else ()
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
