"""What a server says of its cluster: GET /v1/cluster."""

from __future__ import annotations

from msgspec import UNSET

from schedo.clock import Clock
from schedo.cluster.homes import list_owners
from schedo.cluster.reachability import Reachability
from schedo.protocol.cluster import ClusterResponse, MemberResponse
from schedo.protocol.times import render_instant
from schedo.store.cluster import Cluster


def describe(
    cluster: Cluster, seen: Reachability, own_problem: str | None, clock: Clock
) -> ClusterResponse:
    """Return the members, as this server has seen them last.

    own_problem: why the URL of this server is wrong, if it is. clock: the one that jobs follow.
    While the database does not respond, the time since the last heartbeat grows for all of them.
    """
    unreachable = dict(seen.unreachable)
    if own_problem is not None:
        unreachable[cluster.me.epoch] = own_problem
    owners = list_owners(cluster)
    me, unseen_us = cluster.me.no, cluster.unseen_us()
    members = [
        MemberResponse(
            number=member.no,
            name=member.name,
            url=member.url or None,
            epoch=member.epoch,
            version=member.version,
            state=member.state.value,
            shards=[shard for shard, owner in enumerate(owners) if owner == member.no],
            silent_us=None if member.silent_us is None else member.silent_us + unseen_us,
            reachable=member.epoch not in unreachable
            and (member.no == me or (bool(member.url) and member.silent_us is not None)),
            clock_ahead_us=clock.ahead_us()
            if member.no == me
            else seen.clocks.get(member.epoch, UNSET),
            problem=unreachable.get(member.epoch, UNSET),
        )
        for member in cluster.members()
    ]
    unowned = [shard for shard, owner in enumerate(owners) if owner is None]
    return ClusterResponse(me, members, unowned, render_instant(clock.now()))
