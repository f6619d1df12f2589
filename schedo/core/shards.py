"""The shards of a cluster: which one a text belongs to, and which server should own each.

A cluster divides its jobs into a fixed number of shards, and each shard has one owner. What must
be exact over all servers, such as a unique key, is hashed to a shard, and so has one owner, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from functools import lru_cache

SHARDS = 32  # fixed forever: rows of the store have the number of their shard


def shard_of(text: str) -> int:
    """Return the shard of a text, such as a unique key or the name of a schedule.

    SQL finds the same number: `('x' || left(md5(text), 8))::bit(32)::bigint % 32`.
    """
    return _hash(text) % SHARDS


def assign(members: Collection[int], owners: Mapping[int, int]) -> dict[int, int]:
    """Return the member that should own each shard, so that the members have equally many, ± 1.

    members: the numbers of the servers that live and stay. owners: the present owner of each shard
    that has one; it may be no member.

    This is rendezvous hashing with bounded load: no more shards move than must. All servers that
    know the same members and owners find the same answer, and carrying it out changes it no more.
    """
    if not members:
        return {}
    held: dict[int, list[int]] = {member: [] for member in members}
    free: list[int] = []
    for shard in range(SHARDS):
        held.get(owners.get(shard, -1), free).append(shard)
    quotas = _share_out({member: len(shards) for member, shards in held.items()})
    for member, shards in held.items():
        shards.sort(key=lambda shard: _score(member, shard), reverse=True)
        free += shards[quotas[member] :]
        del shards[quotas[member] :]
    for shard in sorted(free):
        open_to = [member for member, shards in held.items() if len(shards) < quotas[member]]
        held[max(open_to, key=lambda member: _score(member, shard))].append(shard)
    return {shard: member for member, shards in held.items() for shard in shards}


def _share_out(counts: Mapping[int, int]) -> dict[int, int]:
    """Return how many shards each member should have, given how many it has now."""
    least, more = divmod(SHARDS, len(counts))
    # Those that have the most keep one more, so that fewer shards move.
    by_count = sorted(counts, key=lambda member: (-counts[member], member))
    return {member: least + (place < more) for place, member in enumerate(by_count)}


@lru_cache(maxsize=SHARDS**2)  # the numbers of servers end at SHARDS; each heartbeat asks for all
def _score(member: int, shard: int) -> int:
    return _hash(f"{member}/{shard}")


def _hash(text: str) -> int:
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
