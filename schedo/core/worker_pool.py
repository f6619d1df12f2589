"""Who can run what, and how much room each has.

A worker has slots; it names the tasks and the queues it serves, or serves all. Labels say what it
is, resources what it has, of which running attempts use some.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from schedo.core.model import LeaseKey, Options, ReadyKey
from schedo.core.requirements import Requirements, ResourceAmounts, render_amount
from schedo.core.worker_groups import WorkerGroup, WorkerGroups

TASKS_KNOWN_MAX = 4_096
_turns = itertools.count(1)
_ANYWHERE = Requirements()


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker says of itself when it attaches; None means any."""

    id: str
    slots: int
    tasks: frozenset[str] | None = None
    queues: frozenset[str] | None = None
    task_defaults: Mapping[str, Options] = field(default_factory=dict)
    isolated: bool = False  # it runs suspects only, one at a time
    # Tasks whose suspects it runs isolated, beside other attempts.
    isolated_tasks: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)  # thousandths
    version: str | None = None
    polls: bool = False  # it gets only as many attempts as it asks for, each time anew
    durable_starts: bool = False  # it is given an attempt when the start is on disk

    def serves(self, ready_key: ReadyKey) -> bool:
        """Whether jobs of the lane may run here at all, however busy it is.

        A lane without a task, as a reservation may have, stands for any.
        """
        return (
            (
                ready_key.isolated is self.isolated
                or (ready_key.isolated and ready_key.task in self.isolated_tasks)
            )
            and (self.tasks is None or ready_key.task in self.tasks or not ready_key.task)
            and (self.queues is None or ready_key.queue in self.queues)
            and (
                ready_key.requirements is None
                or first_unmet_requirement(ready_key.requirements, self) is None
            )
        )


def first_unmet_requirement(requirements: Requirements, spec: WorkerSpec) -> str | None:
    """Return what of the route the worker can never meet, in a few words, or None."""
    if requirements.worker is not None and requirements.worker != spec.id:
        return f"worker {requirements.worker}"
    for condition in requirements.labels:
        if not condition.holds(spec.labels):
            return f"label {condition}"
    for name, amount in requirements.resources:
        if amount > spec.resources.get(name, 0):
            return f"{render_amount(amount)} {name}"
    return None


class Worker:
    """An attached worker and the attempts it holds; `free` says how many more it takes now."""

    __slots__ = (
        *(
            "requested",
            "free",
            "is_polling",
            "is_cordoned",
            "is_open",
            "spec",
            "running",
            "last_assigned",
        ),
        *("_freed", "groups", "reserved", "number", "used"),
    )

    def __init__(self, spec: WorkerSpec, number: int = 0, freed: set[Worker] | None = None) -> None:
        """`freed` is told when it may have more room than before."""
        self.spec = spec
        self.number = number  # in the order in which they were attached
        self.groups: dict[WorkerGroup, None] = {}  # those that it belongs to
        self._freed = set() if freed is None else freed
        self.running: dict[LeaseKey, ResourceAmounts] = {}
        self.used: dict[str, int] = {}
        self.reserved: set[LeaseKey] = set()  # reservations that take from what it asks for now
        self.requested = 0  # how many it asks for now, if it asks
        self.is_polling = False  # a request of it waits
        self.last_assigned = (
            0  # smaller when it was given something later; who waits longest goes first
        )
        self.is_open = True  # False: it finishes what it has and gets no more
        self.is_cordoned = False  # the same, because a person said so
        self.free = 0
        self.refresh()

    def refresh(self) -> None:
        """Work out anew how many more attempts it takes."""
        self.free = 0
        if self.is_open and not self.is_cordoned:
            self.free = self.spec.slots - len(self.running)
            if self.spec.polls:
                self.free = min(self.free, self.requested)
        if self.free > 0:
            self._freed.add(self)

    @property
    def slots_free(self) -> int:
        """How many more attempts it could take, if it asked."""
        is_taking = self.is_open and not self.is_cordoned
        return self.spec.slots - len(self.running) if is_taking else 0

    @property
    def can_start_now(self) -> bool:
        """Whether what is given to it reaches it at once."""
        return self.is_polling or not self.spec.polls

    def capacity_for(self, requirements: Requirements | None) -> int:
        """Return how many more attempts of such jobs it takes now."""
        return self.fit(requirements, self.free)

    def fit(self, requirements: Requirements | None, free: int) -> int:
        """Return how many more attempts of such jobs fit, at most so many."""
        if requirements is not None:
            for name, amount in requirements.resources:
                if amount:
                    left = self.spec.resources.get(name, 0) - self.used.get(name, 0)
                    free = min(free, left // amount)
        return free

    def hold(self, key: LeaseKey, amounts: ResourceAmounts) -> None:
        """Note that it runs the attempt."""
        self.running[key] = amounts
        for name, amount in amounts:
            self.used[name] = self.used.get(name, 0) + amount
        self.free -= 1
        self.requested -= 1
        if key.job_id < 0:
            self.reserved.add(key)
        self.last_assigned = -next(_turns)

    def release(self, key: LeaseKey) -> None:
        """Note that the attempt has ended."""
        amounts = self.running.pop(key, None)
        if amounts is None:
            return
        for name, amount in amounts:
            self.used[name] -= amount
        if key in self.reserved:  # what was reserved may be given after all
            self.reserved.remove(key)
            self.requested += 1
        self.refresh()


def _preference_score(requirements: Requirements, worker: Worker) -> float:
    return requirements.preference_score(worker.spec.labels)


class WorkerPool:
    """The attached workers by id."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._numbers = itertools.count()
        self._defaults: dict[str, Options | None] = {}  # by task, until somebody comes or goes
        self.groups = WorkerGroups()

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._workers

    def __iter__(self) -> Iterator[Worker]:
        yield from self._workers.values()

    def find(self, worker_id: str) -> Worker | None:
        """Return the worker if it is attached."""
        return self._workers.get(worker_id)

    def attach(self, spec: WorkerSpec) -> Worker:
        """Add the worker, or take its new offer; what it runs stays."""
        known = self._workers.get(spec.id)
        if known is None:
            known = self._workers[spec.id] = Worker(spec, next(self._numbers), self.groups.freed)
            self._set_spec(known, spec)
        elif known.spec != spec:
            self._set_spec(known, spec)
        known.is_open = True
        known.refresh()
        return known

    def _set_spec(self, worker: Worker, spec: WorkerSpec) -> None:
        self._defaults.clear()
        self.groups.dismiss(worker)
        worker.spec = spec
        self.groups.admit(worker)

    def detach(self, worker_id: str) -> list[LeaseKey]:
        """Forget the worker and return the attempts it still held."""
        worker = self._workers.pop(worker_id, None)
        if worker is None:
            return []
        self._defaults.clear()
        self.groups.dismiss(worker)
        return [key for key in worker.running if key.job_id > 0]

    def close(self, worker_id: str) -> None:
        """Give the worker no more; what it runs goes on."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.is_open = False
            worker.refresh()

    def poll(self, worker_id: str, count: int) -> None:
        """Give the worker at most so many more, until it asks again."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.requested = count
            worker.is_polling = count > 0
            worker.reserved.clear()
            worker.refresh()

    def cordon(self, worker_id: str, is_cordoned: bool) -> None:
        """Give the worker no more because a person says so, or again."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.is_cordoned = is_cordoned
            worker.refresh()

    def eligible_workers(self, ready_key: ReadyKey) -> list[Worker]:
        """Return the workers that serve the lane, busy ones included."""
        return self.groups.find(ready_key).members

    def place(self, ready_key: ReadyKey, count: int, exclude: Collection[str] = ()) -> list[Worker]:
        """Return workers for so many jobs of the lane right now, all of them or none.

        The liked ones first, of those who ask at this moment, then those with the most room, then
        those that have waited longest. One between two requests is as good as there.
        """
        requirements = ready_key.requirements or _ANYWHERE
        free = {
            each.spec.id: (each, each.fit(requirements, each.slots_free))
            for each in self.eligible_workers(ready_key)
            if each.spec.id not in exclude
        }
        chosen: list[Worker] = []
        taken: Counter[str] = Counter()
        while len(chosen) < count:
            candidates = [(w, left - taken[name]) for name, (w, left) in free.items()]
            candidates = [(worker, left) for worker, left in candidates if left > 0]
            if not candidates:
                return []
            worker, _ = max(
                candidates,
                key=lambda a: (
                    _preference_score(requirements, a[0]),
                    a[0].can_start_now,
                    a[1],
                    a[0].last_assigned,
                ),
            )
            chosen.append(worker)
            taken[worker.spec.id] += 1
        return chosen

    def capacity(self, ready_key: ReadyKey) -> int:
        """Return how many jobs of the lane would run at once if nothing else did."""
        requirements = ready_key.requirements or _ANYWHERE
        idle = (Worker(worker.spec) for worker in self.eligible_workers(ready_key))
        return sum(worker.fit(requirements, worker.spec.slots) for worker in idle)

    def count_rejections(self, ready_key: ReadyKey) -> dict[str, int]:
        """Count by reason why the workers do not take a job of the lane now."""
        reasons: Counter[str] = Counter()
        requirements = ready_key.requirements or _ANYWHERE
        for worker in self._workers.values():
            spec = worker.spec
            if not spec.serves(ready_key._replace(requirements=None)):
                reasons["task"] += 1
            elif first_unmet_requirement(requirements, spec) is not None:
                reasons["requirements"] += 1
            elif worker.is_cordoned or not worker.is_open:
                reasons["draining"] += 1
            elif spec.slots <= len(worker.running):
                reasons["no_slots"] += 1
            elif worker.fit(requirements, 1) <= 0:
                reasons["resources"] += 1
            else:
                reasons["too_few"] += 1  # it has room, but not for all that were asked for
        return dict(reasons)

    def hold(self, worker_id: str, key: LeaseKey, amounts: ResourceAmounts = ()) -> None:
        """Note that the worker runs the attempt; harmless if the worker is gone."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.hold(key, amounts)

    def release(self, worker_id: str | None, key: LeaseKey) -> None:
        """Note that the attempt has ended; harmless if the worker is gone."""
        worker = self._workers.get(worker_id or "")
        if worker is not None:
            worker.release(key)

    def task_defaults(self, task: str) -> Options | None:
        """Return the defaults that a worker announced for the task, or None."""
        if task not in self._defaults:
            if len(self._defaults) >= TASKS_KNOWN_MAX:
                self._defaults.clear()
            announced = (worker.spec.task_defaults.get(task) for worker in self)
            self._defaults[task] = next((each for each in announced if each is not None), None)
        return self._defaults[task]
