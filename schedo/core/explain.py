"""Explains what a job waits for, so that no job waits without a visible reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Literal, NamedTuple

from schedo.core.instants import render_instant
from schedo.core.job_table import JobTable
from schedo.core.model import Job, Location, Pause, PauseScope, ReadyKey
from schedo.core.pauses import describe_pause
from schedo.core.requirements import render_amount
from schedo.core.states import State
from schedo.core.worker_obstacles import Obstacle, WorkerReason, explain_worker, first_obstacle
from schedo.core.worker_pool import Worker, WorkerPool, first_unmet_requirement
from schedo.core.worker_session import Session

WORKERS_MAX = 64

What = Literal[
    "state", "worker", "due", "earlier_run", "server", "queue", "concurrency", "slot", "turn"
]


class Check(NamedTuple):
    """One condition of a start, and whether it holds."""

    what: What
    is_ok: bool
    text: str
    is_permanent: bool = False  # time alone does not remove the obstacle


class Explanation(NamedTuple):
    """All checks of a job, permanent obstacles first, and what each worker says."""

    checks: Sequence[Check]
    workers: Sequence[WorkerReason] = ()  # WORKERS_MAX at most, those that serve the job first
    has_more_workers: bool = False

    @property
    def reasons(self) -> list[str]:
        """All reasons why the job is not running, or that it is running, or how it ended."""
        failed = [check.text for check in self.checks if not check.is_ok]
        return failed or [self.checks[-1].text]


class Explainer:
    """Explains the jobs of one scheduler."""

    def __init__(
        self,
        jobs: JobTable,
        workers: WorkerPool,
        sessions: Mapping[str, Session],
        pauses: Callable[[], Sequence[Pause]],
    ) -> None:
        self._jobs = jobs
        self._workers = workers
        self._sessions = sessions
        self._pauses = pauses

    def explain(self, job: Job, workers_max: int = WORKERS_MAX) -> Explanation:
        """Return all checks of the job; of a job that runs or has ended only its state."""
        if job.state not in _WAITING:
            return Explanation([Check("state", True, _SENTENCES[job.state](job))])
        checks = sorted(self._check(job), key=lambda check: (check.is_ok, not check.is_permanent))
        if all(check.is_ok for check in checks):
            checks.append(_check_turn(job, self._jobs))
        reasons, has_more = self.explain_workers(job.ready_key, workers_max)
        return Explanation(checks, reasons, has_more)

    def explain_workers(
        self, ready_key: ReadyKey, limit: int = WORKERS_MAX
    ) -> tuple[list[WorkerReason], bool]:
        """Return what `limit` workers say about a job of the key, and whether there are more.

        First come those that could ever run it, then those that could but are not attached.
        """
        eligible = self._workers.eligible_workers(ready_key)
        others = chain(self._find_away(ready_key), _without(self._workers, eligible))
        found = list(islice(chain(eligible, others), limit + 1))
        reasons = [
            explain_worker(worker, ready_key, self._sessions.get(worker.spec.id))
            for worker in found[:limit]
        ]
        return reasons, len(found) > limit

    def _find_away(self, ready_key: ReadyKey) -> Iterator[Worker]:
        """Yield the workers that serve the key and have a session but are not attached."""
        for name, session in self._sessions.items():
            if name not in self._workers and session.spec.serves(ready_key):
                yield Worker(session.spec)

    def _check(self, job: Job) -> Iterator[Check]:
        """Yield the checks of a waiting job, except for its turn."""
        ready_key = job.ready_key
        eligible = self._workers.eligible_workers(ready_key)
        if eligible:
            yield Check("worker", True, f"{_count(len(eligible), 'worker')} could run it")
        else:
            text = explain_no_worker(ready_key, self._workers)
            yield Check("worker", False, text, is_permanent=True)
        if job.state is State.BLOCKED:
            yield Check("earlier_run", False, _SENTENCES[job.state](job))
            return
        is_due = job.state is State.QUEUED
        since = f"it has been due since {render_instant(job.due_at)}"
        yield Check("due", is_due, since if is_due else _SENTENCES[job.state](job))
        yield _check_server(self._pauses())
        yield _check_queue(job.queue, self._jobs)
        if is_due:
            yield from self._check_room(ready_key, eligible)

    def _check_room(self, ready_key: ReadyKey, eligible: Sequence[Worker]) -> Iterator[Check]:
        """Yield whether the queue and a worker have room for one more job."""
        yield _check_concurrency(ready_key.queue, self._jobs)
        if eligible:
            yield _check_slot(ready_key, eligible, self._sessions)


def _check_server(pauses: Sequence[Pause]) -> Check:
    for pause in pauses:
        if pause.scope is PauseScope.STARTS:
            how = describe_pause(pause.note, pause.until)
            text = f"the server is paused{how}: no job starts until it is resumed"
            return Check("server", False, text, is_permanent=pause.until is None)
    return Check("server", True, "the server is not paused")


def _check_queue(name: str, jobs: JobTable) -> Check:
    queue = jobs.ready_queues.queue_state(name).queue
    if not queue.paused:
        return Check("queue", True, f"queue {name} is not paused")
    pause = queue.pause
    how = describe_pause(pause.note, pause.until) if pause is not None else ""
    is_permanent = pause is None or pause.until is None
    return Check("queue", False, f"queue {name} is paused{how}", is_permanent)


def _check_concurrency(name: str, jobs: JobTable) -> Check:
    queue_state = jobs.ready_queues.queue_state(name)
    limit = queue_state.queue.concurrency
    if limit is None:
        return Check("concurrency", True, f"queue {name} has no concurrency limit")
    running, share = queue_state.running, queue_state.share
    if share is not None and share <= running < limit:
        text = f"queue {name} runs {running} jobs here; the rest of its concurrency limit of"
        return Check("concurrency", False, f"{text} {limit} is for other servers at the moment")
    if running >= limit:
        text = f"queue {name} runs {running} jobs, which is its concurrency limit"
        return Check("concurrency", False, text)
    return Check("concurrency", True, f"queue {name} runs {running} of {limit} jobs")


def _check_slot(
    ready_key: ReadyKey, eligible: Sequence[Worker], sessions: Mapping[str, Session]
) -> Check:
    """Return whether one of the eligible workers takes the job now."""
    obstacles = {
        worker: first_obstacle(worker, ready_key, sessions.get(worker.spec.id))
        for worker in eligible
    }
    free = [worker for worker, obstacle in obstacles.items() if obstacle is None]
    if free:
        return Check("slot", True, f"{_name(free)} could take it now")
    if _CLOSED.issuperset(obstacles.values()):
        text = f"all workers that could run it are cordoned or draining: {_name(eligible)}"
        return Check("slot", False, text, is_permanent=True)
    return Check("slot", False, _explain_busy(ready_key, obstacles))


def _explain_busy(ready_key: ReadyKey, obstacles: Mapping[Worker, Obstacle | None]) -> str:
    """Return what the worker that is nearest to taking the job waits for."""
    nearest = max(_NEARNESS.index(each) for each in obstacles.values() if each in _NEARNESS)
    workers = [worker for worker, each in obstacles.items() if each is _NEARNESS[nearest]]
    match _NEARNESS[nearest]:
        case Obstacle.DISCONNECTED:
            return f"no worker that could run it is connected now: {_name(workers)}"
        case Obstacle.SLOTS:
            slots = sum(worker.spec.slots for worker in workers)
            return f"all {slots} slots for task {ready_key.task} are taken"
        case Obstacle.SUSPECT:
            return f"{_SUSPECT}, and a worker runs one such job at a time"
        case Obstacle.RESOURCES:
            return f"the resources that it needs are in use: {_render_needs(ready_key)}"
        case _:
            return f"no worker that could run it is polling now: {_name(workers)}"


def _check_turn(job: Job, jobs: JobTable) -> Check:
    """Return whether the job, which nothing else keeps from starting, is the next one."""
    if job.location is Location.HELD_BACK:
        text = "it waits a moment for a worker of the previous server that may run it already"
        return Check("turn", False, text)
    if job.location is not Location.READY:
        ahead = len(jobs.ready_queues.ready_index(job.ready_key) or ())
        return Check("turn", False, f"at least {ahead} ready jobs of its queue and task go first")
    return Check("turn", True, "it is next")


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


def _without(workers: WorkerPool, known: Collection[Worker]) -> Iterator[Worker]:
    seen = {worker.spec.id for worker in known}
    return (worker for worker in workers if worker.spec.id not in seen)


def _name(workers: Sequence[Worker]) -> str:
    names = ", ".join(worker.spec.id for worker in workers[:_NAMED_MAX])
    return names if len(workers) <= _NAMED_MAX else f"{names} and {len(workers) - _NAMED_MAX} more"


def _count(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


_WAITING = (State.QUEUED, State.SCHEDULED, State.RETRYING, State.BLOCKED)
_NAMED_MAX = 5
_SUSPECT = "its last worker died with several jobs"
_CLOSED = frozenset({Obstacle.CORDONED, Obstacle.DRAINING})
# The obstacles that pass, by how near the worker is to taking the job.
_NEARNESS = (
    *(Obstacle.DISCONNECTED, Obstacle.SLOTS, Obstacle.SUSPECT),
    *(Obstacle.RESOURCES, Obstacle.POLL),
)


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
