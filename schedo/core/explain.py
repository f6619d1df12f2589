"""Explains what a job waits for, so that no job waits without a visible reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Literal, NamedTuple

from schedo.core.instants import render_instant
from schedo.core.job_table import JobTable
from schedo.core.model import Job, Location, Pause, PauseScope, ReadyKey
from schedo.core.pauses import describe_pause
from schedo.core.remote_reasons import ALONE, Others, RemoteReason, RemoteReasons, join_reasons
from schedo.core.requirements import render_amount
from schedo.core.states import WAITING, State
from schedo.core.worker_obstacles import (
    Obstacle,
    WorkerReason,
    distance,
    explain_worker,
    first_obstacle,
)
from schedo.core.worker_pool import Worker, WorkerPool, first_unmet_requirement
from schedo.core.worker_session import Session

WORKERS_MAX = 64
FEW = 8  # workers of another server, of which one is the nearest to taking a job
_NOWHERE: Mapping[str, RemoteReason] = MappingProxyType({})

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


class _Taker(NamedTuple):
    """A worker that could run a job, and what keeps the job from it."""

    name: str
    slots: int
    obstacle: Obstacle | None


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

    def explain(
        self, job: Job, workers_max: int = WORKERS_MAX, others: Others = ALONE
    ) -> Explanation:
        """Return all checks of the job; of a job that runs or has ended only its state.

        others: what the other servers of a cluster say about its ready key.
        """
        if job.state not in WAITING:
            return Explanation([Check("state", True, _SENTENCES[job.state](job))])
        elsewhere = join_reasons(others, self._sessions)
        found = self._check(job, others, elsewhere)
        checks = sorted(found, key=lambda check: (check.is_ok, not check.is_permanent))
        if all(check.is_ok for check in checks):
            checks.append(_check_turn(job, self._jobs))
        reasons, has_more = self.explain_workers(job.ready_key, workers_max, elsewhere)
        if others is not ALONE:
            reasons = [
                each if each.server else each._replace(server=others.own_name) for each in reasons
            ]
        return Explanation(checks, reasons, has_more or others.have_more)

    def explain_workers(
        self,
        ready_key: ReadyKey,
        limit: int = WORKERS_MAX,
        elsewhere: Mapping[str, RemoteReason] = _NOWHERE,
    ) -> tuple[list[WorkerReason], bool]:
        """Return what `limit` workers say about a job of the key, and whether there are more.

        First come those that could ever run it, then those that could but are not attached.
        elsewhere: what other servers know better, by the name of the worker.
        """
        workers = (each for each in self._find(ready_key) if each.spec.id not in elsewhere)
        reasons = [self._explain(each, ready_key) for each in islice(workers, limit + 1)]
        if elsewhere:
            reasons += [each.reason for each in elsewhere.values()]
            reasons.sort(key=distance)
        return reasons[:limit], len(reasons) > limit

    def explain_remote(self, ready_key: ReadyKey, *, only_able: bool = False) -> RemoteReasons:
        """Return what the remote workers that poll this server say about a job of another one.

        only_able: only FEW workers that could ever run it, which takes less time.
        """
        able = self._workers.eligible_workers(ready_key)
        if only_able:
            able = [*islice(filter(self._polls_here, able), FEW + 1)]
        eligible = {each.spec.id for each in able}
        found = [
            RemoteReason(
                self._explain(worker, ready_key),
                worker.spec.slots,
                worker.spec.id in eligible,
                self._sessions[worker.spec.id].last_seen_at or 0,
            )
            for worker in (able if only_able else self._find(ready_key))
            if self._polls_here(worker)
        ]
        found.sort(key=lambda each: (not each.is_able, distance(each.reason)))
        most = FEW if only_able else WORKERS_MAX
        if only_able and found:
            return RemoteReasons(found[:most], len(found) > most)
        unmet = dict.fromkeys(_find_unmet(ready_key, self._workers, self._polls_here))
        return RemoteReasons(found[:most], len(found) > most, [*unmet])

    def _find(self, ready_key: ReadyKey) -> Iterator[Worker]:
        """Yield all workers, those that could ever run jobs of the key first."""
        eligible = self._workers.eligible_workers(ready_key)
        return chain(eligible, self._find_away(ready_key), _without(self._workers, eligible))

    def _find_away(self, ready_key: ReadyKey) -> Iterator[Worker]:
        """Yield the workers that serve the key and have a session but are not attached."""
        for name, session in self._sessions.items():
            if name not in self._workers and session.spec.serves(ready_key):
                yield Worker(session.spec)

    def _explain(self, worker: Worker, ready_key: ReadyKey) -> WorkerReason:
        return explain_worker(worker, ready_key, self._sessions.get(worker.spec.id))

    def _polls_here(self, worker: Worker) -> bool:
        """Whether it is a remote worker, and no other server asks in its name."""
        return worker.spec.id in self._sessions and not worker.spec.is_relayed

    def _check(
        self, job: Job, others: Others, elsewhere: Mapping[str, RemoteReason]
    ) -> Iterator[Check]:
        """Yield the checks of a waiting job, except for its turn."""
        ready_key = job.ready_key
        own = self._workers.eligible_workers(ready_key)
        if elsewhere:
            own = [worker for worker in own if worker.spec.id not in elsewhere]
        able = [each for each in elsewhere.values() if each.is_able]
        yield self._check_worker(ready_key, len(own) + len(able), others)
        if job.state is State.BLOCKED:
            yield Check("earlier_run", False, _SENTENCES[job.state](job))
            return
        is_due = job.state is State.QUEUED
        since = f"it has been due since {render_instant(job.due_at)}"
        yield Check("due", is_due, since if is_due else _SENTENCES[job.state](job))
        yield _check_server(self._pauses())
        yield _check_queue(job.queue, self._jobs)
        if is_due:
            yield _check_concurrency(job.queue, self._jobs)
            if own or able:
                takers = [self._as_taker(worker, ready_key) for worker in own]
                takers += [
                    _Taker(each.reason.worker, each.slots, each.reason.obstacle) for each in able
                ]
                are_all = not (others.have_more_able or others.missing)
                yield _check_slot(ready_key, takers, are_all=are_all)

    def _check_worker(self, ready_key: ReadyKey, count: int, others: Others) -> Check:
        """Return whether any worker could ever run a job of the key; `count` could."""
        if count:
            at_least = "at least " if others.have_more_able else ""
            return Check("worker", True, f"{at_least}{_count(count, 'worker')} could run it")
        unmet = chain.from_iterable(said.unmet for said in others.said.values())
        text = explain_no_worker(ready_key, self._workers, unmet)
        if others.missing:  # perhaps one of their workers could
            text += f", as far as is known without {' and '.join(others.missing)}"
        return Check("worker", False, text, is_permanent=not others.missing)

    def _as_taker(self, worker: Worker, ready_key: ReadyKey) -> _Taker:
        name = worker.spec.id
        obstacle = first_obstacle(worker, ready_key, self._sessions.get(name))
        return _Taker(name, worker.spec.slots, obstacle)


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
        which = "which is its concurrency limit"
        if running > limit:  # it was lowered meanwhile
            which = f"more than its concurrency limit of {limit}"
        return Check("concurrency", False, f"queue {name} runs {running} jobs, {which}")
    return Check("concurrency", True, f"queue {name} runs {running} of {limit} jobs")


def _check_slot(ready_key: ReadyKey, takers: Sequence[_Taker], *, are_all: bool) -> Check:
    """Return whether one of the workers that could run the job takes it now.

    are_all: whether no other worker could run it.
    """
    free = [each for each in takers if each.obstacle is None]
    if free:
        return Check("slot", True, f"{_name(free)} could take it now")
    if _CLOSED.issuperset(each.obstacle for each in takers):
        text = f"all workers that could run it are cordoned or draining: {_name(takers)}"
        return Check("slot", False, text, is_permanent=are_all)
    return Check("slot", False, _explain_busy(ready_key, takers, are_all=are_all))


def _explain_busy(ready_key: ReadyKey, takers: Sequence[_Taker], *, are_all: bool) -> str:
    """Return what the worker that is nearest to taking the job waits for."""
    found = (each.obstacle for each in takers)
    nearest = max(_NEARNESS.index(each) for each in found if each in _NEARNESS)
    workers = [each for each in takers if each.obstacle is _NEARNESS[nearest]]
    match _NEARNESS[nearest]:
        case Obstacle.DISCONNECTED:
            return f"no worker that could run it is connected now: {_name(workers)}"
        case Obstacle.SLOTS:
            slots = f"{sum(each.slots for each in workers)} slots" if are_all else "slots"
            return f"all {slots} for task {ready_key.task} are taken"
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


def explain_no_worker(
    ready_key: ReadyKey, workers: WorkerPool, unmet_elsewhere: Iterable[str] = ()
) -> str:
    """Return what no worker offers: the task itself, isolation, or a requirement of the job.

    unmet_elsewhere: what workers of other servers lack that offer the task.
    """
    if ready_key.isolated and workers.eligible_workers(ready_key._replace(isolated=False)):
        return f"{_SUSPECT}, and no worker isolates jobs of task {ready_key.task}"
    unmet = dict.fromkeys((*_find_unmet(ready_key, workers), *unmet_elsewhere))
    if not unmet:
        task = f"task {ready_key.task} on " if ready_key.task else ""  # a reservation may have none
        return f"no worker offers {task}queue {ready_key.queue}"
    return f"no worker offers {' and '.join(unmet)}"


def _find_unmet(
    ready_key: ReadyKey, workers: WorkerPool, counts: Callable[[Worker], bool] | None = None
) -> Iterator[str]:
    """Yield the first requirement that each worker lacks which could run the job without any.

    counts: whether a worker counts; None: all do.
    """
    if ready_key.requirements is not None:
        for worker in workers.eligible_workers(ready_key._replace(requirements=None)):
            unmet = first_unmet_requirement(ready_key.requirements, worker.spec)
            if unmet is not None and (counts is None or counts(worker)):
                yield unmet


def _render_needs(ready_key: ReadyKey) -> str:
    needs = ready_key.requirements.resources if ready_key.requirements is not None else ()
    return ", ".join(f"{render_amount(amount)} {name}" for name, amount in needs)


def _without(workers: WorkerPool, known: Collection[Worker]) -> Iterator[Worker]:
    seen = {worker.spec.id for worker in known}
    return (worker for worker in workers if worker.spec.id not in seen)


def _name(workers: Sequence[_Taker]) -> str:
    names = ", ".join(worker.name for worker in workers[:_NAMED_MAX])
    return names if len(workers) <= _NAMED_MAX else f"{names} and {len(workers) - _NAMED_MAX} more"


def _count(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


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
    State.EXPIRED: lambda job: (
        "it expired before it could start"
        if not job.attempt
        else f"it expired after attempt {job.attempt}, before the next one could start"
    ),
}
