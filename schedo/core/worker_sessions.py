"""The sessions of the remote workers: who is connected, and the responses to their polls.

The server knows a worker only by its requests: a request describes the worker, brings results,
lists the running attempts, and may poll. A worker receives leases only while it polls. It is lost
after the session timeout, or RECONNECT_US after its poll broke off, if it sends no other request.

The sessions outlive the scheduler (see SessionTable): in a recovery the workers stay attached, and
each has its whole timeout again. The open polls end: the engine completes them, apart from those
that it keeps open.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from schedo.core.adoption import Adoption
from schedo.core.commands import CompletePolls, HoldLease, HoldStop, Poll, PollBroken
from schedo.core.commit_queue import CommitQueue
from schedo.core.cordons import Cordons
from schedo.core.heartbeats import Heartbeats
from schedo.core.held_leases import HeldLeases
from schedo.core.instants import describe_duration
from schedo.core.leases import AttemptResult, Lease
from schedo.core.limits import SECOND
from schedo.core.loads import Appliers, Loaded, Needs
from schedo.core.model import Job
from schedo.core.open_polls import OpenPolls, is_complete
from schedo.core.placement import Placement
from schedo.core.running import RunningAttempts
from schedo.core.timers import earliest
from schedo.core.worker_messages import PollRequest, PollResponse, Progress
from schedo.core.worker_pool import WorkerPool, WorkerSpec, as_polling
from schedo.core.worker_session import (
    HeldLease,
    OpenPoll,
    PreviousServer,
    Session,
    SessionState,
    SessionTable,
)
from schedo.errors import SchedoError, WorkerReplaced

_EXPECTED, _CONNECTED, _BROKEN, _DRAINING, _DISCONNECTED = SessionState


class PollReply(NamedTuple):
    """The response to a poll, or the error that it ends with."""

    id: int
    worker: str
    reply: PollResponse | SchedoError


class WorkerSessions:
    """Handles the requests of the remote workers."""

    def __init__(  # noqa: PLR0913  # the parts of a scheduler
        self,
        table: SessionTable,
        workers: WorkerPool,
        attempts: RunningAttempts,
        placement: Placement,
        adoption: Adoption,
        cordons: Cordons,
        report: Callable[[AttemptResult, int], Job],
    ) -> None:
        """report: applies a result, or raises StaleLease."""
        self._table = table
        self._sessions = table.by_name
        self._workers = workers
        self._attempts = attempts
        self._placement = placement
        self._adoption = adoption
        self._cordons = cordons
        self.polls = OpenPolls(table, workers, placement, adoption)
        self._leases = HeldLeases(attempts, placement, adoption, report)
        self._heartbeats = Heartbeats(table)
        self._touched: dict[Session, None] = {}  # their polls may be complete
        self._accepting: dict[int, Session] = {}  # by the id of a poll that waits for a gang
        self.uncommitted: CommitQueue[tuple[Session, OpenPoll]] = CommitQueue()  # with results
        self._replies: list[PollReply] = []
        self._progress: list[Progress] = []
        self._warnings: list[str] = []
        self.appliers: Appliers = {
            Poll: self.poll,
            PollBroken: self.end_broken,
            HoldLease: self.hold,
            HoldStop: self.hold_stop,
            CompletePolls: self.complete_all,
        }

    # Requests.

    def poll(self, command: Poll, now: int, loaded: Loaded) -> Needs | None:
        """Handle one request; `take_replies` returns its response, or the error."""
        request = command.request
        needs = self._adoption.needs(request, now, loaded)
        if needs is not None:
            self._heartbeats.note_request(request.worker)
            return needs
        self._heartbeats.note_stall(now)
        try:
            session = self._register(request, now)
        except SchedoError as error:
            self._replies.append(PollReply(command.id, request.worker, error))
            self._heartbeats.note_refusal(request.worker, now)
            return None
        poll = OpenPoll(command.id, request, now + round(request.wait_s * SECOND))
        session.polls[poll.id] = poll
        # Results come first: they free the slots and the held leases that the later steps look at.
        poll.refused = self._leases.apply_results(session, request.reports, now)
        if not poll.is_durable:
            self.uncommitted.add((session, poll))
        self._leases.continue_running(session, request, now)
        self._progress += [each for each in request.progress if each.key in session.held]
        if request.accept or request.reject:
            self._apply_offer_replies(session, poll, request, now)
        if request.is_draining:
            self.polls.stop(session, now)
            self._leases.release_unsent(session, now)
        poll.revoked = self._leases.reconcile(
            session, request, now, is_sure=poll.wants_leases or request.is_draining
        )
        if poll.is_durable:
            self.polls.open(session, poll, now)
        if request.is_draining and not session.held:
            self._disconnect(session, "it has shut down", now)
            self._end_drain(session)
        self._touch(session, now)
        return None

    def _apply_offer_replies(
        self, session: Session, poll: OpenPoll, request: PollRequest, now: int
    ) -> None:
        accepted = [key for key in request.accept if key in session.held]
        poll.gangs = self._placement.undecided_gangs(accepted)
        if poll.gangs:
            self._accepting[poll.id] = session
        for key in accepted:
            self._placement.accept(key)
        for key, reason in request.reject:
            if key in session.held:
                self._placement.reject(key, reason, now)

    def end_broken(self, command: PollBroken, now: int, loaded: Loaded) -> None:
        """End a poll whose response cannot be sent, and release the leases of that response."""
        session = self._sessions.get(command.worker)
        if session is None:
            return
        poll = session.polls.pop(command.id, None)
        self._accepting.pop(command.id, None)
        unsent = [key for key in command.unsent if key in session.held]
        is_waiting = poll is not None and poll is session.waiting
        has_left = session.has_left(command.left_at)
        if is_waiting or has_left:
            self.polls.close(session, now)
            unsent += session.unsent()
        # A gateway that returns leases, or that has gone, says nothing of the worker's connection.
        is_own = is_waiting or not all(session.held[key].is_relayed for key in unsent)
        is_broken = has_left or (is_own and not session.spec.is_relayed)
        self._leases.release(session, unsent, now, command.outcome)
        if is_broken and session.waiting is None and session.is_connected:
            session.move(_BROKEN)
        self._touch(session, now)

    def hold(self, command: HoldLease, now: int, loaded: Loaded) -> None:
        """Put the lease into the worker's next response, unless its attempt has ended."""
        lease = command.lease
        session = self._sessions.get(lease.worker)
        if session is not None and self._attempts.is_live(lease.key):
            session.held[lease.key] = HeldLease(lease)
            self._placement.open(lease.key, now)
            self._touched[session] = None
            if session.is_unclaimed:
                self._heartbeats.expect(session, now)

    def hold_stop(self, command: HoldStop, now: int, loaded: Loaded) -> None:
        """Put the stop request into each response of the worker until the attempt ends."""
        stop = command.stop
        session = self._sessions.get(stop.worker)
        if session is not None and stop.key in session.held:
            session.held[stop.key].stop = stop
            self._touched[session] = None

    def complete_all(self, command: CompletePolls, now: int, loaded: Loaded) -> None:
        """Complete the open polls of a worker, or of all."""
        for session in self._table.select(command.worker):
            if command.keeps_idle and self.polls.is_idle(session):
                continue
            for poll in session.polls.values():
                poll.until = 0
            self._touched[session] = None

    # Registration.

    def _register(self, request: PollRequest, now: int) -> Session:
        session = self._table.find_or_add(request.worker, request.spec)
        if session.session_id is not None and session.session_id != request.session:
            if request.session in session.previous_session_ids or request.is_relayed_end:
                raise _replaced(session)
            self._take_over(session, request, now)
        session.session_id = request.session
        session.last_seen_at = now
        session.timeout_us = round(request.session_timeout_s * SECOND)
        session.supports_offers = request.supports_offers
        if session.is_unclaimed and not request.spec.is_relayed:
            # They were for a poll of its gateway, and the worker may have no room for them now.
            self._leases.release(session, session.unsent(), now)
        if request.running is not None or not request.spec.is_relayed:
            session.listed_at = now
        if not session.is_connected:
            session.connected_at = session.polled_at = now
        if not session.is_connected or session.registered is not request.spec:
            self._table.register(session, request.spec)
            self._workers.attach(session.spec)
        self._workers.note_elsewhere(session.name, request.elsewhere)
        session.move(_DRAINING if request.is_draining else _CONNECTED)
        self._workers.set_open(session.name, not request.is_draining)
        return session

    def _take_over(self, session: Session, request: PollRequest, now: int) -> None:
        """Give the name to a new process; attempts that it does not list as running are lost."""
        waiting = session.waiting
        self.polls.stop(session, now)
        if waiting is not None:
            del session.polls[waiting.id]
            self._replies.append(PollReply(waiting.id, session.name, _replaced(session)))
        session.previous_session_ids.append(session.session_id or "")
        self._end_drain(session)
        self._leases.take_over(session, request, now)

    def _end_drain(self, session: Session) -> None:
        """Remove the cordon of a finished drain, so that the worker's next process gets work."""
        if session.drain_requested:
            self._cordons.uncordon(session.name)

    def release_unsent(self, now: int) -> None:
        """Release the leases that no response has carried yet, because the server ends."""
        for session in self._sessions.values():
            self._leases.release(session, session.unsent(), now)

    # For operators.

    def drain(self, name: str, now: int) -> None:
        """Cordon the worker and request that it finishes its attempts and shuts down."""
        self._workers.cordon(name, True)
        session = self._sessions.get(name)
        if session is not None:
            session.drain_requested = True
            if session.waiting is not None:
                session.waiting.until = now
            self._touch(session, now)

    # Responses.

    def take_replies(self, now: int) -> list[PollReply]:
        """Return the responses that are complete, each with the id of its poll."""
        touched, self._touched = self._touched, {}
        if self._accepting:
            touched |= dict.fromkeys(self._accepting.values())
        for session in touched:
            for poll in list(session.polls.values()):
                if is_complete(session, poll, now):
                    self._respond(session, poll, now)
        replies, self._replies = self._replies, []
        return replies

    def _respond(self, session: Session, poll: OpenPoll, now: int) -> None:
        del session.polls[poll.id]
        self._accepting.pop(poll.id, None)
        leases: list[Lease] = []
        if session.waiting is poll:
            leases = session.take_new(poll, now)
            self.polls.close(session, now)
        offers = self._placement.send(leases, now, supports_offers=poll.supports_offers)
        late = [key for key in poll.accept if key not in session.held]
        response = PollResponse(
            leases,
            offers,
            session.take_stops(),
            [*late, *session.take_revoked(poll)],
            poll.refused,
            session.drain_requested,
            now,
        )
        self._replies.append(PollReply(poll.id, session.name, response))
        self._heartbeats.expect(session, now)

    def take_progress(self) -> list[Progress]:
        """Return the progress of attempts that their workers hold."""
        progress, self._progress = self._progress, []
        return progress

    def take_warnings(self) -> list[str]:
        """Return the workers that were lost, and the results that were stale, as sentences."""
        warnings = self._warnings + self._leases.warnings
        self._warnings, self._leases.warnings = [], []
        return warnings

    def _touch(self, session: Session, now: int) -> None:
        self._touched[session] = None
        self._heartbeats.expect(session, now)

    # Time.

    def tick(self, now: int) -> None:
        """Open polls with durable results, complete those whose time is up, lose workers."""
        self._adoption.tick(now)
        for session, poll in self.uncommitted.take():
            poll.is_durable = True
            if poll.id in session.polls:  # its connection is not broken
                self.polls.open(session, poll, now)
                self._touch(session, now)
        for session in self._heartbeats.take_due(now):
            if session.polls:
                self._touched[session] = None
                continue
            if session.is_unclaimed:
                self._leases.release(session, session.unsent(), now)
                self._touch(session, now)
                continue
            wait = describe_duration(session.wait_us or 0)
            if session.state is _BROKEN:
                why = f"its connection broke; it did not reconnect in {wait}"
            else:
                why = f"it sent no request for {wait}"
            held = len(session.held)
            if held or not session.spec.is_relayed:  # else it polls the server that is its gateway
                self._warnings.append(f"worker {session.name} is lost with {held} attempts: {why}")
            self._disconnect(session, f"worker {session.name} is lost: {why}", now)

    def next_at(self) -> int | None:
        """Return the next instant at which `tick` has something to do, or None."""
        return earliest(self._heartbeats.next_at(), self._adoption.next_at())

    def shift(self, delta_us: int) -> None:
        """Shift the deadlines after a clock change, because they count elapsed time."""
        self._heartbeats.shift(delta_us)
        self._adoption.shift(delta_us)

    # The end of a session.

    def detach(self, name: str, message: str, now: int) -> bool:
        """End the session of this name; return False if there is none."""
        session = self._sessions.get(name)
        if session is None:
            return False
        self._disconnect(session, message, now)
        return True

    def _disconnect(self, session: Session, message: str, now: int) -> None:
        session.move(_DISCONNECTED)
        self._leases.end_all(session, self._workers.detach(session.name), message, now)
        self._touch(session, now)

    # Recovery.

    def attach_workers(self) -> None:
        """Attach the workers whose sessions were taken over."""
        for session in self._sessions.values():
            if session.state is not _DISCONNECTED:
                self._workers.attach(session.spec)
                self._workers.set_open(session.name, session.state is not _DRAINING)

    def follow_server(self, previous: PreviousServer, now: int) -> None:
        """Continue what workers run for another server."""
        self._table.previous = previous
        self.polls.follow_server(now)

    def expect(self, lease: Lease, now: int) -> None:
        """Expect the worker that may still run the attempt of the previous server."""
        session = self._sessions.get(lease.worker)
        if session is None:
            spec = as_polling(WorkerSpec(lease.worker, 0, frozenset()))
            session = self._sessions[lease.worker] = Session(lease.worker, spec)
        if session.state is _DISCONNECTED:
            session.move(_EXPECTED)
            self._workers.attach(session.spec)
        session.expect(lease, now)

    def restore(self, now: int, kept_polls: Container[int]) -> None:
        """Continue with the sessions, once the running attempts are restored.

        kept_polls: polls that are still open; only those of `polls.list_idle` can be.
        """
        for session in self._sessions.values():
            for key in [key for key in session.held if not self._attempts.is_live(key)]:
                session.revoke(key)
            self.polls.restore(session, kept_polls, now)
            self._heartbeats.resume(session, now)
            if session.polls:
                self._touched[session] = None


def _replaced(session: Session) -> WorkerReplaced:
    return WorkerReplaced(f"another process has taken the name {session.name!r} over")
