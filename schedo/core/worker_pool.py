"""The attached workers: which jobs each can run, and how many slots it has free.

A worker names the tasks and queues that it serves, or serves all of them. Labels describe the
worker. Resources are amounts that it has and that running attempts use up.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from schedo.core.model import LeaseKey, Options, ReadyKey
from schedo.core.requirements import Requirements, ResourceAmounts, render_amount
from schedo.core.worker_groups import WorkerGroup, WorkerGroups

TASKS_KNOWN_MAX = 4_096
DEFAULTS_KEPT_MAX = 1_024  # of tasks whose workers have left
# The label of a child process that the process which replaces it has, too. No remote worker can
# have it, because of the colon.
PLACE_LABEL = "process:place"
_ANYWHERE = Requirements()


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """The properties that a worker registers. For `tasks` and `queues`, None means all."""

    id: str
    slots: int
    tasks: frozenset[str] | None = None
    queues: frozenset[str] | None = None
    task_defaults: Mapping[str, Options] = field(default_factory=dict)
    isolated: bool = False  # it runs only poison suspects, one at a time
    # Tasks whose poison suspects the worker itself isolates, so they may run beside other jobs.
    isolated_tasks: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)  # thousandths
    version: str | None = None
    polls: bool = False  # it gets at most as many attempts as its last poll requests
    durable_starts: bool = False  # it gets an attempt only when the start is on disk
    is_relayed: bool = False  # it polls another server, which asks in its name when it has room

    def isolates(self, task: str) -> bool:
        """Whether a poison suspect of the task cannot harm the attempts beside it."""
        return self.isolated or task in self.isolated_tasks

    def serves(self, ready_key: ReadyKey) -> bool:
        """Whether the worker can ever run jobs of the key, however busy it is.

        A key without a task, as a reservation may have, matches any task. Poison suspects run
        where they are isolated, or on a remote worker, one at a time.
        """
        return (
            (
                self.polls or self.isolates(ready_key.task)
                if ready_key.isolated
                else not self.isolated
            )
            and (self.tasks is None or ready_key.task in self.tasks or not ready_key.task)
            and (self.queues is None or ready_key.queue in self.queues)
            and (
                ready_key.requirements is None
                or first_unmet_requirement(ready_key.requirements, self) is None
            )
        )


def first_unmet_requirement(requirements: Requirements, spec: WorkerSpec) -> str | None:
    """Return the first requirement that the worker can never meet, in a few words, or None."""
    if requirements.worker is not None and requirements.worker != spec.id:
        return f"worker {requirements.worker}"
    for condition in requirements.labels:
        if not condition.holds(spec.labels):
            return f"label {condition}"
    for name, amount in requirements.resources:
        if amount > spec.resources.get(name, 0):
            return f"{render_amount(amount)} {name}"
    return None


def as_polling(spec: WorkerSpec) -> WorkerSpec:
    """Return the spec of a worker that gets leases only by polling."""
    return spec if spec.polls else replace(spec, polls=True)


class Worker:
    """An attached worker and its running attempts; `free` is how many more it takes now."""

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
        *("_freed", "_turns", "elsewhere", "groups", "in_poll", "suspects", "number", "used"),
        "virtual_time",
    )

    def __init__(
        self,
        spec: WorkerSpec,
        number: int = 0,
        freed: set[Worker] | None = None,
        turns: Iterator[int] | None = None,
    ) -> None:
        """Create a worker that adds itself to `freed` when it may have more free slots.

        turns: counts the assignments to all workers of the pool.
        """
        self.spec = spec
        self.number = number  # in the order in which they were attached
        self.groups: dict[WorkerGroup, None] = {}  # those that it is a member of
        self._freed = set() if freed is None else freed
        self._turns = itertools.count(1) if turns is None else turns
        self.running: dict[LeaseKey, ResourceAmounts] = {}
        self.used: dict[str, int] = {}
        self.suspects: set[LeaseKey] = set()  # poison suspects among the running attempts
        # What the current poll counts and may outlast: reservations, and leases without a response.
        self.in_poll: set[LeaseKey] = set()
        self.requested = 0  # how many attempts its poll still requests
        self.is_polling = False  # a poll of it is open
        self.elsewhere = 0  # how many attempts it runs for other servers
        # Negative and decreasing: the worker with the largest value has waited longest.
        self.last_assigned = 0
        self.virtual_time = 0.0  # at which the last job from a queue started on it
        self.is_open = True  # False: it finishes its attempts and gets no more
        self.is_cordoned = False  # the same, because an operator cordoned it
        self.free = 0
        self.refresh()

    def refresh(self) -> None:
        """Recompute `free`."""
        self.free = 0
        if self.is_open and not self.is_cordoned:
            self.free = self.spec.slots - len(self.running) - self.elsewhere
            if self.spec.polls:
                self.free = min(self.free, self.requested)
        if self.free > 0:
            self._freed.add(self)

    @property
    def slots_free(self) -> int:
        """The number of further attempts that the worker could run if it polled for them."""
        if self.spec.is_relayed or not self.is_open or self.is_cordoned:
            return max(self.free, 0)
        return self.spec.slots - len(self.running) - self.elsewhere

    @property
    def can_start_now(self) -> bool:
        """Whether an attempt reaches it at once: a poll is open, or it need not poll."""
        return self.is_polling or not self.spec.polls

    def capacity_for(self, requirements: Requirements | None) -> int:
        """Return how many more attempts with these requirements it takes now."""
        return self.fit(requirements, self.free)

    def fit(self, requirements: Requirements | None, free: int) -> int:
        """Return how many more attempts its resources allow, at most `free`."""
        if requirements is not None:
            for name, amount in requirements.resources:
                if amount:
                    left = self.spec.resources.get(name, 0) - self.used.get(name, 0)
                    free = min(free, left // amount)
        return free

    def hold(self, key: LeaseKey, amounts: ResourceAmounts, *, is_suspect: bool = False) -> None:
        """Take a slot and the resources for the attempt or reservation."""
        self.running[key] = amounts
        if is_suspect:
            self.suspects.add(key)
        for name, amount in amounts:
            self.used[name] = self.used.get(name, 0) + amount
        self.free -= 1
        self.requested -= 1
        if key.job_id < 0:
            self.in_poll.add(key)
        self.last_assigned = -next(self._turns)

    def release(self, key: LeaseKey) -> None:
        """Free the slot and the resources of the attempt or reservation."""
        amounts = self.running.pop(key, None)
        if amounts is None:
            return
        if self.suspects:
            self.suspects.discard(key)
        for name, amount in amounts:
            self.used[name] -= amount
        if self.in_poll and key in self.in_poll:  # the open poll can use this slot again
            self.in_poll.remove(key)
            self.requested += 1
        self.refresh()


def _preference_score(requirements: Requirements, worker: Worker) -> float:
    return requirements.preference_score(worker.spec.labels)


class WorkerPool:
    """The attached workers by id."""

    def __init__(self, cordoned: set[str] | None = None) -> None:
        """cordoned: names of workers that get no attempts; this pool changes the set."""
        self._cordoned = set[str]() if cordoned is None else cordoned
        self._workers: dict[str, Worker] = {}
        # Returns the worker with this id if it is attached.
        self.find: Callable[[str], Worker | None] = self._workers.get
        self._numbers = itertools.count()
        self._turns = itertools.count(1)
        # By task; cleared when a worker attaches or detaches.
        self._defaults: dict[str, Options | None] = {}
        self._left: dict[str, Options] = {}  # the defaults of workers that have left, by task
        self.plain_options: dict[str, Options] = {}  # a cache of JobMaker, cleared in the same way
        self.groups = WorkerGroups()
        self._offered: list[WorkerSpec] = []  # that were added

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._workers

    def __iter__(self) -> Iterator[Worker]:
        yield from self._workers.values()

    def outlives_server(self, worker_id: str) -> bool:
        """Whether the worker is a remote one, perhaps one that has not connected yet."""
        worker = self.find(worker_id)
        return worker is None or worker.spec.polls

    def attach(self, spec: WorkerSpec) -> Worker:
        """Add the worker, or replace its spec. Its running attempts stay."""
        known = self._workers.get(spec.id)
        if known is None:
            known = Worker(spec, next(self._numbers), self.groups.freed, self._turns)
            self._workers[spec.id] = known
            known.virtual_time = self.groups.virtual_time
            self._set_spec(known, spec)
        elif known.spec != spec:
            self._set_spec(known, spec)
        known.is_open = True
        known.is_cordoned = spec.id in self._cordoned
        known.refresh()
        return known

    def _set_spec(self, worker: Worker, spec: WorkerSpec) -> None:
        self._forget_defaults()
        self.groups.remove_worker(worker)
        self._offered.append(spec)
        worker.spec = spec
        self.groups.admit(worker)

    def take_offered(self) -> Sequence[WorkerSpec]:
        """Return the specs that were added since the last call."""
        if not self._offered:  # as after nearly every turn
            return ()
        offered, self._offered = self._offered, []
        return offered

    def detach(self, worker_id: str) -> list[LeaseKey]:
        """Remove the worker and return the leases that it still held."""
        worker = self._workers.pop(worker_id, None)
        if worker is None:
            return []
        self._forget_defaults()
        self._keep_defaults(worker.spec)
        self.groups.remove_worker(worker)
        return [key for key in worker.running if key.job_id > 0]

    def _forget_defaults(self) -> None:
        self._defaults.clear()
        self.plain_options.clear()

    def _keep_defaults(self, spec: WorkerSpec) -> None:
        """Keep the defaults of a worker that has left: it may be restarting."""
        for task in spec.tasks or ():
            self._left.pop(task, None)
        self._left.update(spec.task_defaults)
        while len(self._left) > DEFAULTS_KEPT_MAX:
            del self._left[next(iter(self._left))]

    def close(self, worker_id: str) -> None:
        """Assign no more attempts to the worker. Its running attempts continue."""
        self.set_open(worker_id, False)

    def set_open(self, worker_id: str, is_open: bool) -> None:
        """Assign attempts to the worker, or no more."""
        worker = self._workers.get(worker_id)
        if worker is not None and worker.is_open is not is_open:
            worker.is_open = is_open
            worker.refresh()

    def poll(self, worker_id: str, count: int, unsent: Collection[LeaseKey] = ()) -> None:
        """Set how many attempts the worker's poll requests beside `unsent` leases; 0: none."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.requested = count
            worker.is_polling = count > 0
            worker.in_poll = {*unsent}
            worker.refresh()

    def has_elsewhere(self, worker_id: str) -> bool:
        """Whether the worker runs anything for other servers."""
        worker = self._workers.get(worker_id)
        return worker is not None and worker.elsewhere > 0

    def note_elsewhere(self, worker_id: str, leases: Collection[LeaseKey]) -> None:
        """Note the attempts that the worker runs for other servers: each takes a slot.

        A gateway that cannot tell whose an attempt is names those of this server, too.
        """
        worker = self._workers[worker_id]
        count = sum(key not in worker.running for key in leases)
        if worker.elsewhere != count:
            worker.elsewhere = count
            worker.refresh()

    def cordon(self, worker_id: str, is_cordoned: bool) -> None:
        """Stop assigning attempts to the worker, or resume, now and when it attaches again."""
        (self._cordoned.add if is_cordoned else self._cordoned.discard)(worker_id)
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.is_cordoned = is_cordoned
            worker.refresh()

    def eligible_workers(self, ready_key: ReadyKey) -> list[Worker]:
        """Return the workers that serve the ready key, including busy ones."""
        return self.groups.find(ready_key).members

    def place(self, ready_key: ReadyKey, count: int, exclude: Collection[str] = ()) -> list[Worker]:
        """Return workers for `count` jobs of the ready key right now, or [] if not all fit.

        A worker that polls this server itself goes first, then the preferred one, then one with an
        open poll, then the one with the most free slots, then the one that has waited longest. A
        worker between two polls counts as well: it takes the job with its next poll.
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
                    not a[0].spec.is_relayed,
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
        """Return how many jobs of the ready key could run at once on otherwise idle workers."""
        requirements = ready_key.requirements or _ANYWHERE
        idle = (Worker(worker.spec) for worker in self.eligible_workers(ready_key))
        return sum(worker.fit(requirements, worker.spec.slots) for worker in idle)

    def hold(self, worker_id: str, key: LeaseKey, amounts: ResourceAmounts = ()) -> None:
        """Take a slot of the worker for the attempt; do nothing if the worker is gone."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.hold(key, amounts)

    def release(self, worker_id: str | None, key: LeaseKey) -> None:
        """Free the slot of the attempt; do nothing if the worker is gone."""
        worker = None if worker_id is None else self._workers.get(worker_id)
        if worker is not None:
            worker.release(key)

    def task_defaults(self, task: str) -> Options | None:
        """Return the defaults that a worker registered for the task, or None.

        While no worker names the task, those of the last one that has left count.
        """
        if task not in self._defaults:
            if len(self._defaults) >= TASKS_KNOWN_MAX:
                self._defaults.clear()
            announced = (worker.spec.task_defaults.get(task) for worker in self)
            found = next((each for each in announced if each is not None), None)
            if found is None and not any(task in (worker.spec.tasks or ()) for worker in self):
                found = self._left.get(task)
            self._defaults[task] = found
        return self._defaults[task]
