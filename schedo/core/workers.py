"""Who can run what, and how much room each has.

A worker has slots; it names the tasks and the queues it serves, or serves all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from schedo.core.model import Lane, LeaseKey, Options

NO_DEFAULTS: Mapping[str, Options] = {}


@dataclass(frozen=True, slots=True)
class WorkerOffer:
    """What a worker says of itself when it attaches; None means any."""

    id: str
    slots: int
    tasks: frozenset[str] | None = None
    queues: frozenset[str] | None = None
    task_defaults: Mapping[str, Options] = field(default_factory=dict)
    alone: bool = False  # it runs suspects only, one at a time


@dataclass(slots=True)
class Worker:
    """An attached worker and the attempts it holds."""

    offer: WorkerOffer
    running: set[LeaseKey] = field(default_factory=set)
    is_open: bool = True  # False: it finishes what it has and gets no more

    def serves(self, lane: Lane) -> bool:
        offer = self.offer
        if lane.alone is not offer.alone:
            return False
        return (offer.tasks is None or lane.task in offer.tasks) and (
            offer.queues is None or lane.queue in offer.queues
        )

    @property
    def free(self) -> int:
        return self.offer.slots - len(self.running) if self.is_open else 0


class Workers:
    """The attached workers by id."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._workers

    def __iter__(self) -> Iterator[Worker]:
        yield from self._workers.values()

    def attach(self, offer: WorkerOffer) -> Worker:
        """Add the worker, or take its new offer; what it runs stays."""
        known = self._workers.get(offer.id)
        if known is None:
            known = self._workers[offer.id] = Worker(offer)
        known.offer = offer
        known.is_open = True
        return known

    def detach(self, worker_id: str) -> set[LeaseKey]:
        """Forget the worker and return the attempts it still held."""
        worker = self._workers.pop(worker_id, None)
        return worker.running if worker is not None else set()

    def close(self, worker_id: str) -> None:
        """Give the worker no more; what it runs goes on."""
        if worker_id in self._workers:
            self._workers[worker_id].is_open = False

    def has_room(self) -> bool:
        """Whether any worker has a free slot."""
        return any(worker.free > 0 for worker in self._workers.values())

    def pick(self, lane: Lane) -> Worker | None:
        """Return the worker with the most free slots of those that serve the lane, or None."""
        best: Worker | None = None
        room = 0
        for worker in self._workers.values():
            if worker.free > room and worker.serves(lane):
                best, room = worker, worker.free
        return best

    def find_servers(self, lane: Lane) -> list[Worker]:
        """Return the workers that serve the lane, busy ones included."""
        return [worker for worker in self._workers.values() if worker.serves(lane)]

    def is_only(self, worker: Worker, lane: Lane) -> bool:
        """Whether nobody but the worker serves the lane."""
        return all(other is worker or not other.serves(lane) for other in self._workers.values())

    def hold(self, worker_id: str | None, key: LeaseKey) -> None:
        """Note that the worker runs the attempt; harmless if the worker is gone."""
        worker = self._workers.get(worker_id or "")
        if worker is not None:
            worker.running.add(key)

    def release(self, worker_id: str | None, key: LeaseKey) -> None:
        """Note that the attempt has ended; harmless if the worker is gone."""
        worker = self._workers.get(worker_id or "")
        if worker is not None:
            worker.running.discard(key)

    def task_defaults(self, task: str) -> Options | None:
        """Return the defaults that a worker announced for the task, or None."""
        for worker in self._workers.values():
            defaults = worker.offer.task_defaults.get(task)
            if defaults is not None:
                return defaults
        return None
