"""Pages of jobs in one order, out of an index that begins with the shard.

To read a whole page of each shard would take long, so a query reads some entries of each, and cuts
the result at the last entry that it has of every shard. A page that this leaves short is continued.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import asyncpg

_ENTRIES_MIN = 16  # of each shard


class Source(NamedTuple):
    """Entries of the table `job` in order of (value, id).

    value: the expression by which they are sorted. after: the one of the entry after which they
    begin. condition: of an index that begins with the shard, and then has the value and the id.
    moved: is added to the value, so that entries of several sources have one order.
    """

    value: str
    after: str
    condition: str
    moved: str = "0"


# The parameters that each query has: the id after which it begins, how many entries it returns,
# how many it reads of each shard, and the shards.
AFTER_ID, LIMIT, EACH, SHARDS = "$1::bigint", "$2::bigint", "$3::bigint", "$4::smallint[]"
OWN = 5  # the number of the first parameter of the query's own


def first_of_shards(*sources: Source) -> str:
    """Return common table expressions, of which `page` has (at, id), and `cut` a row if it is cut.

    A cut page may continue after its last entry, or else the shards have no more entries.
    """
    found = "UNION ALL".join(_SOURCE.format(**each._asdict()) for each in sources)
    return f"""
found AS MATERIALIZED ({found}),
cut AS MATERIALIZED (SELECT at, id FROM found WHERE place = {EACH} ORDER BY at, id LIMIT 1),
page AS MATERIALIZED (
    SELECT at, id FROM found
    WHERE NOT EXISTS (SELECT 1 FROM cut) OR (at, id) <= (SELECT at, id FROM cut)
    ORDER BY at, id LIMIT {LIMIT}
)"""


_SOURCE = f"""
    SELECT part.* FROM unnest({SHARDS}) AS owned (shard) CROSS JOIN LATERAL (
        SELECT entry.at, entry.id, row_number() OVER () AS place FROM (
            SELECT {{value}} + {{moved}} AS at, job.id FROM job
            WHERE job.shard = owned.shard AND {{condition}}
            AND ({{value}}, job.id) > ({{after}}, {AFTER_ID})
            ORDER BY {{value}}, job.id LIMIT {EACH}
        ) AS entry
    ) AS part
    """


class Request(NamedTuple):
    """The first entries after a pair, of some shards."""

    after: tuple[int, int]
    limit: int
    shards: list[int]

    def parameters(self) -> tuple[Any, ...]:
        """Return the first parameters of the query."""
        each = 2 * self.limit // max(1, len(self.shards))
        return self.after[1], self.limit, min(self.limit, max(_ENTRIES_MIN, each)), self.shards

    def rest(self, found: list[asyncpg.Record]) -> Request | None:
        """Return the request for what is missing; None if the page is complete.

        found: what this one has found, with the columns `at`, `id` and `is_cut`, in order.
        """
        if len(found) >= self.limit or not found or not found[-1]["is_cut"]:
            return None
        after = (found[-1]["at"], found[-1]["id"])
        return Request(after, self.limit - len(found), self.shards)
