"""Immediate placement: invocations, the offers for them, and reservations.

An invocation creates its jobs together with their attempts. When they are durable, the attempts go
to workers. A remote worker must accept its offer within ACCEPT_S; else the attempt is offered to
the next worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from schedo.core.commands import (
    CancelUnstarted,
    Command,
    Invoke,
    InvokeReserved,
    Reassign,
    ReleaseSlots,
    Reserve,
    ReservedSlot,
)
from schedo.core.leases import AttemptResult, Lease, Released
from schedo.core.model import Job, JobSpec, LeaseKey, ReadyKey
from schedo.core.requirements import Requirements
from schedo.core.worker_messages import Reservation
from schedo.engine.loop import EngineLoop
from schedo.engine.offers import REJECTED, Gang, Offer
from schedo.errors import IllegalTransition, NoCapacity, NoReservation, SchedoError, Unsatisfiable

ACCEPT_S = 0.25
_NOT_ALL = "no worker accepted another job of the same gang"
NO_CAPACITY = "no-capacity"  # the failure type of a job that no worker accepted


class _Reservation:
    """An open reservation."""

    __slots__ = ("nonce", "slots", "timer")

    def __init__(self, nonce: str, slots: list[ReservedSlot], timer: asyncio.TimerHandle) -> None:
        self.nonce = nonce
        self.slots = slots
        self.timer = timer


def _ignore() -> None:
    """Do nothing when the jobs have started."""


class LivePlacement:
    """The offers and gangs by job id, and the reservations by id."""

    def __init__(
        self,
        loop: EngineLoop,
        wait: Callable[[int, float], Awaitable[Job]],
        cancel: Callable[[int], Awaitable[Job]],
    ) -> None:
        self._loop = loop
        self._wait = wait
        self._cancel = cancel
        # Revokes an unanswered offer from its worker, then rejects it.
        self.on_rejected_late: Callable[[LeaseKey, str, str], None] = self.reject
        loop.on_ended = self._on_ended
        # Whether a disconnected worker could run jobs of this ready key.
        self.could_reconnect: Callable[[ReadyKey], bool] = lambda ready_key: False
        # Whether the worker gets offers; a worker without them begins each lease at once.
        self.supports_offers: Callable[[str], bool] = lambda worker: False
        loop.dispatcher.should_defer = self._should_defer
        self._offers: dict[int, Offer] = {}
        self._gangs: dict[int, Gang] = {}  # by job id, until all jobs of the gang may begin
        self._reservations: dict[str, _Reservation] = {}

    # Requests of clients.

    async def invoke(
        self, spec: JobSpec, count: int, wait_s: float, on_started: Callable[[], None] = _ignore
    ) -> list[Job]:
        """Start `count` jobs now, all or none; return them after at most `wait_s` seconds.

        `on_started` is called when they are durable and the wait begins. Raise NoCapacity or
        Unsatisfiable; a failed job is returned like a completed one.
        """
        ready_key = ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements)
        starting = self._start(Invoke(spec, count))
        del spec  # nothing large is kept during the wait
        try:
            job_ids = [job.id for job in await starting]
        except Unsatisfiable as error:
            raise self._retryable_if_reconnectable(error, ready_key) from None
        on_started()
        return await self._await_results(job_ids, wait_s)

    async def reserve(
        self,
        task: str | None,
        queue: str,
        requirements: Requirements | None,
        count: int,
        ttl_s: float,
    ) -> Reservation:
        """Hold `count` slots until they are used or released, or until `ttl_s` has passed."""
        ready_key = ReadyKey(queue, task or "", requirements=requirements)
        reply: asyncio.Future[list[ReservedSlot]]
        reply = self._loop.try_enqueue(Reserve(ready_key, count))
        try:
            slots = await reply
        except Unsatisfiable as error:
            raise self._retryable_if_reconnectable(error, ready_key) from None
        except asyncio.CancelledError:
            if reply.done() and not reply.cancelled() and reply.exception() is None:
                self._release(reply.result())
            raise
        id_, nonce = secrets.token_hex(8), secrets.token_urlsafe(18)
        timer = self._loop.loop.call_at(self._loop.loop.time() + ttl_s, self._expire, id_)
        self._reservations[id_] = _Reservation(nonce, slots, timer)
        expires_at = self._loop.clock.now() + round(ttl_s * 1_000_000)
        return Reservation(id_, nonce, [slot.worker for slot in slots], expires_at)

    async def commit(
        self,
        id_: str,
        nonce: str,
        spec: JobSpec,
        wait_s: float,
        on_started: Callable[[], None] = _ignore,
    ) -> list[Job]:
        """Run a job in each slot of the reservation; raise NoReservation if it is not open.

        Raise Unsatisfiable if its workers do not run such jobs; the reservation then stays open.
        `on_started` is as in invoke.
        """
        starting = self._start(InvokeReserved(spec, self._find(id_, nonce).slots), id_)
        del spec
        try:
            job_ids = [job.id for job in await starting]
        except NoReservation:
            self._expire(id_)
            raise
        on_started()
        return await self._await_results(job_ids, wait_s)

    async def release(self, id_: str, nonce: str) -> None:
        """Free the reserved slots; raise NoReservation if the reservation is not open."""
        self._find(id_, nonce)
        self._expire(id_)

    def recovered(self) -> None:
        """Drop what went with the old scheduler: reservations, gangs, offers of lost attempts."""
        for offer in list(self._offers.values()):
            if offer.key is not REJECTED and not self._loop.is_live(offer.key):
                self._on_ended(offer.key)
        for gang in set(self._gangs.values()):
            self._fail(gang)
        for reservation in self._reservations.values():
            reservation.timer.cancel()
        self._reservations.clear()

    def close(self) -> None:
        """Cancel all timers."""
        for reservation in self._reservations.values():
            reservation.timer.cancel()
        for offer in self._offers.values():
            offer.stop_timer()

    # Messages of workers.

    def has_offer(self, key: LeaseKey) -> bool:
        """Whether the attempt's worker has neither accepted nor rejected it yet."""
        offer = self._offers.get(key.job_id)
        return offer is not None and offer.key == key

    def offered(self, key: LeaseKey) -> None:
        """Start the worker's time to accept: a poll response carries the offer now."""
        if self.has_offer(key):
            self._start_timer(self._offers[key.job_id])

    def _start_timer(self, offer: Offer) -> None:
        offer.stop_timer()
        at = self._loop.loop.time() + ACCEPT_S
        offer.timer = self._loop.loop.call_at(at, self._on_timeout, offer)

    def _on_timeout(self, offer: Offer) -> None:
        reason = f"worker {offer.worker} did not answer within {ACCEPT_S:g} s"
        if offer.gang is None or offer.key.job_id not in offer.gang.deferred:
            self.on_rejected_late(offer.key, offer.worker, reason)
            if offer.key is not REJECTED and self.has_offer(offer.key):  # not dispatched yet
                self._start_timer(offer)
        elif self._can_start_now(offer.worker):  # this worker is ready, others of the gang are late
            self._start_timer(offer)
        else:
            self.reject(offer.key, offer.worker, reason)

    def accept(self, key: LeaseKey) -> None:
        """Accept the offer; the attempt begins, in a gang once all its jobs are accepted."""
        if not self.has_offer(key):
            return
        offer = self._offers[key.job_id]
        if offer.gang is None:
            self._end_offer(key.job_id)
        else:
            offer.is_accepted = True
            offer.stop_timer()
            self._try_start(offer.gang)

    def reject(self, key: LeaseKey, worker: str, reason: str) -> None:
        """Offer the attempt to another worker, because this one does not run it."""
        if not self.has_offer(key):
            return
        offer = self._offers[key.job_id]
        offer.key = REJECTED
        offer.is_accepted = False
        offer.rejected_by.add(worker)
        offer.stop_timer()
        if offer.gang is not None:
            offer.gang.deferred.pop(key.job_id, None)

        def reassigned(job: Job | None) -> None:
            if job is not None:
                self._loop.dispatcher.record_result(AttemptResult(key, Released()))
            if job is not None and not job.is_final and job.worker is not None:
                offer.key, offer.worker = job.key, job.worker
                if self._is_remote(job.worker):
                    self._start_timer(offer)
                else:
                    self.accept(offer.key)
            else:
                self._on_ended(key)

        self._loop.enqueue(Reassign(key, frozenset(offer.rejected_by), reason), reassigned)

    # Gangs.

    async def decided(self, keys: Iterable[LeaseKey]) -> None:
        """Return when it is decided for the gangs of these leases whether they begin."""
        for key in keys:
            gang = self._gangs.get(key.job_id)
            if gang is not None:
                await asyncio.shield(gang.decided)

    def try_all(self) -> None:
        """Start the gangs that only waited for a worker to poll."""
        for gang in set(self._gangs.values()):
            self._try_start(gang)

    def _should_defer(self, lease: Lease) -> bool:
        """Hold a lease back until its gang may begin, because its worker begins leases at once."""
        gang = self._gangs.get(lease.key.job_id)
        if gang is None or self.supports_offers(lease.worker):
            return False
        gang.deferred[lease.key.job_id] = lease
        self._try_start(gang)
        return True

    def _try_start(self, gang: Gang) -> None:
        """Start all jobs of the gang if each of them is accepted."""
        if gang.is_failed or not all(self._is_ready(gang, each) for each in gang.job_ids):
            return
        for job_id in gang.job_ids:
            self._gangs.pop(job_id, None)
            self._end_offer(job_id)
        if not gang.decided.done():
            gang.decided.set_result(None)
        for lease in gang.deferred.values():
            self._loop.dispatcher.dispatch_deferred(lease)

    def _is_ready(self, gang: Gang, job_id: int) -> bool:
        lease = gang.deferred.get(job_id)
        if lease is not None:
            return self._can_start_now(lease.worker)
        offer = self._offers.get(job_id)
        return offer is not None and offer.is_accepted

    def _fail(self, gang: Gang) -> None:
        """Revoke all leases of the gang, none of which has begun, and end its jobs."""
        if gang.is_failed:
            return
        gang.is_failed = True
        gang.deferred.clear()

        def cancelled(attempts: list[tuple[LeaseKey, str]]) -> None:
            for job_id in gang.job_ids:
                self._gangs.pop(job_id, None)
                self._end_offer(job_id)
            for key, worker in attempts:
                self._loop.dispatcher.record_result(AttemptResult(key, Released()))
                self.on_rejected_late(key, worker, _NOT_ALL)
            if not gang.decided.done():
                gang.decided.set_result(None)

        self._loop.enqueue(CancelUnstarted(list(gang.job_ids), _NOT_ALL), cancelled)

    # Internals.

    def _on_ended(self, key: LeaseKey) -> None:
        """End the offer of an ended attempt; if its gang has not begun, all its jobs end."""
        self._end_offer(key.job_id)
        gang = self._gangs.get(key.job_id) if self._gangs else None
        if gang is not None:
            self._fail(gang)

    def _end_offer(self, job_id: int) -> None:
        offer = self._offers.pop(job_id, None) if self._offers else None
        if offer is not None:
            offer.end()

    async def _start(self, command: Command[list[Job]], reservation: str = "") -> list[Job]:
        """Start the jobs of the command; return copies once they are durable."""

        def started(jobs: list[Job]) -> list[Job]:
            if reservation:
                self._forget(reservation)
            gang = None
            if len(jobs) > 1:
                gang = Gang([job.id for job in jobs], self._loop.loop.create_future())
                self._gangs |= dict.fromkeys(gang.job_ids, gang)
            for job in jobs:
                assert job.worker is not None, "it was started"
                if self._is_remote(job.worker):
                    accepted = self._loop.loop.create_future()
                    self._offers[job.id] = Offer(job.key, job.worker, accepted, gang)
            # This callback also runs if the client has hung up: the jobs are dispatched anyway.
            reply.add_done_callback(partial(self._on_durable, [job.id for job in jobs]))
            return [job.copy() for job in jobs]

        reply = self._loop.try_enqueue(command, started)
        return await reply

    def _on_durable(self, job_ids: Sequence[int], reply: asyncio.Future[Any]) -> None:
        """Start the time limits of the offers; drop those that did not become durable."""
        has_failed = not reply.cancelled() and reply.exception() is not None
        for job_id in job_ids:
            if has_failed:
                self._offers.pop(job_id, None)
                self._gangs.pop(job_id, None)
            elif (offer := self._offers.get(job_id)) is not None and offer.timer is None:
                self._start_timer(offer)  # its worker may never poll again

    async def _await_results(self, job_ids: Sequence[int], wait_s: float) -> list[Job]:
        """Wait until the jobs have ended; without a wait, until workers have accepted them."""
        offers = [offer for job_id in job_ids if (offer := self._offers.get(job_id)) is not None]
        if offers and not wait_s:
            await asyncio.wait([offer.accepted for offer in offers])
        ended = await asyncio.gather(*(self._wait(job_id, wait_s) for job_id in job_ids))
        refused = [job for job in ended if job.failure and job.failure.type == NO_CAPACITY]
        if not refused:
            return list(ended)
        for job in ended:
            if not job.is_final:
                with contextlib.suppress(IllegalTransition):  # it has ended meanwhile
                    await self._cancel(job.id)
        failure = refused[0].failure
        message = failure.message if failure is not None else "no worker accepted it"
        offered_to = set().union(*(offer.rejected_by for offer in offers))
        raise NoCapacity(message, len(offered_to), {"rejected": len(offered_to)})

    def _retryable_if_reconnectable(self, error: Unsatisfiable, ready_key: ReadyKey) -> SchedoError:
        """Turn Unsatisfiable into NoCapacity if a disconnected worker could run the job."""
        if self.could_reconnect(ready_key):
            return NoCapacity(f"{error}; a worker that could is disconnected")
        return error

    def _can_start_now(self, worker_id: str) -> bool:
        """Whether a lease reaches the worker at once, without waiting for its next poll."""
        worker = self._loop.workers.find(worker_id)
        return worker is not None and worker.can_start_now

    def _is_remote(self, worker_id: str) -> bool:
        """Whether the worker is remote. Only a worker that polls can reject an offer."""
        worker = self._loop.workers.find(worker_id)
        return worker is not None and worker.spec.polls

    def _find(self, id_: str, nonce: str) -> _Reservation:
        reservation = self._reservations.get(id_)
        if reservation is None:
            raise NoReservation(f"there is no reservation {id_[:40]!r}, or its time is up")
        if not secrets.compare_digest(reservation.nonce.encode(), nonce.encode()):
            raise NoReservation("the nonce is not the one of this reservation")
        return reservation

    def _forget(self, id_: str) -> None:
        reservation = self._reservations.pop(id_, None)
        if reservation is not None:
            reservation.timer.cancel()

    def _expire(self, id_: str) -> None:
        reservation = self._reservations.get(id_)
        if reservation is not None:
            self._forget(id_)
            self._release(reservation.slots)

    def _release(self, slots: Sequence[ReservedSlot]) -> None:
        self._loop.enqueue(ReleaseSlots(slots))
