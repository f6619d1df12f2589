"""The sessions of the remote workers, and the leases that each of them holds.

A worker's requests are all that the server knows of it: a request describes the worker, brings
results, lists what it runs, and may poll. A worker receives leases only while it polls. It is lost
after the session timeout without a request, or when its poll broke off and it did not return.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from schedo.core.leases import AttemptResult, Blame, Lease, Lost, Released
from schedo.core.model import LeaseKey, ReadyKey
from schedo.core.worker_pool import Worker, WorkerSpec
from schedo.engine.liveness import Listening, Silence
from schedo.engine.loop import EngineLoop
from schedo.engine.placement import LivePlacement
from schedo.engine.worker_messages import PollRequest, PollResponse, ProgressLine, WorkerStatus
from schedo.engine.worker_session import RESTART_SILENCE_S, Held, Session, is_polling, kind, status
from schedo.errors import NotFound, Overloaded, WorkerReplaced

log = logging.getLogger("schedo.engine")

RETURN_S = 5.0  # for a worker whose connection broke
JUST_GIVEN_S = 2.0  # a lease this fresh may be on its way when a heartbeat does not list it
GONE_KEPT = 1_000
FORGOTTEN_AT_ONCE = 100  # the longest gone, where there is no room
SESSIONS_MAX = 5_000
FORGOTTEN_MAX = 8  # leases in a row that a worker does not know of; then they count as losses


class WorkerSessions:
    """The sessions by the worker's name."""

    def __init__(self, turns: EngineLoop, placing: LivePlacement) -> None:
        self._turns = turns
        self._placing = placing
        self._sessions: dict[str, Session] = {}
        self._listening: Listening | None = None
        turns.expect_worker = self._expect
        turns.on_recovered = self.wake
        placing.on_rejected_late = self._on_late_offer
        placing.could_reconnect = self._could_reconnect
        placing.supports_offers = self._supports_offers

    async def work(self, ask: PollRequest) -> PollResponse:
        """Take in what the worker says and answer it; cancelled when it hangs up."""
        session = self._register(ask)
        session.open_requests += 1
        try:
            return await self._work(session, ask)
        finally:
            session.open_requests -= 1
            if session.is_connected and not session.is_broken:
                self._arm(session, session.session_timeout_s)

    async def _work(self, session: Session, ask: PollRequest) -> PollResponse:
        refused = [found for report in ask.reports if (found := self._end(session, report))]
        for progress in ask.progress:
            if progress.key in session.held:
                self._turns.note_progress(progress)
        self._apply_offer_replies(session, ask)
        await self._placing.decided(ask.accept)
        revoked = [key for key in ask.accept if key not in session.held]
        if ask.is_draining:
            self._turns.workers.poll(session.name, 0)
            session.wake()
            for key in [key for key, held in session.held.items() if held.given_at is None]:
                self._release(session, key)
        is_asking = ask.max_leases != 0 and not ask.is_draining
        revoked += self._reconcile(session, ask, is_sure=is_asking or ask.is_draining)
        if ask.reports:
            await self._turns.flush()
        is_given = is_asking and await self._give(session, ask)
        leases = session.take_new(self._turns.loop.time()) if is_given else []
        offers = self._send_offers(leases, is_asked=ask.supports_offers)
        if ask.is_draining and not session.held:
            self._disconnect(session, "it has left")
            self._forget_order(session)
        return PollResponse(
            leases, offers, session.take_stops(), revoked, refused, session.drain_requested
        )

    def _apply_offer_replies(self, session: Session, ask: PollRequest) -> None:
        """Take in what the worker accepts and refuses."""
        for key in ask.accept:
            if key in session.held:
                self._placing.accept(key)
        for key, reason in ask.reject:
            self._reject_offer(session, key, reason)

    def _send_offers(self, leases: Sequence[Lease], *, is_asked: bool) -> set[LeaseKey]:
        """Return which of the leases the worker has yet to accept.

        One that does not know offers has asked for work with a slot free: that is its yes.
        """
        offers = {lease.key for lease in leases if self._placing.has_offer(lease.key)}
        for key in offers:
            (self._placing.offered if is_asked else self._placing.accept)(key)
        return offers if is_asked else set()

    # Coming.

    def _register(self, ask: PollRequest) -> Session:
        session = self._sessions.get(ask.worker)
        if session is None:
            if len(self._sessions) >= SESSIONS_MAX:
                self._forget_gone()
                if len(self._sessions) >= SESSIONS_MAX:
                    raise Overloaded(f"{SESSIONS_MAX} workers are there already")
            session = self._sessions[ask.worker] = Session(ask.worker, ask.offer)
        if session.session_id is not None and session.session_id != ask.session:
            if ask.session in session.previous_session_ids:
                raise WorkerReplaced(f"another process has taken the name {ask.worker!r} over")
            self._take_over(session, ask)
        session.session_id = ask.session
        now = self._turns.clock.now()
        session.last_seen_at = now
        session.session_timeout_s = ask.session_timeout_s
        session.supports_offers = ask.supports_offers
        session.is_draining = ask.is_draining
        self._arm(session, ask.session_timeout_s)
        offer = ask.offer if ask.offer.polls else is_polling(ask.offer)
        if not session.is_connected or session.offer != offer:
            if not session.is_connected:
                session.connected_at = now
                session.polled_at = self._turns.loop.time()
            session.is_connected = True
            session.offer = offer
            self._turns.attach(offer, session)
        return session

    def _take_over(self, session: Session, ask: PollRequest) -> None:
        """Another process has the name now: what it does not go on with is lost."""
        session.previous_session_ids.append(session.session_id or "")
        self._forget_order(session)
        session.wake()
        reason = f"worker {session.name} was started anew"
        for key, held in list(session.held.items()):
            if key in (ask.running or ()) or held.given_at is None:
                continue
            if self._placing.has_offer(key):
                self._reject_offer(session, key, reason)
            else:
                self._end_lease(session, key, Lost(reason))

    def _forget_order(self, session: Session) -> None:
        """Who was told to leave has left; the next process of the name may work."""
        if session.drain_requested:
            self.cordon(session.name, False)

    def _reconcile(self, session: Session, ask: PollRequest, *, is_sure: bool) -> list[LeaseKey]:
        """Believe the worker about what it runs; return what it must not run."""
        running = ask.running
        if running is None:
            return []
        now = self._turns.loop.time()
        for key, held in list(session.held.items()):
            if key in running:
                held.is_unconfirmed = False
            if key in running or held.given_at is None:
                continue
            if is_sure or now - held.given_at > JUST_GIVEN_S:
                self._release_unconfirmed(session, key, held)
        return [
            key
            for key in running
            if key not in session.held and key not in session.reported and key not in ask.accept
        ]

    def _release_unconfirmed(self, session: Session, key: LeaseKey, held: Held) -> None:
        """The worker does not run it. Did it ever get it?"""
        is_once = held.lease.options.at_most_once and not session.session_id
        if held.is_expected or (is_once and not self._placing.has_offer(key)):
            blame = Blame.NONE if held.is_unconfirmed else Blame.SOLE
            lost = Lost(f"worker {session.name} does not run it any more", blame)
            self._end_lease(session, key, lost)
        elif session.unacknowledged >= FORGOTTEN_MAX and not self._placing.has_offer(key):
            self._end_lease(session, key, Lost(f"worker {session.name} forgets what it is given"))
        else:
            session.unacknowledged += 1
            self._release(session, key)

    def _release(self, session: Session, key: LeaseKey) -> None:
        """A lease never arrived: another may have it."""
        if self._placing.has_offer(key):
            self._reject_offer(session, key, "it did not get through")
        else:
            self._end_lease(session, key, Released())

    def _end_lease(self, session: Session, key: LeaseKey, outcome: Lost | Released) -> None:
        del session.held[key]
        session.note_revoked(key)
        self._turns.report(AttemptResult(key, outcome))

    def _reject_offer(self, session: Session, key: LeaseKey, reason: str) -> None:
        if session.held.pop(key, None) is not None:
            session.note_revoked(key)
            self._placing.reject(key, session.name, reason)

    def _could_reconnect(self, lane: ReadyKey) -> bool:
        """Whether a worker that is away could take it; the last server's are not known by name."""
        began_at, now = self._turns.monitor.metrics.began_at, self._turns.clock.now()
        if self._turns.scheduler.epoch > 1 and now - began_at < RETURN_S * 1_000_000:
            return True
        return any(
            session.session_id is None or session.offer.serves(lane)
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

    # Working.

    def _end(self, session: Session, report: AttemptResult) -> tuple[LeaseKey, str] | None:
        """Take in a result; return why not, if it is refused."""
        key = report.key
        if session.has_said(key, report.outcome):
            return None
        if session.held.pop(key, None) is None:
            if session.is_news(key) and (key in session.reported or not self._turns.is_live(key)):
                self._turns.report(report)  # kept as evidence
            return key, f"worker {session.name} does not hold this attempt any more"
        session.note_reported(key, report.outcome)
        session.unacknowledged = 0
        self._placing.accept(key)
        self._turns.report(report)
        return None

    async def _give(self, session: Session, ask: PollRequest) -> bool:
        """Ask the engine for work, and wait for it as long as the worker wants to.

        Return False if the worker has asked anew meanwhile: what there is goes into that answer.
        """
        loop = self._turns.loop
        session.wake()  # one request asks at a time
        waiter = session.waiter = loop.create_future()
        free = session.offer.slots - len(session.held)
        timer = None
        session.polled_at = loop.time()
        try:
            await self._turns.ask(session.name, free if ask.max_leases is None else ask.max_leases)
            self._placing.try_all()
            if ask.wait_s and not session.has_response():
                timer = loop.call_at(loop.time() + ask.wait_s, session.wake)
                await waiter
            if session.session_id != ask.session:
                raise WorkerReplaced(f"another process has taken the name {ask.worker!r} over")
            is_latest = session.waiter is waiter
        except asyncio.CancelledError:
            if session.waiter is waiter:
                self._on_hang_up(session)
            raise
        else:
            self._arm(session, session.session_timeout_s)
            return is_latest
        finally:
            if timer is not None:
                timer.cancel()
            if session.waiter is waiter:
                session.waiter = None
                self._turns.workers.poll(session.name, 0)
            session.polled_at = loop.time()

    def _on_hang_up(self, session: Session) -> None:
        """Nobody reads the answer: what it would have held goes back; the worker must return."""
        for key in [key for key, held in session.held.items() if held.given_at is None]:
            self._release(session, key)
        self._arm(session, min(RETURN_S, session.session_timeout_s), is_broken=True)

    # Going.

    def _arm(self, session: Session, delay_s: float, *, is_broken: bool = False) -> None:
        """Let the worker be lost if it says nothing within so many seconds."""
        session.is_broken = is_broken
        if session.silence is None:
            loop = self._turns.loop
            if self._listening is None:
                self._listening = Listening(loop)
            session.silence = Silence(loop, self._listening, partial(self._on_silence, session))
        session.silence.expect(delay_s)

    def _on_silence(self, session: Session) -> None:
        if session.open_requests:  # it is the server that is silent
            self._arm(session, session.session_timeout_s)
        elif session.is_broken:
            limit = min(RETURN_S, session.session_timeout_s)
            self._mark_lost(session, f"its connection broke, and it did not return in {limit:g} s")
        else:
            self._mark_lost(session, f"it was silent for {session.session_timeout_s:g} s")

    def _mark_lost(self, session: Session, why: str) -> None:
        log.warning("worker %s is lost with %d attempts: %s", session.name, len(session.held), why)
        self._disconnect(session, f"worker {session.name} is lost: {why}")

    def _disconnect(self, session: Session, message: str) -> None:
        session.is_connected = False
        session.stop_listening()
        for key, held in list(session.held.items()):
            if held.given_at is None or self._placing.has_offer(key):
                self._release(session, key)
            elif held.is_unconfirmed:  # it may have gone with the last server's host
                self._end_lease(session, key, Lost(message, Blame.NONE))
        for key in session.held:
            session.note_revoked(key)
        session.held.clear()
        self._turns.detach(session.name, message)

    def _forget_gone(self) -> None:
        gone = [n for n, each in self._sessions.items() if not each.is_connected and not each.held]
        for name in gone[: max(len(gone) - GONE_KEPT, FORGOTTEN_AT_ONCE)]:
            del self._sessions[name]

    def wake(self) -> None:
        """Answer all that wait: a new scheduler does not know what they asked for."""
        self._placing.recovered()
        for session in self._sessions.values():
            session.wake()

    def close(self) -> None:
        """Answer all that wait, and lose nobody: the next server waits for them."""
        for session in self._sessions.values():
            session.stop_listening()
            session.wake()
        if self._listening is not None:
            self._listening.close()

    def _expect(self, lease: Lease) -> tuple[WorkerSpec, Session] | None:
        """Wait for a worker of the last server that may still run the attempt."""
        name = lease.worker
        if kind(name) != "remote":
            return None
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(name, WorkerSpec(name, 0, frozenset()))
        session.held[lease.key] = Held(lease, self._turns.loop.time(), is_expected=True)
        if not session.is_listening:
            self._arm(session, max(RESTART_SILENCE_S, session.session_timeout_s))
        return is_polling(session.offer), session

    def held_by(self, name: str) -> list[Lease]:
        """Return what the worker has, or had when the last server ended."""
        session = self._sessions.get(name)
        return [held.lease for held in session.held.values()] if session is not None else []

    # What people see.

    def get(self, name: str) -> WorkerStatus:
        """Return one worker; raise NotFound."""
        worker = self._turns.workers.find(name)
        if worker is None and name in self._sessions:
            worker = Worker(self._sessions[name].offer)
        if worker is None:
            raise NotFound(f"there is no worker {name!r}")
        return self._status_of(worker)

    def cordon(self, name: str, is_cordoned: bool) -> WorkerStatus:
        """Give the worker no more, or again; until the server is started anew."""
        self.get(name)
        (self._turns.cordoned.add if is_cordoned else self._turns.cordoned.discard)(name)
        if not is_cordoned and name in self._sessions:
            self._sessions[name].drain_requested = False
        self._turns.workers.cordon(name, is_cordoned)
        self._turns.wake()
        return self.get(name)

    def drain(self, name: str) -> WorkerStatus:
        """Give the worker no more and tell it to leave when it has finished what it runs."""
        seen = self.cordon(name, True)
        session = self._sessions.get(name)
        if session is not None:
            session.drain_requested = True
            session.wake()
        return seen._replace(state="draining") if session is not None else seen

    def progress_of(self, job_id: int) -> Sequence[ProgressLine]:
        """Return what was last said about the job's running attempt, wherever it runs."""
        return self._turns.progress.of(job_id)

    def _status_of(self, worker: Worker) -> WorkerStatus:
        return status(worker, self._sessions.get(worker.spec.id))

    def list(self) -> list[WorkerStatus]:
        """Return all workers that are there, and those that were there of late."""
        workers = {worker.spec.id: worker for worker in self._turns.workers}
        seen = [self._status_of(worker) for worker in workers.values()]
        away = (each for each in self._sessions.values() if each.name not in workers)
        return [*seen, *(self._status_of(Worker(each.offer)) for each in away)]
