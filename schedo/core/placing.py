"""Work placed right now: on a worker that has room at this moment, or nowhere.

What is placed here is never queued. A job is made together with its attempt; if its worker does not
take it, it is passed on, and where nobody takes it, it has failed. A reservation holds a slot under
a key that no job has.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from schedo.core import model
from schedo.core.accepting import Acceptor
from schedo.core.attempts import Attempts, holds
from schedo.core.lifecycle import State
from schedo.core.memory import JobMemory
from schedo.core.model import Failure, Job, JobSpec, Lane, LeaseKey
from schedo.core.moves import Moves
from schedo.core.routes import Route
from schedo.core.settling import Settlement
from schedo.core.workers import Worker, Workers
from schedo.errors import NoCapacity, NoReservation, Unsatisfiable

_NOWHERE = model.Place.NOWHERE


class Place(NamedTuple):
    """A slot that is held for a reservation, with what of the worker's it takes."""

    worker: str
    key: LeaseKey
    route: Route | None


class Placements:
    """Starts jobs on workers that have room now, and holds slots."""

    def __init__(
        self,
        memory: JobMemory,
        acceptor: Acceptor,
        workers: Workers,
        attempts: Attempts,
        moves: Moves,
    ) -> None:
        self._memory = memory
        self._acceptor = acceptor
        self._workers = workers
        self._attempts = attempts
        self._moves = moves
        self._reserved = 0

    def invoke(self, spec: JobSpec, count: int, now: int) -> list[Job]:
        """Start so many jobs, all or none; raise NoCapacity or Unsatisfiable."""
        chosen = self._choose(Lane(spec.queue, spec.task, route=spec.options.route), count)
        return [self._start(spec, worker, now) for worker in chosen]

    def reserve(self, lane: Lane, count: int) -> list[Place]:
        """Hold so many slots, all or none; raise NoCapacity or Unsatisfiable."""
        places = []
        for worker in self._choose(lane, count):
            self._reserved += 1
            key = LeaseKey(-self._reserved, 0, 0)
            worker.hold(key, lane.route.resources if lane.route is not None else ())
            places.append(Place(worker.offer.id, key, lane.route))
        return places

    def invoke_reserved(self, spec: JobSpec, places: Sequence[Place], now: int) -> list[Job]:
        """Start a job in each of the places.

        Raise NoReservation if a worker has gone; the other places are let go of then. Raise
        Unsatisfiable if one does not run such jobs; the places are kept for another try.
        """
        if places and spec.options.route is None:
            spec = replace(spec, options=replace(spec.options, route=places[0].route))
        lane = Lane(spec.queue, spec.task, route=spec.options.route)
        workers = [self._workers.find(place.worker) for place in places]
        found = [
            worker
            for worker, place in zip(workers, places, strict=True)
            if worker is not None and place.key in worker.running
        ]
        if len(found) < len(places):
            self.release(places)
            raise NoReservation("a worker that held a part of the reservation has gone")
        if not all(worker.offer.serves(lane) for worker in found):
            raise Unsatisfiable("a worker that holds a part of the reservation does not run this")
        self.release(places)
        return [self._start(spec, worker, now) for worker in found]

    def release(self, places: Sequence[Place]) -> None:
        """Let go of the slots; harmless if their workers have gone."""
        for place in places:
            self._workers.release(place.worker, place.key)

    def pass_on(
        self, key: LeaseKey, besides: Collection[str], message: str, now: int
    ) -> Job | None:
        """Give the attempt's job to another worker, or end it; None if the lease is not live."""
        job = self._memory.find(key.job_id)
        if job is None or not holds(key, job):
            return None
        self._attempts.end(job, key)
        job.place = _NOWHERE
        if job.cancel_requested_at is not None:
            self._moves.apply(job, Settlement(State.CANCELLED, "cancelled"), now)
            return job
        chosen = self._workers.place(job.lane, 1, besides)
        if chosen:
            self._memory.move(job, State.QUEUED)
            self._attempts.start(job, chosen[0], now)
        else:
            failure = Failure("no-capacity", f"no worker took it: {message}")
            self._moves.apply(job, Settlement(State.FAILED, "handed_back", failure), now)
        return job

    def withdraw(self, job: Job, message: str, now: int) -> None:
        """End a job whose attempt no worker has begun."""
        self._attempts.end(job, job.key)
        job.place = _NOWHERE
        failure = Failure("no-capacity", f"it was not begun: {message}")
        self._moves.apply(job, Settlement(State.FAILED, "handed_back", failure), now)

    def _choose(self, lane: Lane, count: int) -> list[Worker]:
        line = self._memory.lanes.line(lane.queue)
        if line.room < count:
            why = "is paused" if line.queue.paused else "runs as many jobs as it may"
            raise NoCapacity(f"queue {lane.queue} {why}")
        chosen = self._workers.place(lane, count)
        if chosen:
            return chosen
        considered = sum(1 for _ in self._workers)
        rejected = self._workers.reject(lane)
        if considered and not self._workers.servers(lane):
            raise Unsatisfiable(f"none of {considered} workers could ever take it")
        most = self._workers.capacity(lane)
        if considered and most < count:
            raise Unsatisfiable(f"{considered} workers could take {most} at most, not {count}")
        raise NoCapacity(f"no worker has room for it now, of {considered}", considered, rejected)

    def _start(self, spec: JobSpec, worker: Worker, now: int) -> Job:
        job = self._acceptor.make_invoked(spec, now)
        self._attempts.start(job, worker, now)
        return job
