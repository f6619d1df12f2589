"""The leases that remote workers hold, and how each of them ends.

A lease ends with the worker's result. It is released if it never arrived, and lost if the worker
had it and does not run it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from schedo.core.adoption import Adoption
from schedo.core.leases import AttemptResult, Blame, Lost, Outcome, Released, Snoozed
from schedo.core.limits import SECOND
from schedo.core.model import Job, LeaseKey
from schedo.core.outcomes import divide_blame
from schedo.core.placement import Placement
from schedo.core.running import RunningAttempts
from schedo.core.worker_messages import PollRequest
from schedo.core.worker_session import HeldLease, Session
from schedo.errors import StaleLease

IN_FLIGHT_US = 2 * SECOND  # a heartbeat may have left the worker before a lease this new arrived
# Responses in a row, IN_FLIGHT_US apart, whose leases do not arrive; the next ones count as losses.
UNACKNOWLEDGED_MAX = 8
_NOT_ARRIVED = "the lease did not arrive"
_RELEASED = Released()


class HeldLeases:
    """Ends the leases of sessions."""

    def __init__(
        self,
        attempts: RunningAttempts,
        placement: Placement,
        adoption: Adoption,
        report: Callable[[AttemptResult, int], Job],
    ) -> None:
        """report: applies a result, or raises StaleLease."""
        self._attempts = attempts
        self._placement = placement
        self._continue = adoption.continue_attempt
        self._report = report
        self.warnings: list[str] = []  # about stale results

    def apply_results(
        self, session: Session, results: Sequence[AttemptResult], now: int
    ) -> list[tuple[LeaseKey, str]]:
        """Apply the results; return the keys of the refused ones, with the reason."""
        return [
            (result.key, f"worker {session.name} does not hold this attempt any more")
            for result in results
            if not self._is_accepted(session, result, now)
        ]

    def _is_accepted(self, session: Session, result: AttemptResult, now: int) -> bool:
        """Apply the result, unless it is a repetition; return False if it is refused."""
        key = result.key
        if session.has_reported(key, result.outcome):
            return True
        if key not in session.held:
            self._continue(session, key, now)
        if session.held.pop(key, None) is None:
            is_stale = key in session.reported or not self._attempts.is_live(key)
            if session.is_first_late_result(key) and is_stale:
                self._end(result, now)  # a record of it is kept
            return False
        session.note_reported(key, result.outcome)
        session.unacknowledged = 0
        self._placement.accept(key)
        self._end(result, now)
        return True

    def continue_running(self, session: Session, request: PollRequest, now: int) -> None:
        """Continue the attempts of the previous server that the worker runs."""
        for key in request.running or ():
            if key not in session.held and key not in session.reported:
                self._continue(session, key, now)

    def reconcile(
        self, session: Session, request: PollRequest, now: int, *, is_sure: bool
    ) -> list[LeaseKey]:
        """Release leases that the worker does not list; return those that it must not run.

        is_sure: the worker has made the list when it had all leases of earlier responses. Only a
        server that gets all its requests knows that: through another one an old list can come
        after a newer request.
        """
        running = request.running
        if running is None:
            return []
        listed_at = now if request.came_at is None else min(request.came_at, now)
        listed_at -= request.age_us
        is_sure = is_sure and not request.spec.is_relayed
        missing: list[tuple[LeaseKey, HeldLease]] = []
        for key, held in session.held.items():
            if key in running or key in request.elsewhere:
                held.is_unconfirmed = False
            elif held.sent_at is not None:
                unsure_us = -1 if is_sure and not held.is_relayed else IN_FLIGHT_US
                if listed_at - held.sent_at > unsure_us:
                    missing.append((key, held))
        for key, held in missing:
            self._release_unconfirmed(session, key, held, now)
        # A response is lost with all its leases: that is one, however many slots the worker has.
        # A server that was paused reads many old polls at once: they count as one as well.
        if missing and now >= session.burst_ends_at:
            session.unacknowledged += 1
            session.burst_ends_at = now + IN_FLIGHT_US
        return [
            key
            for key in running
            if key not in session.held and key not in session.reported and key not in request.accept
        ]

    def _release_unconfirmed(
        self, session: Session, key: LeaseKey, held: HeldLease, now: int
    ) -> None:
        """End a lease that the worker does not run: as lost, or released if it never arrived."""
        has_offer = self._placement.has_offer(key)
        is_once = held.lease.options.at_most_once and not session.session_id
        if held.is_recovered or (is_once and not has_offer):
            blame = Blame.NONE if held.is_unconfirmed else Blame.SOLE
            lost = Lost(f"worker {session.name} does not run it any more", blame)
            self._revoke(session, key, lost, now)
        elif session.unacknowledged >= UNACKNOWLEDGED_MAX and not has_offer:
            self._revoke(session, key, Lost(f"worker {session.name} ignores its leases"), now)
        else:
            self.release(session, [key], now)

    def release(
        self,
        session: Session,
        keys: Iterable[LeaseKey],
        now: int,
        outcome: Released | Snoozed = _RELEASED,
    ) -> None:
        """End the attempts of leases that never arrived; their jobs run again."""
        for key in keys:
            if self._placement.has_offer(key):
                self._placement.reject(key, _NOT_ARRIVED, now)
            else:
                self._revoke(session, key, outcome, now)

    def release_unsent(self, session: Session, now: int) -> None:
        """Release the leases that its process does not get any more.

        No response has carried them, or they still wait for a commit or for their gang.
        """
        self.release(session, session.unsent(), now)
        for key in self._attempts.unsent_of(session.name):
            if self._placement.has_offer(key):
                self._placement.reject(key, _NOT_ARRIVED, now)
            elif self._attempts.is_live(key):  # not ended just now together with its gang
                self._end(AttemptResult(key, _RELEASED), now)

    def take_over(self, session: Session, request: PollRequest, now: int) -> None:
        """End the leases of a worker's old process that its new one does not list as running.

        Those that it has not received are for the tasks of the old process.
        """
        self.release_unsent(session, now)
        reason = f"worker {session.name} was restarted"
        running = request.running or ()
        gone = {key: held for key, held in session.held.items() if key not in running}
        losses = self._losses(session, gone, reason)
        for key in gone:
            if key in losses:
                self._revoke(session, key, losses[key], now)
            else:
                self._placement.reject(key, reason, now)

    def end_all(self, session: Session, keys: Iterable[LeaseKey], message: str, now: int) -> None:
        """End the attempts of a worker that is disconnected: `keys`."""
        held, session.held = session.held, {}
        for key in held:
            session.note_revoked(key)
        losses = self._losses(session, held, message)
        for key in keys:
            if self._placement.has_offer(key):
                self._placement.reject(key, _NOT_ARRIVED, now)
            elif self._attempts.is_live(key):  # not ended just now together with its gang
                self._end(AttemptResult(key, losses.get(key, Released())), now)

    def _losses(
        self, session: Session, held: Mapping[LeaseKey, HeldLease], message: str
    ) -> dict[LeaseKey, Lost]:
        """Return how the attempts that reached a lost worker end."""
        lost = {
            key: each.lease
            for key, each in held.items()
            if each.sent_at is not None and not self._placement.has_offer(key)
        }
        # The host of an unconfirmed one may have died together with the server's.
        suspected = [lease for key, lease in lost.items() if not held[key].is_unconfirmed]
        blames = divide_blame(suspected, session.spec.isolates)
        return {key: Lost(message, blames.get(key, Blame.NONE)) for key in lost}

    def _revoke(self, session: Session, key: LeaseKey, outcome: Outcome, now: int) -> None:
        if session.revoke(key):  # else it has just ended together with its gang
            self._end(AttemptResult(key, outcome), now)

    def _end(self, result: AttemptResult, now: int) -> None:
        try:
            self._report(result, now)
        except StaleLease as error:
            self.warnings.append(str(error))
