"""Who can run what, and how much room each has.

A worker has slots; it names the tasks and the queues it serves, or serves all. Labels say what it
is, resources what it has, of which running attempts use some.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from schedo.core.model import Lane, LeaseKey, Options
from schedo.core.routes import Amounts, Route, render_amount
from schedo.core.worker_groups import WorkerGroup, WorkerGroups

TASKS_KNOWN_MAX = 4_096
_turns = itertools.count(1)
_ANYWHERE = Route()


@dataclass(frozen=True, slots=True)
class WorkerOffer:
    """What a worker says of itself when it attaches; None means any."""

    id: str
    slots: int
    tasks: frozenset[str] | None = None
    queues: frozenset[str] | None = None
    task_defaults: Mapping[str, Options] = field(default_factory=dict)
    alone: bool = False  # it runs suspects only, one at a time
    apart: frozenset[str] = frozenset()  # tasks whose suspects it runs beside others, but apart
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)  # thousandths
    version: str | None = None
    asks: bool = False  # it gets only as many attempts as it asks for, each time anew
    durable_starts: bool = False  # it is given an attempt when the start is on disk

    def serves(self, lane: Lane) -> bool:
        """Whether jobs of the lane may run here at all, however busy it is.

        A lane without a task, as a reservation may have, stands for any.
        """
        return (
            (lane.alone is self.alone or (lane.alone and lane.task in self.apart))
            and (self.tasks is None or lane.task in self.tasks or not lane.task)
            and (self.queues is None or lane.queue in self.queues)
            and (lane.route is None or find_obstacle(lane.route, self) is None)
        )


def find_obstacle(route: Route, offer: WorkerOffer) -> str | None:
    """Return what of the route the worker can never meet, in a few words, or None."""
    if route.worker is not None and route.worker != offer.id:
        return f"worker {route.worker}"
    for condition in route.labels:
        if not condition.holds(offer.labels):
            return f"label {condition}"
    for name, amount in route.resources:
        if amount > offer.resources.get(name, 0):
            return f"{render_amount(amount)} {name}"
    return None


class Worker:
    """An attached worker and the attempts it holds; `free` says how many more it takes now."""

    __slots__ = (
        *("asked", "free", "is_asking", "is_cordoned", "is_open", "offer", "running", "turn"),
        *("_freed", "groups", "lent", "number", "used"),
    )

    def __init__(
        self, offer: WorkerOffer, number: int = 0, freed: set[Worker] | None = None
    ) -> None:
        """`freed` is told when it may have more room than before."""
        self.offer = offer
        self.number = number  # in the order in which they were attached
        self.groups: dict[WorkerGroup, None] = {}  # those that it belongs to
        self._freed = set() if freed is None else freed
        self.running: dict[LeaseKey, Amounts] = {}
        self.used: dict[str, int] = {}
        self.lent: set[LeaseKey] = set()  # reservations that take from what it asks for now
        self.asked = 0  # how many it asks for now, if it asks
        self.is_asking = False  # a request of it waits
        self.turn = 0  # smaller when it was given something later; who waits longest goes first
        self.is_open = True  # False: it finishes what it has and gets no more
        self.is_cordoned = False  # the same, because a person said so
        self.free = 0
        self.refresh()

    def refresh(self) -> None:
        """Work out anew how many more attempts it takes."""
        self.free = 0
        if self.is_open and not self.is_cordoned:
            self.free = self.offer.slots - len(self.running)
            if self.offer.asks:
                self.free = min(self.free, self.asked)
        if self.free > 0:
            self._freed.add(self)

    @property
    def slots_free(self) -> int:
        """How many more attempts it could take, if it asked."""
        is_taking = self.is_open and not self.is_cordoned
        return self.offer.slots - len(self.running) if is_taking else 0

    @property
    def is_near(self) -> bool:
        """Whether what is given to it reaches it at once."""
        return self.is_asking or not self.offer.asks

    def room(self, route: Route | None) -> int:
        """Return how many more attempts of such jobs it takes now."""
        return self.fit(route, self.free)

    def fit(self, route: Route | None, room: int) -> int:
        """Return how many more attempts of such jobs fit, at most so many."""
        if route is not None:
            for name, amount in route.resources:
                if amount:
                    left = self.offer.resources.get(name, 0) - self.used.get(name, 0)
                    room = min(room, left // amount)
        return room

    def hold(self, key: LeaseKey, amounts: Amounts) -> None:
        """Note that it runs the attempt."""
        self.running[key] = amounts
        for name, amount in amounts:
            self.used[name] = self.used.get(name, 0) + amount
        self.free -= 1
        self.asked -= 1
        if key.job_id < 0:
            self.lent.add(key)
        self.turn = -next(_turns)

    def release(self, key: LeaseKey) -> None:
        """Note that the attempt has ended."""
        amounts = self.running.pop(key, None)
        if amounts is None:
            return
        for name, amount in amounts:
            self.used[name] -= amount
        if key in self.lent:  # what was reserved may be given after all
            self.lent.remove(key)
            self.asked += 1
        self.refresh()


def _like(route: Route, worker: Worker) -> float:
    return route.liking(worker.offer.labels)


class Workers:
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

    def attach(self, offer: WorkerOffer) -> Worker:
        """Add the worker, or take its new offer; what it runs stays."""
        known = self._workers.get(offer.id)
        if known is None:
            known = self._workers[offer.id] = Worker(offer, next(self._numbers), self.groups.freed)
            self._set_offer(known, offer)
        elif known.offer != offer:
            self._set_offer(known, offer)
        known.is_open = True
        known.refresh()
        return known

    def _set_offer(self, worker: Worker, offer: WorkerOffer) -> None:
        self._defaults.clear()
        self.groups.dismiss(worker)
        worker.offer = offer
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

    def ask(self, worker_id: str, count: int) -> None:
        """Give the worker at most so many more, until it asks again."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.asked = count
            worker.is_asking = count > 0
            worker.lent.clear()
            worker.refresh()

    def cordon(self, worker_id: str, is_cordoned: bool) -> None:
        """Give the worker no more because a person says so, or again."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.is_cordoned = is_cordoned
            worker.refresh()

    def servers(self, lane: Lane) -> list[Worker]:
        """Return the workers that serve the lane, busy ones included."""
        return self.groups.find(lane).members

    def place(self, lane: Lane, count: int, besides: Collection[str] = ()) -> list[Worker]:
        """Return workers for so many jobs of the lane right now, all of them or none.

        The liked ones first, of those who ask at this moment, then those with the most room, then
        those that have waited longest. One between two requests is as good as there.
        """
        route = lane.route or _ANYWHERE
        room = {
            each.offer.id: (each, each.fit(route, each.slots_free))
            for each in self.servers(lane)
            if each.offer.id not in besides
        }
        chosen: list[Worker] = []
        taken: Counter[str] = Counter()
        while len(chosen) < count:
            able = [(w, left - taken[name]) for name, (w, left) in room.items()]
            able = [(worker, left) for worker, left in able if left > 0]
            if not able:
                return []
            worker, _ = max(able, key=lambda a: (_like(route, a[0]), a[0].is_near, a[1], a[0].turn))
            chosen.append(worker)
            taken[worker.offer.id] += 1
        return chosen

    def capacity(self, lane: Lane) -> int:
        """Return how many jobs of the lane would run at once if nothing else did."""
        route = lane.route or _ANYWHERE
        idle = (Worker(worker.offer) for worker in self.servers(lane))
        return sum(worker.fit(route, worker.offer.slots) for worker in idle)

    def reject(self, lane: Lane) -> dict[str, int]:
        """Count by reason why the workers do not take a job of the lane now."""
        reasons: Counter[str] = Counter()
        route = lane.route or _ANYWHERE
        for worker in self._workers.values():
            offer = worker.offer
            if not offer.serves(lane._replace(route=None)):
                reasons["task"] += 1
            elif find_obstacle(route, offer) is not None:
                reasons["requirements"] += 1
            elif worker.is_cordoned or not worker.is_open:
                reasons["draining"] += 1
            elif offer.slots <= len(worker.running):
                reasons["no_slots"] += 1
            elif worker.fit(route, 1) <= 0:
                reasons["resources"] += 1
            else:
                reasons["too_few"] += 1  # it has room, but not for all that were asked for
        return dict(reasons)

    def hold(self, worker_id: str, key: LeaseKey, amounts: Amounts = ()) -> None:
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
            announced = (worker.offer.task_defaults.get(task) for worker in self)
            self._defaults[task] = next((each for each in announced if each is not None), None)
        return self._defaults[task]
