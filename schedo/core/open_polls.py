"""The open polls of the remote workers: which workers may have leases, and when a poll ends.

A recovery keeps the polls of workers that run nothing. A server of a cluster recovers whenever its
shards change, and with many workers their next polls would be most of the load of that.
"""

from __future__ import annotations

from collections.abc import Container

from schedo.core.adoption import Adoption
from schedo.core.placement import Placement
from schedo.core.worker_pool import WorkerPool
from schedo.core.worker_session import OpenPoll, Session, SessionTable


class OpenPolls:
    """Opens and closes the polls of the sessions."""

    def __init__(
        self, table: SessionTable, workers: WorkerPool, placement: Placement, adoption: Adoption
    ) -> None:
        self._sessions = table.by_name
        self._workers = workers
        self._placement = placement
        self._adoption = adoption

    def open(self, session: Session, poll: OpenPoll, now: int) -> None:
        """Let the worker have leases, if its poll requests any.

        That waits until the results of the request are durable: a lease must not wait for a disk.
        """
        if poll.wants_leases:
            session.waiting = poll  # an earlier poll gets a response without leases
            session.polled_at = now
            unsent = session.unsent()
            if poll.max_leases is None:
                free = session.spec.slots - len(session.held)
            else:
                free = max(poll.max_leases - len(unsent), 0)
            self._workers.poll(session.name, free, unsent)
            self._placement.try_start_gangs()

    def close(self, session: Session, now: int) -> None:
        """Give no more leases to the worker until its next poll."""
        if session.waiting is not None:
            session.waiting = None
            session.polled_at = now
            self._workers.poll(session.name, 0)

    def stop(self, session: Session, now: int) -> None:
        """Give no more leases to the polls of a process that drains or is replaced."""
        self.close(session, now)
        for poll in session.polls.values():
            poll.wants_leases = False

    # Recovery.

    def list_idle(self) -> list[int]:
        """Return the open polls of workers that run nothing; a recovery may keep them open."""
        return [
            session.waiting.id
            for session in self._sessions.values()
            if session.waiting is not None and self.is_idle(session)
        ]

    def is_idle(self, session: Session) -> bool:
        """Whether the worker waits for leases, and its next request could say nothing else.

        A worker that runs something has to list it after a recovery.
        """
        poll = session.waiting
        return (
            poll is not None
            and [*session.polls.values()] == [poll]
            and not (session.held or poll.revoked or poll.refused or poll.is_relayed)
            and not self._workers.has_elsewhere(session.name)
        )

    def restore(self, session: Session, kept: Container[int], now: int) -> None:
        """Continue after a recovery with the poll of the session, if it is one of those kept.

        It ends if the worker may run something, so that the worker lists that.
        """
        poll, session.waiting, session.polls = session.waiting, None, {}
        if poll is None or poll.id not in kept:
            return
        session.polls[poll.id] = poll
        if session.is_connected and not session.held:
            self.open(session, poll, now)
            self._adoption.note_poll(now)

    def follow_server(self, now: int) -> None:
        """Hold jobs back that a dead server may have started, if a worker polls here already."""
        if any(session.waiting is not None for session in self._sessions.values()):
            self._adoption.note_poll(now)


def is_complete(session: Session, poll: OpenPoll, now: int) -> bool:
    """Whether the poll has its response now."""
    if not poll.is_durable or not all(gang.is_decided for gang in poll.gangs):
        return False
    # A poll that requests no leases is completed at once, and so is one that a newer poll of its
    # worker has replaced: the leases go into the response to the newer one.
    return session.waiting is not poll or poll.until <= now or session.has_response(poll)
