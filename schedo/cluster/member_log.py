"""Logs which other servers are in the cluster, and how many shards this one has."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from schedo.core.shards import SHARDS
from schedo.store.cluster import Cluster, Member, MemberState

log = logging.getLogger("schedo.cluster")

# After a change. In a take-over the processors are for the jobs first, and what is known in steps
# becomes one line.
LOOK_AFTER_S = 0.1


class _Identity(NamedTuple):
    """What a server keeps when it opens the store again, which gives it another epoch."""

    no: int
    name: str

    def __str__(self) -> str:
        return f"server {self.no} ({self.name})"


class MemberLog:
    """Logs what has changed since the last look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[_Identity, Member] = {}
        self._shards = 0
        self._timer: asyncio.TimerHandle | None = None

    def note_change(self) -> None:
        """Look at the members and at the shards soon."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_AFTER_S, self.look)

    def look(self) -> None:
        """Log what has changed."""
        self.stop()
        me = self._cluster.me.no
        for member in self._cluster.members():
            if member.no != me and member.url and not self._cluster.has_lost(member):
                self._note_member(_Identity(member.no, member.name), member)
        for identity, member in [*self._known.items()]:
            if self._cluster.has_lost(member):
                del self._known[identity]
                _log_end(identity, member)
        shards = sum(map(self._cluster.is_mine, range(SHARDS)))
        if shards != self._shards:
            self._shards = shards
            log.info("this server has %d of %d shards", shards, SHARDS)

    def stop(self) -> None:
        """Do not look after the changes that were noted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _note_member(self, identity: _Identity, member: Member) -> None:
        before, self._known[identity] = self._known.get(identity), member
        if before is None:
            found = member.version, member.url
            log.info("%s is in the cluster, with schedo %s at %s", identity, *found)
        elif member.state is not before.state and member.state is MemberState.LEAVING:
            log.info("%s leaves the cluster: it gives its shards away", identity)


def _log_end(identity: _Identity, member: Member) -> None:
    if member.state is MemberState.OPEN:
        log.warning("%s is gone, and others have its shards", identity)
    else:
        log.info("%s has left the cluster", identity)
