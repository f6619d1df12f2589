"""The inbox of a store in PostgreSQL: rows that `enqueue` has inserted in transactions of clients.

The rows become visible in the order of the commits, not of their ids. So the reader goes through
them in the order of their transactions, and remembers which transactions were still open when it
passed them. Then a read looks only at rows that it has not seen. Rows that were deleted stay in the
index as long as any old snapshot in the database needs them, and would make each read longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import asyncpg

from schedo.core.limits import ENQUEUED_BYTES_MAX, INTEGER_MAX
from schedo.store.inbox import InboxRow
from schedo.store.postgres.taken_in import find_held

CHANNEL = "schedo_inbox"  # the payload is the schema
ROWS_MAX = 500
BYTES_MAX = 4_194_304  # of a read, and one row more
HELD_S = 30.0
_START = (0, 0)

log = logging.getLogger("schedo.store")

# A client may insert hundreds of megabytes, more than the memory of a server.
_SPEC = f"""
CASE WHEN octet_length(spec) > {ENQUEUED_BYTES_MAX} THEN left(spec, {ENQUEUED_BYTES_MAX + 1})
    ELSE spec END"""
# The snapshot, and the next rows: the others of a transaction with many, those of the transactions
# that were open before, and those after the position. `found` counts them, also those behind the
# bytes that are read at once.
_READ = f"""
SELECT end_xact, open_xacts, row.* FROM (
    SELECT pg_snapshot_xmax(now)::text::bigint AS end_xact,
        ARRAY(SELECT open::text::bigint FROM pg_snapshot_xip(now) AS open) AS open_xacts
    FROM (SELECT pg_current_snapshot() AS now) AS snapshot
) AS snapshot LEFT JOIN LATERAL (
    SELECT xact, id, {_SPEC} AS spec, found FROM (
        SELECT xact, id, spec, count(*) OVER () AS found, sum(octet_length(spec)) OVER (
            ORDER BY xact, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS bytes_before
        FROM (
            (SELECT xact, id, spec FROM inbox WHERE xact = $5 AND id > $6
                AND ($4::smallint[] IS NULL OR shard = ANY($4)) ORDER BY xact, id LIMIT {ROWS_MAX})
            UNION ALL
            (SELECT xact, id, spec FROM inbox WHERE xact = ANY($1::bigint[])
                AND ($4::smallint[] IS NULL OR shard = ANY($4)) ORDER BY xact, id LIMIT {ROWS_MAX})
            UNION ALL
            (SELECT xact, id, spec FROM inbox WHERE (xact, id) > ($2, $3)
                AND ($4::smallint[] IS NULL OR shard = ANY($4)) ORDER BY xact, id LIMIT {ROWS_MAX})
        ) AS page ORDER BY xact, id LIMIT {ROWS_MAX}
    ) AS summed WHERE coalesce(bytes_before, 0) < {BYTES_MAX} ORDER BY xact, id
) AS row ON true"""
_FIND = f"""
SELECT id, {_SPEC}, $2::smallint[] IS NULL OR shard = ANY($2) FROM inbox WHERE id = $1"""

_Session = Callable[[], AbstractAsyncContextManager[asyncpg.Connection]]


def _ignore() -> None:
    """Do nothing: no reader has started."""


class PostgresInbox:
    """The rows of the inbox that no server has taken."""

    def __init__(self, session: _Session, schema: str) -> None:
        """session: opens a session for a short read."""
        self._session, self._schema = session, schema
        self.notify: Callable[[], None] = _ignore
        self._shards: list[int] | None = None  # whose rows are read; None: all
        self._held: set[int] = set()  # rows that other transactions hold; they are left until then
        self._held_until = 0.0
        self.restart()

    def restart(self) -> None:
        # All rows up to the position were returned, apart from those of the open transactions.
        self._position, self._open = _START, list[int]()
        self._part = _START  # the last row of one of those transactions that has more of them
        self._began = object()  # identifies this pass through the rows

    def own(self, shards: list[int]) -> None:
        """Read the rows of these shards from now on, from the first one on."""
        self._shards = shards
        self.restart()

    async def leave_held(self, ids: Sequence[int]) -> None:
        """Leave those of the rows for HELD_S that other transactions hold."""
        async with self._session() as session:
            held = await find_held(session, ids)
        if held:
            self._held.update(held)
            self._held_until = asyncio.get_running_loop().time() + HELD_S
            log.warning(
                "rows of the inbox wait for another transaction that holds them: %d", len(held)
            )

    async def read(self) -> Sequence[InboxRow]:
        if self._held and asyncio.get_running_loop().time() >= self._held_until:
            self._held.clear()
            self.restart()
        began, part = self._began, self._part
        # Those before the part come after it: their rows are seen by the next read at the latest.
        still_open = [xact for xact in self._open if xact > part[0]]
        async with self._session() as session:
            found = await session.fetch(_READ, still_open, *self._position, self._shards, *part)
        end, now_open = found[0]["end_xact"], found[0]["open_xacts"]
        end_position = (end - 1, INTEGER_MAX)  # no later transaction had a row for this snapshot
        rows = [row for row in found if row["id"] is not None]
        position, next_part = end_position, _START
        if rows and (len(rows) < rows[0]["found"] or rows[0]["found"] >= ROWS_MAX):
            last = (rows[-1]["xact"], rows[-1]["id"])
            if last <= self._position:  # a transaction that was open before has more rows
                next_part = last
            position = min(last, end_position)
        if self._began is not began:
            return self._as_rows(rows)
        self._part = next_part
        if part == next_part == _START:
            self._position = position
            self._open = [xact for xact in now_open if xact <= position[0]]
        elif not rows:
            return await self.read()
        return self._as_rows(rows)

    async def find(self, job_id: int) -> InboxRow | None:
        async with self._session() as session:
            row = await session.fetchrow(_FIND, job_id, self._shards)
        if row is None:
            return None
        found = InboxRow(*row)
        return found._replace(is_own=found.is_own and job_id not in self._held)

    async def listen(self, connection: asyncpg.Connection) -> None:
        """Let this session be told what clients announce with `SET schedo.notify = on`."""
        await connection.add_listener(CHANNEL, self._hear)

    def _hear(self, _connection: object, _pid: int, _channel: str, schema: object) -> None:
        if schema == self._schema:
            self.notify()

    def _as_rows(self, rows: Sequence[asyncpg.Record]) -> list[InboxRow]:
        return [InboxRow(row["id"], row["spec"]) for row in rows if row["id"] not in self._held]
