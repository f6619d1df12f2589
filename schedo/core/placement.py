"""The placement of invocations and reservations: on a worker with free slots now, or not at all.

An invoked job is never queued. It is made together with its first attempt. If the worker does not
take it, the job is reassigned to another worker, and if no worker takes it, it fails. A reservation
holds a slot under a lease key with a negative job id, which no job has.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from schedo.core import model
from schedo.core.admission import Admission
from schedo.core.commands import (
    CancelUnstarted,
    Invoke,
    InvokeReserved,
    Reassign,
    ReleaseSlots,
    Reserve,
    ReservedSlot,
)
from schedo.core.job_table import JobTable
from schedo.core.loads import Loaded
from schedo.core.model import Failure, Job, JobSpec, LeaseKey, ReadyKey
from schedo.core.outcomes import Transition
from schedo.core.running import RunningAttempts, is_current_lease
from schedo.core.states import State
from schedo.core.transitions import JobTransitions
from schedo.core.worker_pool import Worker, WorkerPool
from schedo.errors import NoCapacity, NoReservation, Unsatisfiable

_NOWHERE = model.Location.NOWHERE


class Placement:
    """Starts jobs on workers that have free slots now, and reserves slots."""

    def __init__(
        self,
        jobs: JobTable,
        admission: Admission,
        workers: WorkerPool,
        attempts: RunningAttempts,
        transitions: JobTransitions,
    ) -> None:
        self._jobs = jobs
        self._admission = admission
        self._workers = workers
        self._attempts = attempts
        self._transitions = transitions
        self._reserved = 0

    def invoke(self, command: Invoke, now: int, loaded: Loaded) -> list[Job]:
        """Start the jobs, all or none; raise NoCapacity or Unsatisfiable."""
        spec = command.spec
        chosen = self._choose(
            ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements), command.count
        )
        return [self._start(spec, worker, now) for worker in chosen]

    def reserve(self, command: Reserve, now: int, loaded: Loaded) -> list[ReservedSlot]:
        """Reserve the slots, all or none; raise NoCapacity or Unsatisfiable."""
        ready_key = command.ready_key
        slots = []
        for worker in self._choose(ready_key, command.count):
            self._reserved += 1
            key = LeaseKey(-self._reserved, 0, 0)
            worker.hold(
                key, ready_key.requirements.resources if ready_key.requirements is not None else ()
            )
            slots.append(ReservedSlot(worker.spec.id, key, ready_key.requirements))
        return slots

    def invoke_reserved(self, command: InvokeReserved, now: int, loaded: Loaded) -> list[Job]:
        """Start one job in each of the reserved slots; raise NoReservation or Unsatisfiable."""
        spec, slots = command.spec, command.slots
        if slots and spec.options.requirements is None:
            spec = replace(spec, options=replace(spec.options, requirements=slots[0].requirements))
        ready_key = ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements)
        workers = [self._workers.find(slot.worker) for slot in slots]
        found = [
            worker
            for worker, slot in zip(workers, slots, strict=True)
            if worker is not None and slot.key in worker.running
        ]
        if len(found) < len(slots):
            raise NoReservation("a worker that held a part of the reservation is gone")
        if not all(worker.spec.serves(ready_key) for worker in found):
            raise Unsatisfiable(
                "a worker that holds a part of the reservation does not serve this job"
            )
        self._release(slots)
        return [self._start(spec, worker, now) for worker in found]

    def release(self, command: ReleaseSlots, now: int, loaded: Loaded) -> None:
        """Release the slots; slots of workers that are gone are ignored."""
        self._release(command.slots)

    def _release(self, slots: Sequence[ReservedSlot]) -> None:
        for slot in slots:
            self._workers.release(slot.worker, slot.key)

    def reassign(self, command: Reassign, now: int, loaded: Loaded) -> Job | None:
        """Start the job on another worker, or fail it; return None if the lease is not live."""
        key = command.key
        job = self._jobs.find(key.job_id)
        if job is None or not is_current_lease(key, job):
            return None
        self._attempts.end(job, key)
        job.location = _NOWHERE
        if job.cancel_requested_at is not None:
            self._transitions.apply(job, Transition(State.CANCELLED, "cancelled"), now)
            return job
        chosen = self._workers.place(job.ready_key, 1, command.exclude)
        if chosen:
            self._jobs.move(job, State.QUEUED)
            self._attempts.start(job, chosen[0], now)
        else:
            failure = Failure("no-capacity", f"no worker took it: {command.message}")
            self._transitions.apply(job, Transition(State.FAILED, "released", failure), now)
        return job

    def cancel_unstarted(
        self, command: CancelUnstarted, now: int, loaded: Loaded
    ) -> list[tuple[LeaseKey, str]]:
        """Fail those of the jobs that run; return the lease and the worker of each."""
        ended = []
        for job_id in command.job_ids:
            job = self._jobs.find(job_id)
            if job is not None and job.state is State.RUNNING and job.worker is not None:
                ended.append((job.key, job.worker))
                self._fail(job, command.message, now)
        return ended

    def _fail(self, job: Job, message: str, now: int) -> None:
        self._attempts.end(job, job.key)
        job.location = _NOWHERE
        failure = Failure("no-capacity", f"it was not started: {message}")
        self._transitions.apply(job, Transition(State.FAILED, "released", failure), now)

    def _choose(self, ready_key: ReadyKey, count: int) -> list[Worker]:
        queue_state = self._jobs.ready_queues.queue_state(ready_key.queue)
        if queue_state.free_slots < count:
            why = "is paused" if queue_state.queue.paused else "is at its concurrency limit"
            raise NoCapacity(f"queue {ready_key.queue} {why}")
        chosen = self._workers.place(ready_key, count)
        if chosen:
            return chosen
        considered = sum(1 for _ in self._workers)
        rejected = self._workers.count_rejections(ready_key)
        if considered and not self._workers.eligible_workers(ready_key):
            raise Unsatisfiable(f"none of {considered} workers can ever take it")
        most = self._workers.capacity(ready_key)
        if considered and most < count:
            raise Unsatisfiable(
                f"{considered} workers can take at most {most} jobs at once, not {count}"
            )
        raise NoCapacity(
            f"none of {considered} workers has a free slot for it now", considered, rejected
        )

    def _start(self, spec: JobSpec, worker: Worker, now: int) -> Job:
        job = self._admission.make_invoked(spec, now)
        self._attempts.start(job, worker, now)
        return job
