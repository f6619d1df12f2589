"""The deadlines of worker sessions: when a poll gets its response, when a worker is lost.

Leases that wait for the next poll of a worker of another server go back after UNCLAIMED_US. That
server may poll again at once, or not for long: if the worker has no room, or if it believes that
there are no jobs here.

Time in which the server cannot read requests does not count: a stopped process, a blocked loop, a
suspended machine, a recovery. `next_at` asks for a tick every LOOK_US. A tick that comes later
shows how long the server has stalled, and the deadlines of all silent workers move by that. And no
worker is lost before the sockets have been read again after its deadline.
"""

from __future__ import annotations

from schedo.core.lazy_heap import LazyHeap
from schedo.core.limits import SECOND
from schedo.core.worker_session import RECONNECT_US, Session, SessionState, SessionTable

LOOK_US = SECOND
LATE_US = SECOND // 4  # a tick that is later than this shows that the server has stalled
LISTEN_US = SECOND // 10
LISTENS_MAX = 10  # even if the server is late all the time, the timeout ends
UNCLAIMED_US = SECOND // 10  # for which leases wait for a poll that a gateway may not send


class Heartbeats:
    """The sessions by deadline."""

    def __init__(self, table: SessionTable) -> None:
        self._table = table
        self._by_deadline: LazyHeap[Session] = LazyHeap(_deadline)
        self._look_at: int | None = None

    def expect(self, session: Session, now: int) -> None:
        """Expect the next request of the worker, unless it waits for a response itself."""
        self._look_at = self._look_at or now + LOOK_US
        session.listened = 0
        if not session.is_unclaimed:
            session.unclaimed_until = None
        elif session.unclaimed_until is None:
            session.unclaimed_until = now + UNCLAIMED_US
        if session.waiting is not None:
            session.deadline_at = session.waiting.until
        elif session.polls or session.wait_us is None:
            session.deadline_at = None
        else:
            session.deadline_at = now + session.wait_us
            if session.unclaimed_until is not None:
                session.deadline_at = min(session.deadline_at, session.unclaimed_until)
        self._file(session)

    def note_request(self, worker: str) -> None:
        """Expect no request of a worker whose request waits for loads, however slow the store is.

        When it is applied, or its connection breaks, the next one is expected.
        """
        session = self._table.by_name.get(worker)
        if session is not None and not session.polls:
            session.deadline_at = None

    def note_refusal(self, worker: str, now: int) -> None:
        """Expect the next request of a worker after one that was refused, perhaps after a load."""
        session = self._table.by_name.get(worker)
        if session is not None and session.deadline_at is None:
            self.expect(session, now)

    def resume(self, session: Session, now: int) -> None:
        """Expect the next request after a recovery of the server.

        A worker that was awaited before has little more time than it had: in a cluster, a recovery
        may follow on the other.
        """
        before = session.deadline_at
        self.expect(session, now)
        if session.state is SessionState.EXPECTED and before is not None:
            session.deadline_at = max(before, now + RECONNECT_US)
            self._file(session)

    def note_stall(self, now: int) -> None:
        """If this call is late, give the workers the time in which the server has stalled."""
        late_us = now - self._look_at if self._look_at is not None else 0
        self._look_at = now + LOOK_US
        if late_us > LATE_US:
            for session in self._table.by_name.values():
                if session.deadline_at is not None and not session.polls:
                    session.deadline_at += late_us

    def take_due(self, now: int) -> list[Session]:
        """Return the sessions with a poll whose time is up, and those of workers that are lost."""
        self.note_stall(now)
        due = []
        while (session := self._by_deadline.first()) is not None:
            assert session.deadline_at is not None, "it is filed"
            if session.deadline_at > now:
                break
            is_due = session.polls or session.is_unclaimed
            if is_due or not self._must_listen(session, session.deadline_at, now):
                session.deadline_at = None
                due.append(session)
        return due

    def _must_listen(self, session: Session, deadline_at: int, now: int) -> bool:
        """Wait until the sockets have been read again, if they may have a request."""
        is_late = now - deadline_at > LISTEN_US
        if session.listened and not (is_late and session.listened < LISTENS_MAX):
            return False
        session.listened += 1
        session.deadline_at = now + LISTEN_US
        return True

    def next_at(self) -> int | None:
        """Return the next instant at which `take_due` has something to do, or None."""
        session = self._by_deadline.first()
        if session is None:
            return None
        assert session.deadline_at is not None, "it is filed"
        assert self._look_at is not None, "a request is expected"
        return min(session.deadline_at, self._look_at)

    def shift(self, delta_us: int) -> None:
        """Shift the deadlines after a clock change, because they count elapsed time."""
        if self._look_at is not None:
            self._look_at += delta_us
        for session in self._table.by_name.values():
            session.shift(delta_us)
            self._file(session)

    def _file(self, session: Session) -> None:
        if session.deadline_at is not None:
            self._by_deadline.push(session, (session.deadline_at,))


def _deadline(session: Session) -> tuple[int] | None:
    return None if session.deadline_at is None else (session.deadline_at,)
