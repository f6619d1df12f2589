"""The session of one remote worker: the leases it holds, its open polls and its next response.

Sessions are plain data in a SessionTable, which outlives the scheduler: a recovery gives the table
of the old scheduler to the new one. Instants are microseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from schedo.core.leases import Lease, Outcome, StopRequest, measure_lease
from schedo.core.limits import LEASES_BYTES_MAX, SECOND
from schedo.core.model import Job, LeaseKey, ReadyKey, Trigger
from schedo.core.offers import Invocation, Offer
from schedo.core.spec_parts import SPECS_BYTES_MAX, SpecParts
from schedo.core.states import State
from schedo.core.worker_messages import PollRequest
from schedo.core.worker_pool import WorkerSpec, as_polling
from schedo.errors import Overloaded

RECONNECT_US = 5 * SECOND  # to reconnect after the connection of a poll broke
RESTART_TIMEOUT_US = 30 * SECOND  # the least timeout for workers of the previous server
REPORTED_KEPT = 4_096
PREVIOUS_KEPT = 16
DISCONNECTED_KEPT = 1_000
EVICTED_AT_ONCE = 100  # disconnected sessions at least, when a new worker finds no room
SESSIONS_MAX = 5_000


class SessionState(StrEnum):
    """What the server knows about the worker's process."""

    EXPECTED = "expected"  # it held leases of the previous server, and has not reconnected yet
    CONNECTED = "connected"
    BROKEN = "broken"  # the connection of its poll broke; it may reconnect
    DRAINING = "draining"  # it has announced that it finishes its attempts and shuts down
    DISCONNECTED = "disconnected"  # it has shut down or is lost


_EXPECTED, _CONNECTED, _BROKEN, _DRAINING, _DISCONNECTED = SessionState
FOLLOWERS = {
    _EXPECTED: {_CONNECTED, _DRAINING, _DISCONNECTED},
    _CONNECTED: {_BROKEN, _DRAINING, _DISCONNECTED},
    _BROKEN: {_CONNECTED, _DRAINING, _DISCONNECTED, _EXPECTED},
    _DRAINING: {_CONNECTED, _BROKEN, _DISCONNECTED},
    _DISCONNECTED: {_CONNECTED, _DRAINING, _EXPECTED},
}
# The states of a worker that has sent a request and is neither shut down nor lost.
HAS_PROCESS = frozenset({_CONNECTED, _BROKEN, _DRAINING})


class HeldLease:
    """A lease that the worker has, as far as the server knows."""

    __slots__ = (
        *("is_recovered", "is_relayed", "is_stop_sent", "is_unconfirmed"),
        *("lease", "sent_at", "stop"),
    )

    def __init__(
        self, lease: Lease, sent_at: int | None = None, *, is_recovered: bool = False
    ) -> None:
        self.lease = lease
        self.sent_at = sent_at  # None: no response carries it yet
        self.is_relayed = False  # another server has brought it to the worker
        self.is_recovered = is_recovered  # the previous server may have sent it
        self.is_unconfirmed = is_recovered  # the worker has not listed it since
        self.stop: StopRequest | None = None
        self.is_stop_sent = False


class OpenPoll:
    """A request of a worker that has no response yet."""

    __slots__ = (
        *("accept", "gangs", "id", "is_durable", "is_relayed", "max_leases"),
        *("refused", "revoked"),
        *("supports_offers", "until", "wants_leases"),
    )

    def __init__(self, id_: int, request: PollRequest, until: int) -> None:
        self.id = id_
        self.max_leases = request.max_leases
        self.is_relayed = request.spec.is_relayed
        self.wants_leases = request.max_leases != 0 and not request.is_draining
        self.supports_offers = request.supports_offers
        self.accept = request.accept
        self.until = until  # it gets its response then, even without a lease
        # Whether the results that it brought are on disk.
        self.is_durable = not request.reports
        self.gangs: Sequence[Invocation] = ()  # those whose offers it accepts
        self.revoked: Sequence[LeaseKey] = ()
        self.refused: Sequence[tuple[LeaseKey, str]] = ()


class Session:
    """One remote worker as the server knows it."""

    __slots__ = (
        *(
            "burst_ends_at",
            "connected_at",
            "deadline_at",
            "drain_requested",
            "held",
            "last_seen_at",
            "listed_at",
            "listened",
        ),
        *("name", "polled_at", "polls", "previous_session_ids", "registered", "reported"),
        *(
            "revoked",
            "revoked_last",
            "session_id",
            "spec",
            "state",
            "supports_offers",
            "timeout_us",
            "unacknowledged",
            "unclaimed_until",
        ),
        "waiting",
    )

    def __init__(self, name: str, spec: WorkerSpec) -> None:
        self.name = name
        self.registered = spec  # as the worker sent it, to notice a change at once
        self.spec = spec
        self.state = _DISCONNECTED
        self.session_id: str | None = None  # None: no process of it has sent a request yet
        self.previous_session_ids: deque[str] = deque(maxlen=PREVIOUS_KEPT)
        self.timeout_us = RESTART_TIMEOUT_US
        self.held: dict[LeaseKey, HeldLease] = {}
        self.reported: dict[LeaseKey, int] = {}  # hashes of recent outcomes, oldest first
        self.revoked: dict[LeaseKey, None] = {}  # leases that ended without a late result so far
        self.revoked_last: frozenset[LeaseKey] = frozenset()  # by the last response that did so
        self.polls: dict[int, OpenPoll] = {}
        self.waiting: OpenPoll | None = None  # the one that waits for leases
        self.connected_at: int | None = None
        self.last_seen_at: int | None = None
        self.listed_at: int | None = None  # when a request has said what the worker runs
        self.unclaimed_until: int | None = None  # when leases go back that no poll has asked for
        self.polled_at = 0
        self.deadline_at: int | None = None  # of the open poll, or of the next request
        self.listened = 0  # how often the sockets were read after that
        self.unacknowledged = 0  # responses in a row whose leases did not arrive
        self.burst_ends_at = 0  # responses lost until then count as one
        self.supports_offers = False
        self.drain_requested = False  # an operator has requested it

    @property
    def is_connected(self) -> bool:
        """Whether the worker has sent a request and is neither shut down nor lost."""
        return self.state in HAS_PROCESS

    @property
    def wait_us(self) -> int | None:
        """How long the worker may send no request, or None if no request is expected."""
        match self.state:
            case SessionState.DISCONNECTED:
                return None
            case SessionState.BROKEN:
                return min(RECONNECT_US, self.timeout_us)
            case SessionState.EXPECTED:
                return max(RESTART_TIMEOUT_US, self.timeout_us)
            case _:
                return self.timeout_us

    def has_left(self, left_at: int | None) -> bool:
        """Whether the worker has left its gateway and sent nothing through any server since."""
        seen_at = self.last_seen_at or 0
        return left_at is not None and self.spec.is_relayed and seen_at <= left_at

    def move(self, state: SessionState) -> None:
        """Change the state, as far as FOLLOWERS allows it."""
        assert state is self.state or state in FOLLOWERS[self.state], (self.state, state)
        self.state = state

    # The leases it holds.

    def expect(self, lease: Lease, now: int) -> None:
        """Take it that the worker has the lease of a previous server, or of another one.

        The store says that the attempt runs. So what has been reported of it here is not durable:
        it was lost together with the shard of the job, which has come back since.
        """
        if self.state is _BROKEN:  # perhaps by the death of that server, which it has polled
            self.move(_EXPECTED)
            self.deadline_at = None
        self.reported.pop(lease.key, None)
        self.held[lease.key] = HeldLease(lease, now, is_recovered=True)

    def revoke(self, key: LeaseKey) -> bool:
        """Take the lease from the worker; return whether the worker held it."""
        if self.held.pop(key, None) is None:
            return False
        self.note_revoked(key)
        return True

    def note_revoked(self, key: LeaseKey) -> None:
        """Keep the key of an attempt that the worker had, to record its late result."""
        self.revoked[key] = None
        if len(self.revoked) > REPORTED_KEPT:
            del self.revoked[next(iter(self.revoked))]

    def note_reported(self, key: LeaseKey, outcome: Outcome) -> None:
        """Remember the outcome: the same report may be repeated, a different one is refused."""
        self.note_revoked(key)
        self.reported[key] = _hash(outcome)
        if len(self.reported) > REPORTED_KEPT:
            del self.reported[next(iter(self.reported))]

    def is_first_late_result(self, key: LeaseKey) -> bool:
        """Whether a late result is the first one of its attempt; only that is recorded."""
        return self.revoked.pop(key, key) is None

    def has_reported(self, key: LeaseKey, outcome: Outcome) -> bool:
        """Whether the worker has reported this outcome of the attempt before."""
        return self.reported.get(key) == _hash(outcome)

    # The next response.

    def has_response(self, poll: OpenPoll) -> bool:
        """Whether the response has a new lease, stop request or revocation.

        A worker that is slow to stop what was revoked lists it again: its polls must not go round
        without a wait.
        """
        if poll.revoked and not self.revoked_last.issuperset(poll.revoked):
            return True
        return any(
            held.sent_at is None or (held.stop is not None and not held.is_stop_sent)
            for held in self.held.values()
        )

    def unsent(self) -> list[LeaseKey]:
        """Return the leases that no response has carried yet."""
        return [key for key, held in self.held.items() if held.sent_at is None]

    @property
    def is_unclaimed(self) -> bool:
        """Whether leases wait for a poll that the worker's gateway sends only if it has room."""
        return self.spec.is_relayed and self.waiting is None and bool(self.unsent())

    def take_new(self, poll: OpenPoll, now: int) -> list[Lease]:
        """Return the leases that the response carries; the others wait for the one after.

        They are at most as many as the poll wants and LEASES_BYTES_MAX, but at least one.
        """
        leases: list[Lease] = []
        room = LEASES_BYTES_MAX
        for held in self.held.values():
            if held.sent_at is None:
                room -= measure_lease(held.lease)
                if leases and (room < 0 or len(leases) == poll.max_leases):
                    break
                held.sent_at, held.is_relayed = now, poll.is_relayed
                leases.append(held.lease)
        return leases

    def take_revoked(self, poll: OpenPoll) -> Sequence[LeaseKey]:
        """Return what the response to the poll revokes."""
        if poll.revoked:
            self.revoked_last = frozenset(poll.revoked)
        return poll.revoked

    def take_stops(self) -> list[StopRequest]:
        """Return all stop requests, sent before or not."""
        stopped = [held for held in self.held.values() if held.stop is not None]
        for held in stopped:
            held.is_stop_sent = True
        return [held.stop for held in stopped if held.stop is not None]

    def shift(self, delta_us: int) -> None:
        """Shift the instants that count elapsed time."""
        self.polled_at += delta_us
        self.burst_ends_at += delta_us
        if self.deadline_at is not None:
            self.deadline_at += delta_us
        if self.unclaimed_until is not None:
            self.unclaimed_until += delta_us
        for poll in self.polls.values():
            poll.until += delta_us
        for held in self.held.values():
            if held.sent_at is not None:
                held.sent_at += delta_us


_STARTABLE = frozenset({State.QUEUED, State.SCHEDULED, State.RETRYING})


class PreviousServer(NamedTuple):
    """What this server knows about the one that it succeeds."""

    ended_at: int  # it has started nothing after this instant
    last_epoch: int
    last_id: int  # it has made no job with a larger id
    was_killed: bool  # starts that it has made last may be missing in the store

    def may_have_started_next(self, job: Job) -> bool:
        """Whether it may have started the next attempt of a waiting job and not stored that."""
        return (
            job.state in _STARTABLE
            and job.due_at <= self.ended_at
            and job.id <= self.last_id
            and not job.options.at_most_once  # such a start is stored first, and so is the next
            and job.trigger is not Trigger.INVOKE
        )

    def may_have_started(self, key: LeaseKey, job: Job) -> bool:
        """Whether it may have given this lease, and the store knows only the attempt before."""
        return (
            job.epoch <= key.epoch <= self.last_epoch
            and key.attempt == job.attempt + 1
            and self.may_have_started_next(job)
        )


class SessionTable:
    """What a recovery takes over from the old scheduler: sessions, open offers and cordons."""

    def __init__(self) -> None:
        self.previous: PreviousServer | None = None
        self.by_name: dict[str, Session] = {}
        self._parts = SpecParts()  # of all sessions
        self.offers: dict[int, Offer] = {}  # by job id, until they end
        self.cordoned: set[str] = set()  # names of workers
        self.stored_cordons: set[str] = set()  # those of them that the store keeps

    def update(self, old: SessionTable) -> None:
        """Take everything over from the old table."""
        self.previous = old.previous
        self.by_name |= old.by_name
        self._parts = old._parts
        self.offers |= old.offers
        # The store has the others, even if the change that a commit was to store has failed.
        draining = {name for name, each in old.by_name.items() if each.drain_requested}
        self.cordoned |= (old.cordoned - old.stored_cordons) | draining

    def find_or_add(self, name: str, spec: WorkerSpec) -> Session:
        """Return the worker's session; raise Overloaded if there is no room for it or its spec."""
        while (known := self.by_name.get(name)) is None or known.registered is not spec:
            if self._parts.has_room(spec, None if known is None else known.registered):
                break
            if not self._evict_disconnected():
                raise Overloaded(
                    "the registered workers have too many different tasks, queues, labels,"
                    f" resources and task defaults: the limit is {SPECS_BYTES_MAX} bytes"
                )
        if known is not None:
            return known
        if len(self.by_name) >= SESSIONS_MAX and not self._evict_disconnected():
            raise Overloaded(f"{SESSIONS_MAX} workers are registered already")
        session = self.by_name[name] = Session(name, spec)
        self._parts.add(spec)
        return session

    def select(self, name: str | None) -> Sequence[Session]:
        """Return the session of this name if there is one; None: all sessions."""
        if name is None:
            return [*self.by_name.values()]
        return [self.by_name[name]] if name in self.by_name else []

    def register(self, session: Session, spec: WorkerSpec) -> None:
        """Replace the spec of the session, for which `find_or_add` has found room."""
        self._parts.remove(session.registered)
        self._parts.add(spec)
        session.registered, session.spec = spec, as_polling(spec)

    def _evict_disconnected(self) -> bool:
        """Evict the oldest of the disconnected sessions; return False if there are none."""
        gone = [name for name, each in self.by_name.items() if each.state is _DISCONNECTED]
        for name in gone[: max(len(gone) - DISCONNECTED_KEPT, EVICTED_AT_ONCE)]:
            self._parts.remove(self.by_name.pop(name).registered)
        return bool(gone)

    def could_reconnect(self, ready_key: ReadyKey, now: int) -> bool:
        """Whether a disconnected worker could run jobs of the ready key."""
        # After a restart, workers that hold no lease have no session until they reconnect.
        if self.previous is not None and now - self.previous.ended_at < RECONNECT_US:
            return True
        return any(
            session.session_id is None or session.spec.serves(ready_key)
            for session in self.by_name.values()
            if not session.is_connected
        )


def _hash(outcome: Outcome) -> int:
    return hash((type(outcome).__name__, outcome))
