"""The sessions of the remote workers, and the leases that each of them holds.

The server knows a worker only by its requests: a request describes the worker, brings results,
lists the running attempts, and may poll. A worker receives leases only while it polls. It is lost
after the session timeout, or RECONNECT_S after its poll broke off, if it sends no other request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from schedo.core.commands import Poll
from schedo.core.leases import AttemptResult, Blame, Lease, Lost, Released
from schedo.core.model import LeaseKey, ReadyKey
from schedo.core.worker_messages import PollRequest, PollResponse, ProgressLine, WorkerStatus
from schedo.core.worker_pool import Worker, WorkerSpec
from schedo.engine.liveness import ListeningClock, SessionTimer
from schedo.engine.loop import EngineLoop
from schedo.engine.placement import LivePlacement
from schedo.engine.worker_session import RESTART_TIMEOUT_S, Held, Session, is_polling, kind, status
from schedo.errors import NotFound, Overloaded, WorkerReplaced

log = logging.getLogger("schedo.engine")

RECONNECT_S = 5.0  # to reconnect after the connection of a poll broke
IN_FLIGHT_S = 2.0  # a heartbeat may have left the worker before a lease this new arrived
DISCONNECTED_KEPT = 1_000
EVICTED_AT_ONCE = 100  # at least, when SESSIONS_MAX is reached; the oldest first
SESSIONS_MAX = 5_000
UNACKNOWLEDGED_MAX = 8  # leases in a row that do not arrive; the next one counts as a loss


class WorkerSessions:
    """The sessions, by the worker's name."""

    def __init__(self, loop: EngineLoop, placement: LivePlacement) -> None:
        self._loop = loop
        self._placement = placement
        self._sessions: dict[str, Session] = {}
        self._listening: ListeningClock | None = None
        loop.expect_worker = self._expect
        loop.on_recovered = self.wake
        placement.on_rejected_late = self._on_late_offer
        placement.could_reconnect = self._could_reconnect
        placement.supports_offers = self._supports_offers

    async def work(self, poll: PollRequest) -> PollResponse:
        """Handle one request of a worker; the caller cancels this when the worker disconnects."""
        session = self._register(poll)
        session.open_requests += 1
        try:
            return await self._work(session, poll)
        finally:
            session.open_requests -= 1
            if session.is_connected and not session.is_broken:
                self._arm(session, session.session_timeout_s)

    async def _work(self, session: Session, poll: PollRequest) -> PollResponse:
        # Results come first: they free the slots and the held leases that the later steps look at.
        refused = [each for result in poll.reports if (each := self._apply_result(session, result))]
        for progress in poll.progress:
            if progress.key in session.held:
                self._loop.note_progress(progress)
        self._apply_offer_replies(session, poll)
        await self._placement.decided(poll.accept)
        revoked = [key for key in poll.accept if key not in session.held]
        if poll.is_draining:
            self._loop.workers.poll(session.name, 0)
            session.wake()
            for key in [key for key, held in session.held.items() if held.sent_at is None]:
                self._release(session, key)
        wants_leases = poll.max_leases != 0 and not poll.is_draining
        revoked += self._reconcile(session, poll, is_sure=wants_leases or poll.is_draining)
        if poll.reports:
            await self._loop.flush()
        is_latest = wants_leases and await self._wait_for_work(session, poll)
        leases = session.take_new(self._loop.loop.time()) if is_latest else []
        offers = self._send_offers(leases, is_supported=poll.supports_offers)
        if poll.is_draining and not session.held:
            self._disconnect(session, "it has shut down")
            self._end_drain(session)
        return PollResponse(
            leases, offers, session.take_stops(), revoked, refused, session.drain_requested
        )

    def _apply_offer_replies(self, session: Session, poll: PollRequest) -> None:
        for key in poll.accept:
            if key in session.held:
                self._placement.accept(key)
        for key, reason in poll.reject:
            self._reject_offer(session, key, reason)

    def _send_offers(self, leases: Sequence[Lease], *, is_supported: bool) -> set[LeaseKey]:
        """Return which of the leases the worker must accept or reject.

        A worker that does not support offers accepts a lease by polling with a free slot.
        """
        offers = {lease.key for lease in leases if self._placement.has_offer(lease.key)}
        for key in offers:
            (self._placement.offered if is_supported else self._placement.accept)(key)
        return offers if is_supported else set()

    # Registration.

    def _register(self, poll: PollRequest) -> Session:
        session = self._sessions.get(poll.worker)
        if session is None:
            if len(self._sessions) >= SESSIONS_MAX:
                self._evict_disconnected()
                if len(self._sessions) >= SESSIONS_MAX:
                    raise Overloaded(f"{SESSIONS_MAX} workers are registered already")
            session = self._sessions[poll.worker] = Session(poll.worker, poll.spec)
        if session.session_id is not None and session.session_id != poll.session:
            if poll.session in session.previous_session_ids:
                raise WorkerReplaced(f"another process has taken the name {poll.worker!r} over")
            self._take_over(session, poll)
        session.session_id = poll.session
        now = self._loop.clock.now()
        session.last_seen_at = now
        session.session_timeout_s = poll.session_timeout_s
        session.supports_offers = poll.supports_offers
        session.is_draining = poll.is_draining
        self._arm(session, poll.session_timeout_s)
        spec = poll.spec if poll.spec.polls else is_polling(poll.spec)
        if not session.is_connected or session.spec != spec:
            if not session.is_connected:
                session.connected_at = now
                session.polled_at = self._loop.loop.time()
            session.is_connected = True
            session.spec = spec
            self._loop.attach(spec, session)
        return session

    def _take_over(self, session: Session, poll: PollRequest) -> None:
        """Give the name to a new process; attempts that it does not list as running are lost."""
        session.previous_session_ids.append(session.session_id or "")
        self._end_drain(session)
        session.wake()
        reason = f"worker {session.name} was restarted"
        for key, held in list(session.held.items()):
            if key in (poll.running or ()) or held.sent_at is None:
                continue
            if self._placement.has_offer(key):
                self._reject_offer(session, key, reason)
            else:
                self._end_lease(session, key, Lost(reason))

    def _end_drain(self, session: Session) -> None:
        """Remove the cordon of a finished drain, so that the worker's next process gets work."""
        if session.drain_requested:
            self.cordon(session.name, False)

    def _reconcile(self, session: Session, poll: PollRequest, *, is_sure: bool) -> list[LeaseKey]:
        """Release leases that the worker does not list; return those that it must not run."""
        running = poll.running
        if running is None:
            return []
        now = self._loop.loop.time()
        for key, held in list(session.held.items()):
            if key in running:
                held.is_unconfirmed = False
            if key in running or held.sent_at is None:
                continue
            if is_sure or now - held.sent_at > IN_FLIGHT_S:  # sure: no lease is on its way
                self._release_unconfirmed(session, key, held)
        return [
            key
            for key in running
            if key not in session.held and key not in session.reported and key not in poll.accept
        ]

    def _release_unconfirmed(self, session: Session, key: LeaseKey, held: Held) -> None:
        """End a lease that the worker does not run: as lost, or released if it never arrived."""
        is_once = held.lease.options.at_most_once and not session.session_id
        if held.is_recovered or (is_once and not self._placement.has_offer(key)):
            blame = Blame.NONE if held.is_unconfirmed else Blame.SOLE
            lost = Lost(f"worker {session.name} does not run it any more", blame)
            self._end_lease(session, key, lost)
        elif session.unacknowledged >= UNACKNOWLEDGED_MAX and not self._placement.has_offer(key):
            self._end_lease(session, key, Lost(f"worker {session.name} ignores its leases"))
        else:
            session.unacknowledged += 1
            self._release(session, key)

    def _release(self, session: Session, key: LeaseKey) -> None:
        """Requeue the attempt of a lease that never arrived."""
        if self._placement.has_offer(key):
            self._reject_offer(session, key, "the lease did not arrive")
        else:
            self._end_lease(session, key, Released())

    def _end_lease(self, session: Session, key: LeaseKey, outcome: Lost | Released) -> None:
        del session.held[key]
        session.note_revoked(key)
        self._loop.report(AttemptResult(key, outcome))

    def _reject_offer(self, session: Session, key: LeaseKey, reason: str) -> None:
        if session.held.pop(key, None) is not None:
            session.note_revoked(key)
            self._placement.reject(key, session.name, reason)

    def _could_reconnect(self, ready_key: ReadyKey) -> bool:
        # After a restart, workers that hold no lease have no session until they reconnect.
        began_at, now = self._loop.monitor.metrics.began_at, self._loop.clock.now()
        if self._loop.scheduler.epoch > 1 and now - began_at < RECONNECT_S * 1_000_000:
            return True
        return any(
            session.session_id is None or session.spec.serves(ready_key)
            for session in self._sessions.values()
            if not session.is_connected
        )

    def _supports_offers(self, name: str) -> bool:
        session = self._sessions.get(name)
        return session is not None and session.supports_offers

    def _on_late_offer(self, key: LeaseKey, worker: str, reason: str) -> None:
        session = self._sessions.get(worker)
        if session is not None:
            self._reject_offer(session, key, reason)

    # Results and polls.

    def _apply_result(self, session: Session, result: AttemptResult) -> tuple[LeaseKey, str] | None:
        """Apply a result; if it is refused, return its key and the reason."""
        key = result.key
        if session.has_reported(key, result.outcome):
            return None
        if session.held.pop(key, None) is None:
            is_stale = key in session.reported or not self._loop.is_live(key)
            if session.is_first_late_result(key) and is_stale:
                self._loop.report(result)  # the engine records it as stale
            return key, f"worker {session.name} does not hold this attempt any more"
        session.note_reported(key, result.outcome)
        session.unacknowledged = 0
        self._placement.accept(key)
        self._loop.report(result)
        return None

    async def _wait_for_work(self, session: Session, poll: PollRequest) -> bool:
        """Poll the engine, and wait up to `poll.wait_s` for a lease or a stop request.

        Return False if a newer poll of the worker waits now: the leases go into its response.
        """
        loop = self._loop.loop
        session.wake()  # a session has one open poll
        waiter = session.waiter = loop.create_future()
        free = session.spec.slots - len(session.held)
        count = free if poll.max_leases is None else poll.max_leases
        timer, session.polled_at = None, loop.time()
        try:
            await self._loop.try_enqueue(Poll(session.name, count))
            self._placement.try_all()
            if poll.wait_s and not session.has_response():
                timer = loop.call_at(loop.time() + poll.wait_s, session.wake)
                await waiter
            if session.session_id != poll.session:
                raise WorkerReplaced(f"another process has taken the name {poll.worker!r} over")
            is_latest = session.waiter is waiter
        except asyncio.CancelledError:
            if session.waiter is waiter:
                self._on_disconnect(session)
            raise
        else:
            self._arm(session, session.session_timeout_s)
            return is_latest
        finally:
            if timer is not None:
                timer.cancel()
            if session.waiter is waiter:
                session.waiter = None
                self._loop.workers.poll(session.name, 0)
            session.polled_at = loop.time()

    def _on_disconnect(self, session: Session) -> None:
        """Release the leases of a response that cannot be sent; expect the worker to reconnect."""
        for key in [key for key, held in session.held.items() if held.sent_at is None]:
            self._release(session, key)
        self._arm(session, min(RECONNECT_S, session.session_timeout_s), is_broken=True)

    # Loss and shutdown.

    def _arm(self, session: Session, delay_s: float, *, is_broken: bool = False) -> None:
        """Count the worker as lost if it sends no request within `delay_s`."""
        session.is_broken = is_broken
        if session.timer is None:
            loop = self._loop.loop
            if self._listening is None:
                self._listening = ListeningClock(loop)
            session.timer = SessionTimer(loop, self._listening, partial(self._on_timeout, session))
        session.timer.expect(delay_s)

    def _on_timeout(self, session: Session) -> None:
        if session.open_requests:  # the server has not responded yet
            self._arm(session, session.session_timeout_s)
        elif session.is_broken:
            limit = min(RECONNECT_S, session.session_timeout_s)
            self._mark_lost(session, f"its connection broke; it did not reconnect in {limit:g} s")
        else:
            self._mark_lost(session, f"it sent no request for {session.session_timeout_s:g} s")

    def _mark_lost(self, session: Session, why: str) -> None:
        log.warning("worker %s is lost with %d attempts: %s", session.name, len(session.held), why)
        self._disconnect(session, f"worker {session.name} is lost: {why}")

    def _disconnect(self, session: Session, message: str) -> None:
        session.is_connected = False
        session.stop_listening()
        for key, held in list(session.held.items()):
            if held.sent_at is None or self._placement.has_offer(key):
                self._release(session, key)
            elif held.is_unconfirmed:  # its host may have died together with the server's
                self._end_lease(session, key, Lost(message, Blame.NONE))
        for key in session.held:
            session.note_revoked(key)
        session.held.clear()
        self._loop.detach(session.name, message)

    def _evict_disconnected(self) -> None:
        gone = [n for n, each in self._sessions.items() if not each.is_connected and not each.held]
        for name in gone[: max(len(gone) - DISCONNECTED_KEPT, EVICTED_AT_ONCE)]:
            del self._sessions[name]

    def wake(self) -> None:
        """Complete all open polls, because a new scheduler does not know them."""
        self._placement.recovered()
        for session in self._sessions.values():
            session.wake()

    def close(self) -> None:
        """Complete all open polls and lose no worker: the next server expects them."""
        for session in self._sessions.values():
            session.stop_listening()
            session.wake()
        if self._listening is not None:
            self._listening.close()

    def _expect(self, lease: Lease) -> tuple[WorkerSpec, Session] | None:
        """Expect the remote worker that may still run the attempt of the previous server."""
        name = lease.worker
        if kind(name) != "remote":
            return None
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(name, WorkerSpec(name, 0, frozenset()))
        session.held[lease.key] = Held(lease, self._loop.loop.time(), is_recovered=True)
        if not session.is_listening:
            self._arm(session, max(RESTART_TIMEOUT_S, session.session_timeout_s))
        return is_polling(session.spec), session

    def held_by(self, name: str) -> list[Lease]:
        """Return the leases that the worker holds, or held when the previous server ended."""
        session = self._sessions.get(name)
        return [held.lease for held in session.held.values()] if session is not None else []

    # For operators.

    def get(self, name: str) -> WorkerStatus:
        """Return the status of one worker; raise NotFound."""
        worker = self._loop.workers.find(name)
        if worker is None and name in self._sessions:
            worker = Worker(self._sessions[name].spec)
        if worker is None:
            raise NotFound(f"there is no worker {name!r}")
        return self._status_of(worker)

    def cordon(self, name: str, is_cordoned: bool) -> WorkerStatus:
        """Cordon or uncordon the worker; a restart of the server removes the cordon."""
        self.get(name)
        (self._loop.cordoned.add if is_cordoned else self._loop.cordoned.discard)(name)
        if not is_cordoned and name in self._sessions:
            self._sessions[name].drain_requested = False
        self._loop.workers.cordon(name, is_cordoned)
        self._loop.wake()
        return self.get(name)

    def drain(self, name: str) -> WorkerStatus:
        """Cordon the worker and request that it finishes its attempts and shuts down."""
        result = self.cordon(name, True)
        session = self._sessions.get(name)
        if session is not None:
            session.drain_requested = True
            session.wake()
        return result._replace(state="draining") if session is not None else result

    def progress_of(self, job_id: int) -> Sequence[ProgressLine]:
        """Return the recent progress of the job's running attempt, oldest first."""
        return self._loop.progress.of(job_id)

    def _status_of(self, worker: Worker) -> WorkerStatus:
        return status(worker, self._sessions.get(worker.spec.id))

    def list(self) -> list[WorkerStatus]:
        """Return the attached workers, then the disconnected ones that still have a session."""
        workers = {worker.spec.id: worker for worker in self._loop.workers}
        away = [Worker(each.spec) for each in self._sessions.values() if each.name not in workers]
        return [self._status_of(worker) for worker in (*workers.values(), *away)]
