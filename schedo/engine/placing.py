"""Work placed right now: invocations, the bids for them, and reservations.

An invocation is made with its attempt and sent to a worker when it is durable. A worker elsewhere
must say that it takes it, within a moment; else it is passed on to the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from schedo.core.leases import HandedBack, Report
from schedo.core.model import Job, JobSpec, Lane, LeaseKey
from schedo.core.placing import Place
from schedo.core.routes import Route
from schedo.core.scheduler import Scheduler
from schedo.engine.asks import Reservation
from schedo.engine.replies import refuse
from schedo.engine.turns import TurnLoop
from schedo.errors import IllegalTransition, NoCapacity, NoReservation, SchedoError, Unsatisfiable

ACCEPT_S = 0.25
_REFUSED = LeaseKey(0, 0, 0)  # in place of the key of a bid that is being passed on
NO_CAPACITY = "no-capacity"  # the type of the failure of what nobody took


class _Bid:
    """An attempt that its worker has yet to take."""

    __slots__ = ("accepted", "key", "refused_by", "timer", "worker")

    def __init__(self, key: LeaseKey, worker: str, accepted: asyncio.Future[None]) -> None:
        self.key = key
        self.worker = worker
        self.accepted = accepted
        self.refused_by: set[str] = set()
        self.timer: asyncio.TimerHandle | None = None


class _Kept:
    """A reservation that can still be used."""

    __slots__ = ("nonce", "places", "timer")

    def __init__(self, nonce: str, places: list[Place], timer: asyncio.TimerHandle) -> None:
        self.nonce = nonce
        self.places = places
        self.timer = timer


class Placing:
    """What is being placed, by job id, and the reservations by id."""

    def __init__(
        self,
        turns: TurnLoop,
        wait: Callable[[int, float], Awaitable[Job]],
        cancel: Callable[[int], Awaitable[Job]],
    ) -> None:
        self._turns = turns
        self._wait = wait
        self._cancel = cancel
        # Takes an unanswered bid from its worker, and rejects it.
        self.on_late: Callable[[LeaseKey, str, str], None] = self.reject
        turns.on_ended = self._on_ended
        # Whether a worker that is away could take jobs of the lane.
        self.may_return: Callable[[Lane], bool] = lambda lane: False
        self._bids: dict[int, _Bid] = {}
        self._kept: dict[str, _Kept] = {}

    # Asked by people.

    async def invoke(self, spec: JobSpec, count: int, wait_s: float) -> list[Job]:
        """Run so many jobs right now, all or none; return them as they are after the wait.

        Raise NoCapacity or Unsatisfiable; a job that failed is returned as such.
        """
        lane = Lane(spec.queue, spec.task, route=spec.options.route)
        jobs = await self._act(
            lambda scheduler, now: scheduler.placements.invoke(spec, count, now), lane
        )
        return await self._see_through(jobs, wait_s)

    async def reserve(
        self, task: str | None, queue: str, route: Route | None, count: int, ttl_s: float
    ) -> Reservation:
        """Hold so many slots until they are used or released, or the time is up."""
        lane = Lane(queue, task or "", route=route)
        reply: asyncio.Future[list[Place]] = self._turns.loop.create_future()

        def act(scheduler: Scheduler, now: int) -> None:
            try:
                places = scheduler.placements.reserve(lane, count)
            except SchedoError as error:
                refuse(reply, self._soften(error, lane))
            else:
                if not reply.done():
                    reply.set_result(places)
                else:
                    scheduler.placements.release(places)

        self._turns.send(act, reply)
        try:
            places = await reply
        except asyncio.CancelledError:
            if reply.done() and not reply.cancelled() and reply.exception() is None:
                self._release(reply.result())
            raise
        ident, nonce = secrets.token_hex(8), secrets.token_urlsafe(18)
        timer = self._turns.loop.call_at(self._turns.loop.time() + ttl_s, self._expire, ident)
        self._kept[ident] = _Kept(nonce, places, timer)
        expires_at = self._turns.clock.now() + round(ttl_s * 1_000_000)
        return Reservation(ident, nonce, [place.worker for place in places], expires_at)

    async def commit(self, ident: str, nonce: str, spec: JobSpec, wait_s: float) -> list[Job]:
        """Run a job in each slot of the reservation; raise NoReservation."""
        places = self._take(ident, nonce)
        jobs = await self._act(
            lambda scheduler, now: scheduler.placements.invoke_reserved(spec, places, now)
        )
        return await self._see_through(jobs, wait_s)

    async def release(self, ident: str, nonce: str) -> None:
        """Let go of the reservation; raise NoReservation."""
        self._release(self._take(ident, nonce))

    def recovered(self) -> None:
        """What was reserved went with the scheduler that knew it, and perhaps an attempt."""
        for bid in list(self._bids.values()):
            if bid.key is not _REFUSED and not self._turns.is_live(bid.key):
                self._on_ended(bid.key)
        for kept in self._kept.values():
            kept.timer.cancel()
        self._kept.clear()

    def close(self) -> None:
        """Let go of all timers."""
        for kept in self._kept.values():
            kept.timer.cancel()
        for bid in self._bids.values():
            if bid.timer is not None:
                bid.timer.cancel()

    # Said by workers.

    def has_bid(self, key: LeaseKey) -> bool:
        """Whether the attempt's worker has yet to take it."""
        bid = self._bids.get(key.job_id)
        return bid is not None and bid.key == key

    def offered(self, key: LeaseKey) -> None:
        """Note that the worker is told; it has a moment to answer."""
        if self.has_bid(key):
            self._begin(self._bids[key.job_id])

    def _begin(self, bid: _Bid) -> None:
        """Let the worker have a moment from now."""
        if bid.timer is not None:
            bid.timer.cancel()
        late = f"worker {bid.worker} did not answer within {ACCEPT_S:g} s"
        at = self._turns.loop.time() + ACCEPT_S
        bid.timer = self._turns.loop.call_at(at, self.on_late, bid.key, bid.worker, late)

    def accept(self, key: LeaseKey) -> None:
        """Note that the worker takes it."""
        if self.has_bid(key):
            self._on_ended(key)

    def reject(self, key: LeaseKey, worker: str, reason: str) -> None:
        """Pass the attempt on; the worker does not take it."""
        if not self.has_bid(key):
            return
        bid = self._bids[key.job_id]
        bid.key = _REFUSED
        bid.refused_by.add(worker)
        if bid.timer is not None:
            bid.timer.cancel()

        def act(scheduler: Scheduler, now: int) -> None:
            self._turns.note_end(Report(key, HandedBack()))
            job = scheduler.placements.pass_on(key, bid.refused_by, reason, now)
            if job is not None and not job.is_final and job.worker is not None:
                bid.key, bid.worker = job.key, job.worker
                if self._is_remote(job.worker):
                    self._begin(bid)
                else:
                    self.accept(bid.key)
            else:
                self._bids.pop(key.job_id, None)
                if not bid.accepted.done():
                    bid.accepted.set_result(None)

        self._turns.post(act)

    # The inside.

    def _on_ended(self, key: LeaseKey) -> None:
        """Nobody waits for an answer to a bid any more: it was given, or the attempt has ended."""
        bid = self._bids.pop(key.job_id, None) if self._bids else None
        if bid is not None:
            if bid.timer is not None:
                bid.timer.cancel()
            if not bid.accepted.done():
                bid.accepted.set_result(None)

    async def _act(
        self, make: Callable[[Scheduler, int], list[Job]], lane: Lane | None = None
    ) -> list[Job]:
        """Start jobs; return copies once they are durable."""
        reply: asyncio.Future[Any] = self._turns.loop.create_future()
        made: list[int] = []

        def act(scheduler: Scheduler, now: int) -> None:
            try:
                jobs = make(scheduler, now)
            except SchedoError as error:
                refuse(reply, self._soften(error, lane))
                return
            for job in jobs:
                assert job.worker is not None, "it was started"
                if self._is_remote(job.worker):
                    made.append(job.id)
                    self._bids[job.id] = _Bid(job.key, job.worker, self._turns.loop.create_future())
            self._turns.reply(reply, [job.copy() for job in jobs])

        self._turns.send(act, reply)
        try:
            started: list[Job] = await reply
        except BaseException:
            for job_id in made:
                self._bids.pop(job_id, None)
            raise
        for job in started:  # it may be that its worker asks for nothing more
            bid = self._bids.get(job.id)
            if bid is not None and bid.timer is None:
                self._begin(bid)
        return started

    async def _see_through(self, jobs: Sequence[Job], wait_s: float) -> list[Job]:
        """Wait until the jobs have ended, or else until they are taken."""
        bids = [bid for job in jobs if (bid := self._bids.get(job.id)) is not None]
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

    def _soften(self, error: SchedoError, lane: Lane | None) -> SchedoError:
        """Nobody there could take it; but a worker that was there of late may come back."""
        if isinstance(error, Unsatisfiable) and lane is not None and self.may_return(lane):
            return NoCapacity(f"{error}; one that could is away")
        return error

    def _is_remote(self, worker_id: str) -> bool:
        """Whether the worker has a word in what it takes."""
        worker = self._turns.workers.find(worker_id)
        return worker is not None and worker.offer.asks

    def _take(self, ident: str, nonce: str) -> list[Place]:
        kept = self._kept.get(ident)
        if kept is None:
            raise NoReservation(f"there is no reservation {ident[:40]!r}, or its time is up")
        if not secrets.compare_digest(kept.nonce.encode(), nonce.encode()):
            raise NoReservation("the nonce is not the one of this reservation")
        del self._kept[ident]
        kept.timer.cancel()
        return kept.places

    def _expire(self, ident: str) -> None:
        kept = self._kept.pop(ident, None)
        if kept is not None:
            self._release(kept.places)

    def _release(self, places: Sequence[Place]) -> None:
        self._turns.post(lambda scheduler, now: scheduler.placements.release(places))
