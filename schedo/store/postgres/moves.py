"""Shards that a server gives to others while it lives."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from schedo.store.conditions import LISTED_STATE
from schedo.store.postgres.owned import Owned
from schedo.store.postgres.session import transaction

_RUNS = f"state = 'running' AND {LISTED_STATE}"
# What runs here stays here: a job without a home goes to a shard that the server keeps.
_KEEP = f"""
UPDATE job SET shard = $1 WHERE {_RUNS} AND shard = ANY($2::smallint[])
AND schedule_id IS NULL AND unique_key IS NULL AND queue <> ALL($3::text[])"""
_GIVE = f"""
UPDATE shard SET owner = move.target
FROM unnest($1::smallint[], $2::bigint[]) AS move (no, target)
WHERE shard.no = move.no AND owner = $3
AND ($4 OR NOT EXISTS (SELECT 1 FROM job WHERE {_RUNS} AND job.shard = shard.no))
RETURNING shard.no"""


async def give(
    connection: asyncpg.Connection, owned: Owned, moves: Mapping[int, int], *, with_runs: bool
) -> set[int]:
    """Give shards to other servers; return which they have now.

    moves: the new owner of each. A shard in which a job with a home runs stays, unless with_runs:
    what runs now is with remote workers. No change of this server may be on its way to the store.
    """
    kept = next((shard for shard in owned.shards if shard not in moves), None)
    async with transaction(connection):
        if kept is not None:
            await connection.execute(_KEEP, kept, [*moves], owned.limited_queues())
        given = await connection.fetch(_GIVE, [*moves], [*moves.values()], owned.no, with_runs)
    return {shard for (shard,) in given}
