"""What one heartbeat of a server has found of all servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property

from schedo.store.cluster import Member, MemberState


@dataclass(frozen=True)
class View:
    """What a heartbeat has found. sent_s: of since_boot_s, when it was sent."""

    sent_s: float
    members: dict[int, Member]  # by number, without those that have ended
    timeouts_us: dict[int, int]
    owners: dict[int, int]  # by shard; without the free ones
    settings: int  # the version of the queues, pauses and cordons
    late_us: int = 0  # how late the heartbeats of this server itself were lately, at most

    def shards_of(self, no: int) -> Set[int]:
        """Return the shards of a server."""
        return self._shards.get(no, frozenset())

    @cached_property
    def _shards(self) -> dict[int, set[int]]:
        found = defaultdict[int, set[int]](set)
        for shard, no in self.owners.items():
            found[no].add(shard)
        return found

    def is_gone(self, no: int) -> bool:
        """Return whether the server is silent for so long that others may take its shards.

        If this server was late itself, the machine or the database is busy, and the other one gets
        as much more time. Only the end of its session needs no such judgement.
        """
        member = self.members.get(no)
        if member is None or member.silent_us is None:
            return True
        return member.silent_us > self.timeouts_us[no] + self.late_us

    def staying(self) -> list[int]:
        """Return the numbers of the servers that live and stay."""
        return [
            no
            for no, member in self.members.items()
            if member.state is MemberState.OPEN and not self.is_gone(no)
        ]
