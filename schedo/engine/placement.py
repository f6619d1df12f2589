"""Work placed right now: invocations, the bids for them, and reservations.

An invocation is made with its attempt and sent to a worker when it is durable. A worker elsewhere
must say that it takes it, within a moment; else it is passed on to the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from schedo.core.leases import AttemptResult, Lease, Released
from schedo.core.model import Job, JobSpec, LeaseKey, ReadyKey
from schedo.core.placement import ReservedSlot
from schedo.core.requirements import Requirements
from schedo.core.scheduler import Scheduler
from schedo.core.states import State
from schedo.engine.command_queue import refuse
from schedo.engine.loop import EngineLoop
from schedo.engine.offers import REFUSED, Gang, Offer
from schedo.engine.worker_messages import Reservation
from schedo.errors import IllegalTransition, NoCapacity, NoReservation, SchedoError, Unsatisfiable

ACCEPT_S = 0.25
_NOT_ALL = "no worker took another one of those that run together"
NO_CAPACITY = "no-capacity"  # the type of the failure of what nobody took


class _Reservation:
    """A reservation that can still be used."""

    __slots__ = ("nonce", "places", "timer")

    def __init__(self, nonce: str, places: list[ReservedSlot], timer: asyncio.TimerHandle) -> None:
        self.nonce = nonce
        self.places = places
        self.timer = timer


class LivePlacement:
    """What is being placed, by job id, and the reservations by id."""

    def __init__(
        self,
        turns: EngineLoop,
        wait: Callable[[int, float], Awaitable[Job]],
        cancel: Callable[[int], Awaitable[Job]],
    ) -> None:
        self._turns = turns
        self._wait = wait
        self._cancel = cancel
        # Takes an unanswered bid from its worker, and rejects it.
        self.on_rejected_late: Callable[[LeaseKey, str, str], None] = self.reject
        turns.on_ended = self._on_ended
        # Whether a worker that is away could take jobs of the lane.
        self.could_reconnect: Callable[[ReadyKey], bool] = lambda lane: False
        # Whether the worker is asked before it gets something.
        self.supports_offers: Callable[[str], bool] = lambda worker: False
        turns.dispatcher.should_defer = self._should_defer
        self._offers: dict[int, Offer] = {}
        self._gangs: dict[int, Gang] = {}  # by job id, those that are not decided
        self._reservations: dict[str, _Reservation] = {}

    # Asked by people.

    async def invoke(self, spec: JobSpec, count: int, wait_s: float) -> list[Job]:
        """Run so many jobs right now, all or none; return them as they are after the wait.

        Raise NoCapacity or Unsatisfiable; a job that failed is returned as such.
        """
        lane = ReadyKey(spec.queue, spec.task, requirements=spec.options.requirements)
        jobs = await self._act(
            lambda scheduler, now: scheduler.placements.invoke(spec, count, now), lane
        )
        return await self._await_results(jobs, wait_s)

    async def reserve(
        self, task: str | None, queue: str, route: Requirements | None, count: int, ttl_s: float
    ) -> Reservation:
        """Hold so many slots until they are used or released, or the time is up."""
        lane = ReadyKey(queue, task or "", requirements=route)
        reply: asyncio.Future[list[ReservedSlot]] = self._turns.loop.create_future()

        def act(scheduler: Scheduler, now: int) -> None:
            try:
                places = scheduler.placements.reserve(lane, count)
            except SchedoError as error:
                refuse(reply, self._retryable_if_reconnectable(error, lane))
            else:
                if not reply.done():
                    reply.set_result(places)
                else:
                    scheduler.placements.release(places)

        self._turns.try_enqueue(act, reply)
        try:
            places = await reply
        except asyncio.CancelledError:
            if reply.done() and not reply.cancelled() and reply.exception() is None:
                self._release(reply.result())
            raise
        ident, nonce = secrets.token_hex(8), secrets.token_urlsafe(18)
        timer = self._turns.loop.call_at(self._turns.loop.time() + ttl_s, self._expire, ident)
        self._reservations[ident] = _Reservation(nonce, places, timer)
        expires_at = self._turns.clock.now() + round(ttl_s * 1_000_000)
        return Reservation(ident, nonce, [place.worker for place in places], expires_at)

    async def commit(self, ident: str, nonce: str, spec: JobSpec, wait_s: float) -> list[Job]:
        """Run a job in each slot of the reservation; raise NoReservation.

        Raise Unsatisfiable if its workers do not run such jobs: the reservation stays as it is.
        """

        def make(scheduler: Scheduler, now: int) -> list[Job]:
            places = self._find(ident, nonce).places
            try:
                jobs = scheduler.placements.invoke_reserved(spec, places, now)
            except NoReservation:
                self._forget(ident)
                raise
            self._forget(ident)
            return jobs

        return await self._await_results(await self._act(make), wait_s)

    async def release(self, ident: str, nonce: str) -> None:
        """Let go of the reservation; raise NoReservation."""
        places = self._find(ident, nonce).places
        self._forget(ident)
        self._release(places)

    def recovered(self) -> None:
        """What was reserved went with the scheduler that knew it, and perhaps an attempt."""
        for bid in list(self._offers.values()):
            if bid.key is not REFUSED and not self._turns.is_live(bid.key):
                self._on_ended(bid.key)
        for group in set(self._gangs.values()):
            self._fail(group)
        for kept in self._reservations.values():
            kept.timer.cancel()
        self._reservations.clear()

    def close(self) -> None:
        """Let go of all timers."""
        for kept in self._reservations.values():
            kept.timer.cancel()
        for bid in self._offers.values():
            bid.stop_timer()

    # Said by workers.

    def has_offer(self, key: LeaseKey) -> bool:
        """Whether the attempt's worker has yet to take it."""
        bid = self._offers.get(key.job_id)
        return bid is not None and bid.key == key

    def offered(self, key: LeaseKey) -> None:
        """Note that the worker is told; it has a moment to answer."""
        if self.has_offer(key):
            self._begin(self._offers[key.job_id])

    def _begin(self, bid: Offer) -> None:
        """Let the worker have a moment from now."""
        bid.stop_timer()
        at = self._turns.loop.time() + ACCEPT_S
        bid.timer = self._turns.loop.call_at(at, self._on_time_up, bid)

    def _on_time_up(self, bid: Offer) -> None:
        reason = f"worker {bid.worker} did not answer within {ACCEPT_S:g} s"
        if bid.group is None or bid.key.job_id not in bid.group.deferred:
            self.on_rejected_late(bid.key, bid.worker, reason)
            if bid.key is not REFUSED and self.has_offer(bid.key):  # it is not handed out yet
                self._begin(bid)
        elif self._is_near(bid.worker):  # it waits, and it is others that are late
            self._begin(bid)
        else:
            self.reject(bid.key, bid.worker, reason)

    def accept(self, key: LeaseKey) -> None:
        """Note that the worker takes it."""
        if not self.has_offer(key):
            return
        bid = self._offers[key.job_id]
        if bid.group is None:
            self._end_offer(key.job_id)
        else:
            bid.is_taken = True
            bid.stop_timer()
            self._try_open(bid.group)

    def reject(self, key: LeaseKey, worker: str, reason: str) -> None:
        """Pass the attempt on; the worker does not take it."""
        if not self.has_offer(key):
            return
        bid = self._offers[key.job_id]
        bid.key = REFUSED
        bid.is_taken = False
        bid.refused_by.add(worker)
        bid.stop_timer()
        if bid.group is not None:
            bid.group.deferred.pop(key.job_id, None)

        def act(scheduler: Scheduler, now: int) -> None:
            self._turns.record_result(AttemptResult(key, Released()))
            job = scheduler.placements.reassign(key, bid.refused_by, reason, now)
            if job is not None and not job.is_final and job.worker is not None:
                bid.key, bid.worker = job.key, job.worker
                if self._is_remote(job.worker):
                    self._begin(bid)
                else:
                    self.accept(bid.key)
            else:
                self._on_ended(key)

        self._turns.enqueue(act)

    # Groups.

    async def decided(self, keys: Iterable[LeaseKey]) -> None:
        """Return when it is known whether these may begin: the others of their groups are ready."""
        for key in keys:
            group = self._gangs.get(key.job_id)
            if group is not None:
                await asyncio.shield(group.wait_decided)

    def try_all(self) -> None:
        """Let groups begin that only waited for a worker to ask."""
        for group in set(self._gangs.values()):
            self._try_open(group)

    def _should_defer(self, lease: Lease) -> bool:
        """Keep what a worker would begin at once, until its group may."""
        group = self._gangs.get(lease.key.job_id)
        if group is None or self.supports_offers(lease.worker):
            return False
        group.deferred[lease.key.job_id] = lease
        self._try_open(group)
        return True

    def _try_open(self, group: Gang) -> None:
        """Let all jobs of the group begin if there is a yes for each."""
        if group.is_failed or not all(self._is_ready(group, each) for each in group.job_ids):
            return
        for job_id in group.job_ids:
            self._gangs.pop(job_id, None)
            self._end_offer(job_id)
        if not group.wait_decided.done():
            group.wait_decided.set_result(None)
        for lease in group.deferred.values():
            self._turns.dispatcher.dispatch_deferred(lease)

    def _is_ready(self, group: Gang, job_id: int) -> bool:
        lease = group.deferred.get(job_id)
        if lease is not None:
            return self._is_near(lease.worker)
        bid = self._offers.get(job_id)
        return bid is not None and bid.is_taken

    def _fail(self, group: Gang) -> None:
        """Take all jobs of the group from their workers: none of them has begun."""
        if group.is_failed:
            return
        group.is_failed = True
        group.deferred.clear()

        def act(scheduler: Scheduler, now: int) -> None:
            for job_id in group.job_ids:
                self._gangs.pop(job_id, None)
                self._end_offer(job_id)
                job = scheduler.jobs.find(job_id)
                if job is not None and job.state is State.RUNNING and job.worker is not None:
                    key, worker = job.key, job.worker
                    self._turns.record_result(AttemptResult(key, Released()))
                    scheduler.placements.cancel_unstarted(job, _NOT_ALL, now)
                    self.on_rejected_late(key, worker, _NOT_ALL)
            if not group.wait_decided.done():
                group.wait_decided.set_result(None)

        self._turns.enqueue(act)

    # The inside.

    def _on_ended(self, key: LeaseKey) -> None:
        """The attempt has ended; in a group that has not begun this ends all."""
        self._end_offer(key.job_id)
        group = self._gangs.get(key.job_id) if self._gangs else None
        if group is not None:
            self._fail(group)

    def _end_offer(self, job_id: int) -> None:
        """Nobody waits for an answer to the bid any more: it was given, or is not needed."""
        bid = self._offers.pop(job_id, None) if self._offers else None
        if bid is not None:
            bid.end()

    async def _act(
        self, make: Callable[[Scheduler, int], list[Job]], lane: ReadyKey | None = None
    ) -> list[Job]:
        """Start jobs; return copies once they are durable."""
        reply: asyncio.Future[Any] = self._turns.loop.create_future()

        def act(scheduler: Scheduler, now: int) -> None:
            try:
                jobs = make(scheduler, now)
            except SchedoError as error:
                refuse(reply, self._retryable_if_reconnectable(error, lane))
                return
            group = None
            if len(jobs) > 1:
                group = Gang([job.id for job in jobs], self._turns.loop.create_future())
                self._gangs |= dict.fromkeys(group.job_ids, group)
            for job in jobs:
                assert job.worker is not None, "it was started"
                if self._is_remote(job.worker):
                    accepted = self._turns.loop.create_future()
                    self._offers[job.id] = Offer(job.key, job.worker, accepted, group)
            # Also when who asked has hung up: the jobs are handed out all the same.
            reply.add_done_callback(partial(self._on_durable, [job.id for job in jobs]))
            self._turns.reply(reply, [job.copy() for job in jobs])

        self._turns.try_enqueue(act, reply)
        started: list[Job] = await reply
        return started

    def _on_durable(self, job_ids: Sequence[int], reply: asyncio.Future[Any]) -> None:
        """Let the workers have a moment from now; or forget what did not become durable."""
        has_failed = not reply.cancelled() and reply.exception() is not None
        for job_id in job_ids:
            if has_failed:
                self._offers.pop(job_id, None)
                self._gangs.pop(job_id, None)
            elif (bid := self._offers.get(job_id)) is not None and bid.timer is None:
                self._begin(bid)  # it may be that its worker asks for nothing more

    async def _await_results(self, jobs: Sequence[Job], wait_s: float) -> list[Job]:
        """Wait until the jobs have ended, or else until they are taken."""
        bids = [bid for job in jobs if (bid := self._offers.get(job.id)) is not None]
        if bids and not wait_s:
            await asyncio.wait([bid.accepted for bid in bids])
        ended = await asyncio.gather(*(self._wait(job.id, wait_s) for job in jobs))
        refused = [job for job in ended if job.failure and job.failure.type == NO_CAPACITY]
        if not refused:
            return list(ended)
        for job in ended:
            if not job.is_final:
                with contextlib.suppress(IllegalTransition):  # it has ended meanwhile
                    await self._cancel(job.id)
        failure = refused[0].failure
        message = failure.message if failure is not None else "no worker took it"
        asked = set().union(*(bid.refused_by for bid in bids))
        raise NoCapacity(message, len(asked), {"rejected": len(asked)})

    def _retryable_if_reconnectable(self, error: SchedoError, lane: ReadyKey | None) -> SchedoError:
        """Nobody there could take it; but a worker that was there of late may come back."""
        if isinstance(error, Unsatisfiable) and lane is not None and self.could_reconnect(lane):
            return NoCapacity(f"{error}; one that could is away")
        return error

    def _is_near(self, worker_id: str) -> bool:
        """Whether what is given to the worker reaches it at once."""
        worker = self._turns.workers.find(worker_id)
        return worker is not None and worker.can_start_now

    def _is_remote(self, worker_id: str) -> bool:
        """Whether the worker has a word in what it takes."""
        worker = self._turns.workers.find(worker_id)
        return worker is not None and worker.spec.polls

    def _find(self, ident: str, nonce: str) -> _Reservation:
        kept = self._reservations.get(ident)
        if kept is None:
            raise NoReservation(f"there is no reservation {ident[:40]!r}, or its time is up")
        if not secrets.compare_digest(kept.nonce.encode(), nonce.encode()):
            raise NoReservation("the nonce is not the one of this reservation")
        return kept

    def _forget(self, ident: str) -> None:
        self._reservations.pop(ident).timer.cancel()

    def _expire(self, ident: str) -> None:
        kept = self._reservations.pop(ident, None)
        if kept is not None:
            self._release(kept.places)

    def _release(self, places: Sequence[ReservedSlot]) -> None:
        self._turns.enqueue(lambda scheduler, now: scheduler.placements.release(places))
