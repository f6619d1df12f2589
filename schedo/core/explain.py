"""Explains what a job waits for, so that no job waits without a visible reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from schedo.core.instants import render_instant
from schedo.core.job_table import JobTable
from schedo.core.model import Job, Location, Pause, PauseScope, ReadyKey
from schedo.core.pauses import describe_pause
from schedo.core.requirements import render_amount
from schedo.core.states import State
from schedo.core.worker_pool import Worker, WorkerPool, first_unmet_requirement


def explain(job: Job, jobs: JobTable, workers: WorkerPool, pauses: Sequence[Pause]) -> list[str]:
    """Return all reasons why the job is not running, or that it is running, or how it ended.

    An obstacle that time alone does not remove comes first: no worker could ever run the job.
    """
    if job.state is State.QUEUED:
        return [*_explain_queued(job, jobs, workers, pauses)]
    reasons = [_SENTENCES[job.state](job)]
    if job.state in _WAITING and not workers.eligible_workers(job.ready_key):
        reasons.insert(0, explain_no_worker(job.ready_key, workers))
    return reasons


def _explain_queued(
    job: Job, jobs: JobTable, workers: WorkerPool, pauses: Sequence[Pause]
) -> Iterator[str]:
    ready_key = job.ready_key
    eligible = workers.eligible_workers(ready_key)
    obstacles = [
        None if eligible else explain_no_worker(ready_key, workers),
        *(_explain_pause(pause) for pause in pauses if pause.scope is PauseScope.STARTS),
        _explain_queue(job.queue, jobs),
        _explain_busy(ready_key, eligible) if eligible else None,
    ]
    if any(obstacles):
        yield from filter(None, obstacles)
    elif job.location is Location.HELD_BACK:
        yield "it waits a moment for a worker of the previous server that may run it already"
    elif job.location is not Location.READY:
        ahead = len(jobs.ready_queues.ready_index(ready_key) or ())
        yield f"at least {ahead} ready jobs of its queue and task go first"
    else:
        yield "it is next"


def _explain_pause(pause: Pause) -> str:
    how = describe_pause(pause.note, pause.until)
    return f"the server is paused{how}: no job starts until it is resumed"


def _explain_queue(name: str, jobs: JobTable) -> str | None:
    """Return why the queue starts no job now, or None."""
    queue_state = jobs.ready_queues.queue_state(name)
    if queue_state.queue.paused:
        pause = queue_state.queue.pause
        how = describe_pause(pause.note, pause.until) if pause is not None else ""
        return f"queue {name} is paused{how}"
    if not queue_state.is_open:
        return f"queue {name} runs {queue_state.running} jobs, which is its concurrency limit"
    return None


def _explain_busy(ready_key: ReadyKey, eligible: Sequence[Worker]) -> str | None:
    """Return why none of the workers can start the job now, or None."""
    if all(worker.is_cordoned or not worker.is_open for worker in eligible):
        names = ", ".join(worker.spec.id for worker in eligible[:_NAMED_MAX])
        return f"all workers that could run it are cordoned or draining: {names}"
    candidates = [worker for worker in eligible if worker.slots_free > 0]
    if not candidates:
        slots = sum(w.spec.slots for w in eligible if w.is_open and not w.is_cordoned)
        return f"all {slots} slots for task {ready_key.task} are taken"
    if ready_key.isolated and all(worker.suspects for worker in candidates):
        return f"{_SUSPECT}, and a worker runs one such job at a time"
    candidates = [worker for worker in candidates if worker.fit(ready_key.requirements, 1) > 0]
    if not candidates:
        return f"the resources that it needs are in use: {_render_needs(ready_key)}"
    if not any(worker.free > 0 for worker in candidates):
        names = ", ".join(worker.spec.id for worker in candidates[:_NAMED_MAX])
        return f"no worker that could run it is polling now: {names}"
    return None


def explain_no_worker(ready_key: ReadyKey, workers: WorkerPool) -> str:
    """Return what no worker offers: the task itself, isolation, or a requirement of the job."""
    if ready_key.isolated and workers.eligible_workers(ready_key._replace(isolated=False)):
        return f"{_SUSPECT}, and no worker isolates jobs of task {ready_key.task}"
    candidates = [
        each.spec for each in workers.eligible_workers(ready_key._replace(requirements=None))
    ]
    if not candidates or ready_key.requirements is None:
        task = f"task {ready_key.task} on " if ready_key.task else ""  # a reservation may have none
        return f"no worker offers {task}queue {ready_key.queue}"
    missing = {first_unmet_requirement(ready_key.requirements, spec): None for spec in candidates}
    return f"no worker offers {' and '.join(str(each) for each in missing)}"


def _render_needs(ready_key: ReadyKey) -> str:
    needs = ready_key.requirements.resources if ready_key.requirements is not None else ()
    return ", ".join(f"{render_amount(amount)} {name}" for name, amount in needs)


_WAITING = (State.SCHEDULED, State.RETRYING, State.BLOCKED)
_NAMED_MAX = 5
_SUSPECT = "its last worker died with several jobs"


_SENTENCES: dict[State, Callable[[Job], str]] = {
    State.SCHEDULED: lambda job: f"it is not due before {render_instant(job.due_at)}",
    State.BLOCKED: lambda job: "an earlier run of its schedule is not finished",
    State.RUNNING: lambda job: f"attempt {job.attempt} is running on {job.worker}",
    State.RETRYING: lambda job: (
        f"attempt {job.attempt} failed; the next one is due at {render_instant(job.due_at)}"
    ),
    State.COMPLETED: lambda job: "it is completed",
    State.FAILED: lambda job: job.failure.message if job.failure is not None else "it has failed",
    State.CANCELLED: lambda job: "it was cancelled",
    State.EXPIRED: lambda job: "it expired before it could start",
}
