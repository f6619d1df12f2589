"""What the servers of a cluster say about their remote workers and a job of one of them.

A worker that polls one server takes jobs of all of them. So the owner of a job asks the others, and
each of them says what it knows of the workers that poll it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from schedo.core.worker_obstacles import Obstacle, WorkerReason, is_silent
from schedo.core.worker_session import Session


class RemoteReason(NamedTuple):
    """What a server says about a remote worker that polls it, and a ready key."""

    reason: WorkerReason
    slots: int
    is_able: bool  # it is attached, and could ever run jobs of the key
    seen_at: int  # when its last request came; 0: none has


class RemoteReasons(NamedTuple):
    """The same about all of them: first those that are able, the nearest to taking a job first."""

    workers: Sequence[RemoteReason] = ()
    has_more: bool = False
    unmet: Sequence[str] = ()  # what those lack that offer the task


class Others(NamedTuple):
    """What the other servers of a cluster say about a ready key."""

    own_name: str = ""  # of the server that has asked them
    said: Mapping[str, RemoteReasons] = MappingProxyType({})  # by the name of the server
    missing: Sequence[str] = ()  # servers that have not responded

    @property
    def offer_task(self) -> bool:
        """Whether a worker of them offers the task, even if it can run no job of the key."""
        found = (each for said in self.said.values() for each in said.workers)
        return any(each.reason.obstacle is not Obstacle.TASK for each in found)

    @property
    def have_more(self) -> bool:
        """Whether a server has not named all of its workers."""
        return any(said.has_more for said in self.said.values())

    @property
    def have_more_able(self) -> bool:
        """Whether a server may have more workers that are able than it has named."""
        return any(said.has_more and said.workers[-1].is_able for said in self.said.values())


ALONE = Others()


def join_reasons(others: Others, sessions: Mapping[str, Session]) -> dict[str, RemoteReason]:
    """Return one entry for each worker, by name: of the server that has heard of it last.

    sessions: those of this server. A worker that this server has heard of last is left out.
    """
    newest: dict[str, RemoteReason] = {}
    for server, said in others.said.items():
        for each in said.workers:
            name = each.reason.worker
            known = newest.get(name)
            if known is None or _rank(each) > _rank(known):
                newest[name] = each._replace(reason=each.reason._replace(server=server))
    return {
        name: each
        for name, each in newest.items()
        if name not in sessions or _rank(each) > _rank_own(sessions[name])
    }


def _rank(found: RemoteReason) -> tuple[bool, bool, int]:
    return found.reason.obstacle is not Obstacle.DISCONNECTED, True, found.seen_at


def _rank_own(session: Session) -> tuple[bool, bool, int]:
    """Return the same of this server; of a worker that polls another one, it knows less."""
    return not is_silent(session), not session.spec.is_relayed, session.last_seen_at or 0
