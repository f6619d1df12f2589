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
from schedo.core.admission import Admission
from schedo.core.job_table import JobTable
from schedo.core.model import Failure, Job, JobSpec, LeaseKey, ReadyKey
from schedo.core.outcomes import Transition
from schedo.core.requirements import Requirements
from schedo.core.running import RunningAttempts, is_current_lease
from schedo.core.states import State
from schedo.core.transitions import JobTransitions
from schedo.core.worker_pool import Worker, WorkerPool
from schedo.errors import NoCapacity, NoReservation, Unsatisfiable

_NOWHERE = model.Location.NOWHERE


class ReservedSlot(NamedTuple):
    """A slot that is held for a reservation, with what of the worker's it takes."""

    worker: str
    key: LeaseKey
    route: Requirements | None


class Placement:
    """Starts jobs on workers that have room now, and holds slots."""

    def __init__(
        self,
        memory: JobTable,
        acceptor: Admission,
        workers: WorkerPool,
        attempts: RunningAttempts,
        moves: JobTransitions,
    ) -> None:
        self._jobs = memory
        self._admission = acceptor
        self._workers = workers
        self._attempts = attempts
        self._transitions = moves
        self._reserved = 0

    def invoke(self, spec: JobSpec, count: int, now: int) -> list[Job]:
        """Start so many jobs, all or none; raise NoCapacity or Unsatisfiable."""
        chosen = self._choose(
            ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements), count
        )
        return [self._start(spec, worker, now) for worker in chosen]

    def reserve(self, lane: ReadyKey, count: int) -> list[ReservedSlot]:
        """Hold so many slots, all or none; raise NoCapacity or Unsatisfiable."""
        places = []
        for worker in self._choose(lane, count):
            self._reserved += 1
            key = LeaseKey(-self._reserved, 0, 0)
            worker.hold(key, lane.requirements.resources if lane.requirements is not None else ())
            places.append(ReservedSlot(worker.spec.id, key, lane.requirements))
        return places

    def invoke_reserved(self, spec: JobSpec, places: Sequence[ReservedSlot], now: int) -> list[Job]:
        """Start a job in each of the places.

        Raise NoReservation if a worker has gone; the other places are let go of then. Raise
        Unsatisfiable if one does not run such jobs; the places are kept for another try.
        """
        if places and spec.options.requirements is None:
            spec = replace(spec, options=replace(spec.options, requirements=places[0].route))
        lane = ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements)
        workers = [self._workers.find(place.worker) for place in places]
        found = [
            worker
            for worker, place in zip(workers, places, strict=True)
            if worker is not None and place.key in worker.running
        ]
        if len(found) < len(places):
            self.release(places)
            raise NoReservation("a worker that held a part of the reservation has gone")
        if not all(worker.spec.serves(lane) for worker in found):
            raise Unsatisfiable("a worker that holds a part of the reservation does not run this")
        self.release(places)
        return [self._start(spec, worker, now) for worker in found]

    def release(self, places: Sequence[ReservedSlot]) -> None:
        """Let go of the slots; harmless if their workers have gone."""
        for place in places:
            self._workers.release(place.worker, place.key)

    def reassign(
        self, key: LeaseKey, besides: Collection[str], message: str, now: int
    ) -> Job | None:
        """Give the attempt's job to another worker, or end it; None if the lease is not live."""
        job = self._jobs.find(key.job_id)
        if job is None or not is_current_lease(key, job):
            return None
        self._attempts.end(job, key)
        job.location = _NOWHERE
        if job.cancel_requested_at is not None:
            self._transitions.apply(job, Transition(State.CANCELLED, "cancelled"), now)
            return job
        chosen = self._workers.place(job.ready_key, 1, besides)
        if chosen:
            self._jobs.move(job, State.QUEUED)
            self._attempts.start(job, chosen[0], now)
        else:
            failure = Failure("no-capacity", f"no worker took it: {message}")
            self._transitions.apply(job, Transition(State.FAILED, "handed_back", failure), now)
        return job

    def cancel_unstarted(self, job: Job, message: str, now: int) -> None:
        """End a job whose attempt no worker has begun."""
        self._attempts.end(job, job.key)
        job.location = _NOWHERE
        failure = Failure("no-capacity", f"it was not begun: {message}")
        self._transitions.apply(job, Transition(State.FAILED, "handed_back", failure), now)

    def _choose(self, lane: ReadyKey, count: int) -> list[Worker]:
        line = self._jobs.ready_queues.queue_state(lane.queue)
        if line.free_slots < count:
            why = "is paused" if line.queue.paused else "runs as many jobs as it may"
            raise NoCapacity(f"queue {lane.queue} {why}")
        chosen = self._workers.place(lane, count)
        if chosen:
            return chosen
        considered = sum(1 for _ in self._workers)
        rejected = self._workers.count_rejections(lane)
        if considered and not self._workers.eligible_workers(lane):
            raise Unsatisfiable(f"none of {considered} workers could ever take it")
        most = self._workers.capacity(lane)
        if considered and most < count:
            raise Unsatisfiable(f"{considered} workers could take {most} at most, not {count}")
        raise NoCapacity(f"no worker has room for it now, of {considered}", considered, rejected)

    def _start(self, spec: JobSpec, worker: Worker, now: int) -> Job:
        job = self._admission.make_invoked(spec, now)
        self._attempts.start(job, worker, now)
        return job
