"""Why a worker does not take a job of a ready key now: one obstacle for each worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from schedo.core.instants import render_instant
from schedo.core.model import ReadyKey
from schedo.core.requirements import Condition, Requirements, render_amount
from schedo.core.worker_pool import Worker, WorkerSpec
from schedo.core.worker_session import Session, SessionState


class Obstacle(StrEnum):
    """What keeps a job from a worker; the first that holds is the worker's reason."""

    ISOLATION = "isolation"
    TASK = "task"
    QUEUE = "queue"
    REQUIREMENTS = "requirements"
    DISCONNECTED = "disconnected"
    DRAINING = "draining"
    CORDONED = "cordoned"
    SLOTS = "slots"
    SUSPECT = "suspect"
    RESOURCES = "resources"
    POLL = "poll"


# Those that last until the worker registers otherwise, or until an operator changes it.
LASTING = frozenset(
    {
        *(Obstacle.ISOLATION, Obstacle.TASK, Obstacle.QUEUE, Obstacle.REQUIREMENTS),
        *(Obstacle.DRAINING, Obstacle.CORDONED),
    }
)
# The word that responses to invocations use for a rejection, by obstacle.
_REJECTIONS: Mapping[Obstacle | None, str] = {
    Obstacle.ISOLATION: "task",
    Obstacle.TASK: "task",
    Obstacle.QUEUE: "task",
    Obstacle.REQUIREMENTS: "requirements",
    Obstacle.DISCONNECTED: "draining",
    Obstacle.DRAINING: "draining",
    Obstacle.CORDONED: "draining",
    Obstacle.SLOTS: "no_slots",
    Obstacle.RESOURCES: "resources",
}
# How far a worker with this obstacle is from taking a job; the first of them are the farthest.
_DISTANCES: Mapping[Obstacle | None, int] = {
    obstacle: distance for distance, obstacle in enumerate((None, *reversed(Obstacle)))
}
_TOO_FEW = "too_few"  # it has free slots, but not for all the jobs


class WorkerReason(NamedTuple):
    """Whether a worker could take a job now, and if not, why."""

    worker: str
    obstacle: Obstacle | None  # None: it could
    text: str
    server: str = ""  # of a cluster, which says this

    @property
    def is_permanent(self) -> bool:
        """Whether time alone does not remove the obstacle."""
        return self.obstacle in LASTING


def distance(reason: WorkerReason) -> int:
    """Return how far the worker is from taking a job: the larger the farther, 0 if it could."""
    return _DISTANCES[reason.obstacle]


def find_lasting(spec: WorkerSpec, ready_key: ReadyKey) -> Obstacle | None:
    """Return why the worker can never run jobs of the key, or None if it `serves` the key."""
    if spec.serves(ready_key):
        return None
    if spec.tasks is not None and ready_key.task and ready_key.task not in spec.tasks:
        return Obstacle.TASK
    if spec.queues is not None and ready_key.queue not in spec.queues:
        return Obstacle.QUEUE
    if not spec.serves(ready_key._replace(requirements=None)):
        return Obstacle.ISOLATION
    return Obstacle.REQUIREMENTS


def first_obstacle(
    worker: Worker, ready_key: ReadyKey, session: Session | None = None
) -> Obstacle | None:
    """Return the first reason why the worker does not take a job of the key now, or None.

    session: of a remote worker.
    """
    if session is not None and session.session_id is None:  # so what it offers is unknown
        return Obstacle.DISCONNECTED
    lasting = find_lasting(worker.spec, ready_key)
    if lasting is not None:
        return lasting
    return _find_closed(worker, session) or _find_full(worker, ready_key)


def _find_closed(worker: Worker, session: Session | None) -> Obstacle | None:
    if session is not None and is_silent(session):
        return Obstacle.DISCONNECTED
    if not worker.is_open or (session is not None and session.drain_requested):
        return Obstacle.DRAINING
    return Obstacle.CORDONED if worker.is_cordoned else None


def _find_full(worker: Worker, ready_key: ReadyKey) -> Obstacle | None:
    if worker.slots_free <= 0:
        return Obstacle.SLOTS
    if _is_alone(worker, ready_key):
        return Obstacle.SUSPECT
    if worker.fit(ready_key.requirements, 1) <= 0:
        return Obstacle.RESOURCES
    return None if worker.free > 0 else Obstacle.POLL


def explain_worker(worker: Worker, ready_key: ReadyKey, session: Session | None) -> WorkerReason:
    """Return whether the worker could take a job of the key now, and if not, why."""
    obstacle = first_obstacle(worker, ready_key, session)
    return WorkerReason(worker.spec.id, obstacle, _TEXTS[obstacle](worker, ready_key, session))


def count_rejections(workers: Iterable[Worker], ready_key: ReadyKey) -> dict[str, int]:
    """Count by reason why the workers do not take a job of the ready key now."""
    found = (first_obstacle(worker, ready_key) for worker in workers)
    return dict(Counter(_REJECTIONS.get(each, _TOO_FEW) for each in found))


def is_silent(session: Session) -> bool:
    """Whether the worker is shut down or lost, or its connection has broken."""
    return not session.is_connected or session.state is SessionState.BROKEN


def _is_alone(worker: Worker, ready_key: ReadyKey) -> bool:
    """Whether the job may not run beside another one that the worker has."""
    return ready_key.isolated and bool(worker.suspects) and not worker.spec.isolates(ready_key.task)


def _describe_silence(session: Session | None) -> str:
    assert session is not None, "only a worker with a session can be without a connection"
    if session.last_seen_at is None:
        return "it has not sent a request since the server started"
    return f"it is not connected: its last request came at {render_instant(session.last_seen_at)}"


def _unmet_text(worker: Worker, ready_key: ReadyKey, session: Session | None) -> str:
    assert ready_key.requirements is not None, "the worker does not meet them"
    return "; ".join(_unmet(ready_key.requirements, worker.spec))


def _short_text(worker: Worker, ready_key: ReadyKey, session: Session | None) -> str:
    assert ready_key.requirements is not None, "without them the job needs no resources"
    return "; ".join(_short(ready_key.requirements, worker))


def _unmet(requirements: Requirements, spec: WorkerSpec) -> Iterator[str]:
    """Yield all requirements that the worker can never meet."""
    if requirements.worker is not None and requirements.worker != spec.id:
        yield f"the job requires worker {requirements.worker}"
    for condition in requirements.labels:
        if not condition.holds(spec.labels):
            yield _describe_label(condition, spec.labels)
    for name, amount in requirements.resources:
        has = spec.resources.get(name, 0)
        if amount > has:
            needs = f"and the job requires {render_amount(amount)}"
            yield f"it has {render_amount(has)} {name}, {needs}"


def _describe_label(condition: Condition, labels: Mapping[str, str]) -> str:
    found = labels.get(condition.label)
    if found is None:
        return f"it has no label {condition.label}, and the job requires {condition}"
    return f"its label {condition.label} is {found}, and the job requires {condition}"


def _short(requirements: Requirements, worker: Worker) -> Iterator[str]:
    """Yield the resources of which too little is free."""
    for name, amount in requirements.resources:
        left = worker.spec.resources.get(name, 0) - worker.used.get(name, 0)
        if amount > left:
            needs = f"and the job requires {render_amount(amount)}"
            yield f"{render_amount(left)} {name} is free, {needs}"


_ISOLATED = "it runs only jobs whose last worker died with several jobs"
_SHARED = "it does not isolate a job whose last worker died with several jobs"
_TEXTS: Mapping[Obstacle | None, Callable[[Worker, ReadyKey, Session | None], str]] = {
    None: lambda *_: "it could take the job now",
    Obstacle.ISOLATION: lambda worker, *_: _ISOLATED if worker.spec.isolated else _SHARED,
    Obstacle.TASK: lambda worker, key, _: f"it does not offer task {key.task}",
    Obstacle.QUEUE: lambda worker, key, _: f"it does not take jobs of queue {key.queue}",
    Obstacle.REQUIREMENTS: _unmet_text,
    Obstacle.DISCONNECTED: lambda worker, key, session: _describe_silence(session),
    Obstacle.DRAINING: lambda *_: "it is draining: it finishes its jobs and takes no more",
    Obstacle.CORDONED: lambda *_: "it is cordoned: it takes no more jobs until it is uncordoned",
    Obstacle.SLOTS: lambda worker, *_: f"all {worker.spec.slots} slots are taken",
    Obstacle.SUSPECT: lambda *_: (
        "it runs another job whose last worker died, and such jobs run one at a time"
    ),
    Obstacle.RESOURCES: _short_text,
    Obstacle.POLL: lambda *_: (
        "it has free slots but no open poll: it takes the job when it polls again"
    ),
}
