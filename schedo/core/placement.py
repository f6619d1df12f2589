"""The placement of invocations and reservations: on a worker with free slots now, or not at all.

An invoked job is never queued. It is made together with its first attempt. If the worker does not
accept it, the job is reassigned to another worker, and if no worker accepts it, it fails. A remote
worker must accept its offer within ACCEPT_US. The jobs of a gang begin together or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from schedo.core import model
from schedo.core.commands import CommitReservation, Invoke, ReleaseReservation, Reserve
from schedo.core.explain import explain_no_worker
from schedo.core.instants import describe_duration
from schedo.core.job_maker import JobMaker
from schedo.core.job_table import JobTable
from schedo.core.leases import AttemptResult, Lease, Released
from schedo.core.limits import SECOND, TURN_ENTRIES_MAX
from schedo.core.loads import Appliers, Loaded
from schedo.core.model import Failure, Job, JobSpec, LeaseKey, ReadyKey
from schedo.core.offers import Invocation, Offer, OfferState
from schedo.core.outcomes import Transition
from schedo.core.reservations import Reservations
from schedo.core.running import RunningAttempts, is_current_lease
from schedo.core.states import State
from schedo.core.timers import Timers, earliest
from schedo.core.transitions import JobTransitions
from schedo.core.worker_messages import Decided, Reservation
from schedo.core.worker_obstacles import count_rejections
from schedo.core.worker_pool import Worker, WorkerPool
from schedo.core.worker_session import SessionTable
from schedo.errors import NoCapacity, NoReservation, SchedoError, Unsatisfiable

ACCEPT_US = SECOND // 4
NO_CAPACITY = "no-capacity"  # the failure type of a job that no worker accepted
_NOT_ALL = "no worker accepted another job of the same gang"
_NOWHERE = model.Location.NOWHERE
_PLANNED, _OPEN, _ACCEPTED, _ENDED = OfferState


class Placement:
    """Starts jobs on workers that have free slots now, and follows their offers."""

    def __init__(
        self,
        jobs: JobTable,
        maker: JobMaker,
        workers: WorkerPool,
        attempts: RunningAttempts,
        transitions: JobTransitions,
        table: SessionTable,
    ) -> None:
        self._jobs = jobs
        self._maker = maker
        self._workers = workers
        self._attempts = attempts
        self._transitions = transitions
        self._table = table
        self._reservations = Reservations(workers)
        self.offers = table.offers
        self._gangs: dict[Invocation, None] = {}  # those that are not decided
        self._deadlines = Timers()  # of the open offers, by job id
        self._decided: list[Decided] = []
        self.appliers: Appliers = {
            Invoke: self.invoke,
            Reserve: self.reserve,
            CommitReservation: self.commit,
            ReleaseReservation: self.release,
        }

    # Requests of clients.

    def invoke(self, command: Invoke, now: int, loaded: Loaded) -> list[Job]:
        """Start the jobs, all or none; raise NoCapacity or Unsatisfiable."""
        spec = command.spec
        ready_key = ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements)
        chosen = self.choose(ready_key, command.count, now)
        return self._start_all(command.id, spec, chosen, now)

    def reserve(self, command: Reserve, now: int, loaded: Loaded) -> Reservation:
        """Reserve the slots, all or none; raise NoCapacity or Unsatisfiable."""
        chosen = self.choose(command.ready_key, command.count, now)
        until = now + command.ttl_us
        self._reservations.make(
            command.id, command.nonce, chosen, command.ready_key.requirements, until
        )
        workers = [worker.spec.id for worker in chosen]
        return Reservation(command.id, command.nonce, workers, until)

    def commit(self, command: CommitReservation, now: int, loaded: Loaded) -> list[Job]:
        """Start one job in each of the reserved slots.

        Raise NoReservation if it is not open, or if a worker is gone, which ends it. Raise
        Unsatisfiable if a worker does not serve such jobs, and NoCapacity if their queue is full or
        paused; then the reservation stays open.
        """
        slots, spec = self._reservations.find(command.id, command.nonce), command.spec
        if spec.options.requirements is None:
            spec = replace(spec, options=replace(spec.options, requirements=slots[0].requirements))
        ready_key = ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements)
        holders = [(self._workers.find(slot.worker), slot.key) for slot in slots]
        found = [worker for worker, key in holders if worker is not None and key in worker.running]
        if len(found) < len(slots):
            self._reservations.end(command.id)
            raise NoReservation("a worker that held a part of the reservation is gone")
        if not all(worker.spec.serves(ready_key) for worker in found):
            raise Unsatisfiable(
                "a worker that holds a part of the reservation does not serve this job"
            )
        self._check_queue(spec.queue, len(found))
        self._reservations.end(command.id)
        return self._start_all(command.id, spec, found, now)

    def release(self, command: ReleaseReservation, now: int, loaded: Loaded) -> None:
        """Free the reserved slots; raise NoReservation."""
        self._reservations.find(command.id, command.nonce)
        self._reservations.end(command.id)

    def choose(self, ready_key: ReadyKey, count: int, now: int) -> list[Worker]:
        """Return the workers for the jobs; raise NoCapacity or Unsatisfiable."""
        self._check_queue(ready_key.queue, count)
        chosen = self._workers.place(ready_key, count)
        if chosen:
            return chosen
        error = self._find_shortage(ready_key, count)
        if isinstance(error, Unsatisfiable) and self._table.could_reconnect(ready_key, now):
            raise NoCapacity(f"{error}; a worker that could is disconnected")
        raise error

    def _check_queue(self, name: str, count: int) -> None:
        """Raise NoCapacity if the limits of the queue do not allow this number of jobs."""
        queue_state = self._jobs.ready_queues.queue_state(name)
        if queue_state.free_slots < count:
            why = "is paused" if queue_state.queue.paused else "is at its concurrency limit"
            raise NoCapacity(f"queue {name} {why}")

    def take_decided(self) -> list[Decided]:
        """Return the invocations that were decided since the last call."""
        decided, self._decided = self._decided, []
        return decided

    # Offers.

    def has_offer(self, key: LeaseKey) -> bool:
        """Whether the attempt is offered to its worker and has not begun."""
        return self._find(key) is not None

    def undecided_gangs(self, keys: Iterable[LeaseKey]) -> list[Invocation]:
        """Return the gangs of these leases that have neither begun nor failed."""
        found = (self.offers.get(key.job_id) for key in keys)
        return [each.invocation for each in found if each is not None and each.invocation.is_gang]

    def is_kept(self, lease: Lease, now: int) -> bool:
        """Whether the gang keeps this lease, whose start is durable, until it begins.

        It does so if the worker begins each lease at once.
        """
        offer = self._find(lease.key)
        if offer is None:
            return False
        session = self._table.by_name.get(lease.worker)
        invocation = offer.invocation
        if session is None:  # the server's own workers cannot reject an offer
            offer.move(_ACCEPTED)
        elif session.supports_offers or not invocation.is_gang:
            return False
        else:
            self._open(offer, now)
        invocation.deferred[lease.key.job_id] = lease
        self._try_start(invocation)
        return True

    def open(self, key: LeaseKey, now: int) -> None:
        """Begin the worker's time to accept the lease, which its next response carries."""
        offer = self._find(key)
        if offer is not None and offer.state is not _ACCEPTED:
            self._open(offer, now)

    def send(
        self, leases: Sequence[Lease], now: int, *, supports_offers: bool
    ) -> AbstractSet[LeaseKey]:
        """Return which of the leases in a response the worker must accept or reject.

        A worker that does not support offers accepts a lease by polling with a free slot.
        """
        if not self.offers:
            return frozenset()
        offers = {lease.key for lease in leases if self.has_offer(lease.key)}
        for key in offers:
            if supports_offers:
                self.open(key, now)
            else:
                self.accept(key)
        return offers if supports_offers else frozenset()

    def _open(self, offer: Offer, now: int) -> None:
        offer.move(_OPEN)
        self._deadlines.arm(offer.key.job_id, now + ACCEPT_US)

    def accept(self, key: LeaseKey) -> None:
        """Accept the offer; the attempt begins, in a gang once all its jobs are accepted."""
        offer = self._find(key)
        if offer is not None and offer.state is not _ACCEPTED:
            self._deadlines.cancel(key.job_id)
            offer.move(_ACCEPTED)
            self._try_start(offer.invocation)

    def reject(self, key: LeaseKey, reason: str, now: int) -> None:
        """Offer the attempt to another worker, because this one does not run it."""
        offer = self._find(key)
        if offer is None:
            return
        self._revoke(offer)
        self._deadlines.cancel(key.job_id)
        offer.invocation.deferred.pop(key.job_id, None)
        offer.rejected_by.add(offer.worker)
        job = self._reassign(key, offer.rejected_by, reason, now)
        if job.state is State.RUNNING:
            assert job.worker is not None, "it runs"
            offer.reassign(job.key, job.worker)
        else:
            offer.invocation.unstarted.add(job.id)
            self.ended(key, now)

    def ended(self, key: LeaseKey, now: int) -> None:
        """End the offer of an ended attempt; if its gang has not begun, all its jobs end."""
        offer = self.offers.get(key.job_id)
        if offer is None:
            return
        self._end(offer)
        if offer.invocation.is_gang:
            self._fail(offer.invocation, now)
        else:
            self._decide(offer.invocation)

    def try_start_gangs(self) -> None:
        """Start the gangs that only waited for a worker to poll."""
        for gang in list(self._gangs):
            self._try_start(gang)

    # Time.

    @property
    def has_deadlines(self) -> bool:
        """Whether an offer or a reservation has a time limit."""
        return bool(self._deadlines.live or self._reservations.deadlines.live)

    def tick(self, now: int) -> None:
        """Reject the offers without a reply in time, and end old reservations."""
        self._reservations.tick(now, TURN_ENTRIES_MAX)
        for _, job_id in self._deadlines.pop_due(now, TURN_ENTRIES_MAX):
            offer = self.offers.get(job_id)
            if offer is None:
                continue  # it has just ended together with its gang
            worker = self._workers.find(offer.worker)
            if job_id in offer.invocation.deferred and worker is not None and worker.can_start_now:
                self._open(offer, now)  # this worker is ready, others of the gang are not
            else:
                wait = describe_duration(ACCEPT_US)
                reason = f"worker {offer.worker} did not answer within {wait}"
                self.reject(offer.key, reason, now)

    def next_at(self) -> int | None:
        """Return the next instant at which `tick` has something to do, or None."""
        first = self._deadlines.first()
        return earliest(first and first[0], self._reservations.next_at())

    def shift(self, delta_us: int) -> None:
        """Shift the deadlines after a clock change, because they count elapsed time."""
        self._deadlines.shift(delta_us)
        self._reservations.shift(delta_us)

    # Recovery.

    def restore(self, now: int) -> None:
        """Continue the offers of the old scheduler whose attempts still run; gangs fail."""
        for offer in list(self.offers.values()):
            if offer.invocation.is_gang:
                self._fail(offer.invocation, now)
            elif self._attempts.is_live(offer.key):
                self._open(offer, now)
            else:
                self.ended(offer.key, now)

    # Gangs.

    def _try_start(self, invocation: Invocation) -> None:
        """Start all jobs of the invocation if each of them is accepted."""
        if not all(self._is_ready(offer) for offer in invocation.offers.values()):
            return
        for offer in invocation.offers.values():
            self._end(offer)
        for lease in invocation.deferred.values():
            self._attempts.send(lease)
        invocation.deferred.clear()
        self._decide(invocation)

    def _is_ready(self, offer: Offer) -> bool:
        if offer.state is _OPEN and offer.key.job_id in offer.invocation.deferred:
            worker = self._workers.find(offer.worker)
            return worker is not None and worker.can_start_now
        return offer.state is _ACCEPTED

    def _fail(self, invocation: Invocation, now: int) -> None:
        """Revoke all leases of the gang, none of which has begun, and end its jobs."""
        if invocation.is_decided:
            return
        invocation.deferred.clear()
        for offer in invocation.offers.values():
            if offer.state is _ENDED:
                continue
            self._end(offer)
            job = self._jobs.find(offer.key.job_id)
            if job is not None and is_current_lease(offer.key, job):
                self._attempts.results.append(AttemptResult(offer.key, Released()))
                self._cancel_unstarted(job, _NOT_ALL, now)
                invocation.unstarted.add(job.id)
                self._revoke(offer)
        self._decide(invocation)

    def _end(self, offer: Offer) -> None:
        offer.move(_ENDED)
        self._deadlines.cancel(offer.key.job_id)
        self.offers.pop(offer.key.job_id, None)

    def _decide(self, invocation: Invocation) -> None:
        invocation.is_decided = True
        self._gangs.pop(invocation, None)
        rejections, unstarted = invocation.count_rejections(), invocation.unstarted
        self._decided.append(Decided(invocation.id, rejections, unstarted))

    def _find(self, key: LeaseKey) -> Offer | None:
        offer = self.offers.get(key.job_id)
        return offer if offer is not None and offer.key == key else None

    def _revoke(self, offer: Offer) -> None:
        session = self._table.by_name.get(offer.worker)
        if session is not None:
            session.revoke(offer.key)

    # Attempts.

    def _start_all(self, id_: str, spec: JobSpec, chosen: Iterable[Worker], now: int) -> list[Job]:
        jobs = []
        for worker in chosen:
            job = self._maker.make_invoked(spec, now)
            self._attempts.start(job, worker, now)
            jobs.append(job)
        invocation = Invocation(id_, jobs)
        self.offers |= invocation.offers
        if invocation.is_gang:
            self._gangs[invocation] = None
        return jobs

    def _reassign(self, key: LeaseKey, exclude: Collection[str], message: str, now: int) -> Job:
        """Start the job on another worker, or fail it."""
        job = self._jobs.find(key.job_id)
        assert job is not None, "its offer ends with its attempt"
        self._attempts.results.append(AttemptResult(key, Released()))
        self._attempts.end(job, key)
        job.location = _NOWHERE
        if job.cancel_requested_at is not None:
            self._transitions.apply(job, Transition(State.CANCELLED, "cancelled"), now)
            return job
        chosen = self._workers.place(job.ready_key, 1, exclude)
        if chosen:
            self._jobs.move(job, State.QUEUED)
            self._attempts.start(job, chosen[0], now)
        else:
            failure = Failure(NO_CAPACITY, f"no worker took it: {message}")
            self._transitions.apply(job, Transition(State.FAILED, "released", failure), now)
        return job

    def _cancel_unstarted(self, job: Job, message: str, now: int) -> None:
        """Fail a job whose attempt no worker has started."""
        self._attempts.end(job, job.key)
        job.location = _NOWHERE
        failure = Failure(NO_CAPACITY, f"it was not started: {message}")
        self._transitions.apply(job, Transition(State.FAILED, "released", failure), now)

    def _find_shortage(self, ready_key: ReadyKey, count: int) -> SchedoError:
        """Return the error that says why workers cannot take `count` jobs of the ready key."""
        considered = sum(1 for _ in self._workers)
        rejected = count_rejections(self._workers, ready_key)
        if considered and not self._workers.eligible_workers(ready_key):
            why = explain_no_worker(ready_key, self._workers)
            return Unsatisfiable(f"none of {considered} workers can ever take it: {why}")
        most = self._workers.capacity(ready_key)
        if considered and most < count:
            return Unsatisfiable(
                f"{considered} workers can take at most {most} jobs at once, not {count}"
            )
        none = f"none of {considered} workers has a free slot for it now"
        return NoCapacity(none if considered else "no worker is connected", considered, rejected)
