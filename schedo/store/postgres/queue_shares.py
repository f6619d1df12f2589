"""The limits of queues that the servers of a cluster share.

For each queue, the owner of the shard of its name, its home, divides the limit. A row of the table
says how many jobs another server may run (its share), and how many it counts on (held). Only the
home writes the share, except that a snapshot of a server begins with none (snapshots.py): nobody
counts the row of a server without shards, nor that of a home. Only the server itself writes what it
holds, and raises it to its share at most, by one statement. So that server never runs more jobs
than the larger one of both, apart from those that ran there before. These are in the table of jobs:
nothing else starts meanwhile.

All statements run in the sessions that hold the locks of the servers. So a server that others have
replaced changes nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import asyncpg

from schedo.core.limit_shares import LimitUse, divide
from schedo.store.cluster import Claim, Lower
from schedo.store.conditions import LISTED_STATE
from schedo.store.postgres.owned import Owned
from schedo.store.postgres.session import Writer

# What the other servers have of each queue. Jobs that run in a shard whose owner has not read it
# yet come apart, as those of server 0, because no server counts them. The last row says how many
# shards belong to servers that may not know a limit yet, and start jobs as if there was none.
_READ = f"""
WITH other AS (SELECT no, owner, read_by FROM shard WHERE no <> ALL($2::smallint[]))
SELECT queue, server, max(wanted) AS wanted, max(share) AS share, max(held) AS held,
    sum(running)::bigint AS running
FROM (
    SELECT queue, server, wanted, share, held, 0 AS running FROM queue_share
    WHERE queue = ANY($1::text[]) AND server <> $3 AND server IN (SELECT owner FROM other)
    UNION ALL
    SELECT queue, CASE WHEN read_by = owner AND owner <> $3 THEN owner ELSE 0 END, 0, 0, 0, count(*)
    FROM job JOIN other ON other.no = job.shard
    WHERE state = 'running' AND {LISTED_STATE} AND queue = ANY($1::text[]) GROUP BY 1, 2
) AS found GROUP BY queue, server
UNION ALL SELECT NULL, NULL, 0, 0, 0, count(*) FROM other LEFT JOIN server ON server.no = owner
WHERE owner <> $3 AND coalesce(server.settings, 0) < $4"""
# Of a queue whose home has moved meanwhile, nothing is given. Each statement locks its rows in the
# order of the queues, so that no two of them wait for each other.
_GIVE = """
WITH new AS MATERIALIZED (
    SELECT row.queue, row.server, given.share FROM queue_share AS row
    JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) AS given (queue, server, share)
        ON row.queue = given.queue AND row.server = given.server
    WHERE EXISTS (SELECT 1 FROM shard WHERE no = shard_of(row.queue) AND owner = $4)
    ORDER BY row.queue, row.server FOR UPDATE OF row
)
UPDATE queue_share AS old SET share = new.share FROM new
WHERE old.queue = new.queue AND old.server = new.server
RETURNING old.queue, old.server, old.share, old.held"""
_FIND = "SELECT queue, wanted, share, held FROM queue_share WHERE server = $1 AND queue = ANY($2)"
_CLAIM = """
INSERT INTO queue_share AS old (queue, server, wanted, held)
SELECT queue, $1, wanted, kept FROM unnest($2::text[], $3::bigint[], $4::bigint[])
    AS new (queue, wanted, kept) ORDER BY queue COLLATE "C"
ON CONFLICT (queue, server) DO UPDATE SET wanted = excluded.wanted,
    held = greatest(excluded.held, least(old.share, excluded.wanted))
RETURNING queue, share, held"""


@dataclass
class _Other:
    """What another server has of a queue."""

    wanted: int
    share: int
    held: int
    running: int

    @property
    def taken(self) -> int:
        """As many of its jobs may run now."""
        return max(self.share, self.held, self.running)


@dataclass
class _Division:
    """The division of one limit."""

    use: LimitUse
    passing: int = 0  # jobs that run in shards that pass to another server
    others: dict[int, _Other] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """What the others leave of the limit."""
        return max(0, self.use.limit - self.passing - sum(o.taken for o in self.others.values()))

    def targets(self, me: int, turn: int) -> dict[int, int]:
        """Return the share that each other server should have."""
        wishes = {no: max(other.wanted, other.running) for no, other in self.others.items()}
        found = divide(self.use.limit - self.passing, {**wishes, me: self.use.wanted}, turn)
        del found[me]
        return found

    def left_by(self, targets: Mapping[int, int]) -> int:
        """Return what is left to this server when the others have their targets."""
        taken = sum(
            max(targets[no], other.held, other.running) for no, other in self.others.items()
        )
        return max(0, self.use.limit - self.passing - taken)

    def raised(self, targets: Mapping[int, int]) -> dict[int, int]:
        """Return the shares that can be raised now, as far as the limit allows."""
        room, found = self.free - max(self.use.share, self.use.running), {}
        for no, other in self.others.items():
            share = min(targets[no], other.taken + max(0, room))
            if share > other.share:
                found[no] = share
                room -= max(0, share - other.taken)
        return found


class QueueShares:
    """A QueueLimits of one server."""

    def __init__(
        self, writer: Callable[[], Writer], owned: Callable[[], Owned], settings: Callable[[], int]
    ) -> None:
        """Each returns what the server has at the moment; settings: the version of the queues."""
        self._writer, self._owned, self._settings = writer, owned, settings

    async def claim(self, claims: Mapping[str, Claim]) -> Mapping[str, int]:
        no = self._owned().no

        async def run(connection: asyncpg.Connection) -> dict[str, int]:
            found = {row["queue"]: row for row in await connection.fetch(_FIND, no, [*claims])}
            changed = {
                queue: claim for queue, claim in claims.items() if _differs(found.get(queue), claim)
            }
            if changed:
                wanted = [each.wanted for each in changed.values()]
                kept = [max(each.running, each.share) for each in changed.values()]
                rows = await connection.fetch(_CLAIM, no, [*changed], wanted, kept)
                found |= {row["queue"]: row for row in rows}
            return {queue: min(row["share"], row["held"]) for queue, row in found.items()}

        return await self._writer().run(run)

    async def divide(
        self, uses: Mapping[str, LimitUse], turn: int, lower: Lower
    ) -> Mapping[str, int]:
        owned, settings = self._owned(), self._settings()

        async def run(connection: asyncpg.Connection) -> dict[str, int]:
            divisions = {queue: _Division(use) for queue, use in uses.items()}
            *rows, unsettled = await connection.fetch(
                _READ, [*uses], owned.shards, owned.no, settings
            )
            if unsettled["running"]:
                return dict.fromkeys(uses, 0)
            for queue, server, *numbers in rows:
                if server:
                    divisions[queue].others[server] = _Other(*numbers)
                else:
                    divisions[queue].passing = numbers[-1]
            targets = {queue: each.targets(owned.no, turn) for queue, each in divisions.items()}
            lowered = {queue: each.left_by(targets[queue]) for queue, each in divisions.items()}
            for queue, use in lower(lowered).items():
                divisions[queue].use = use
            less = {
                (queue, no): targets[queue][no]
                for queue, each in divisions.items()
                for no, other in each.others.items()
                if targets[queue][no] < other.share
            }
            await _give(connection, owned.no, divisions, less)
            more = {
                (queue, no): share
                for queue, each in divisions.items()
                for no, share in each.raised(targets[queue]).items()
            }
            await _give(connection, owned.no, divisions, more)
            return {queue: each.free for queue, each in divisions.items()}

        return await self._writer().run(run)


def _differs(row: asyncpg.Record | None, claim: Claim) -> bool:
    """Return whether the row must be written."""
    if row is None:
        return claim.wanted > 0
    held = max(claim.running, claim.share, min(row["share"], claim.wanted))
    return bool(row["wanted"] != claim.wanted or row["held"] != held)


async def _give(
    connection: asyncpg.Connection,
    no: int,
    divisions: Mapping[str, _Division],
    shares: Mapping[tuple[str, int], int],
) -> None:
    """Write shares, and note them with what the servers hold at that moment."""
    if not shares:
        return
    queues, servers = [queue for queue, _ in shares], [server for _, server in shares]
    for row in await connection.fetch(_GIVE, queues, servers, [*shares.values()], no):
        other = divisions[row["queue"]].others[row["server"]]
        other.share, other.held = row["share"], row["held"]
