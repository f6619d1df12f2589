"""The rows of the tallies: hours next to the present, and days before them.

They are as in the SQLite store; see store/sqlite/tallies.py.
"""

from __future__ import annotations

import asyncpg

from schedo.core.limits import DAY
from schedo.core.tallies import (
    DAYS_KEPT,
    HOURS_KEPT,
    Dimension,
    HourTallies,
    Period,
    Tallies,
    decode_row,
    extend_row,
)

ROWS = """
SELECT at, figures FROM tally
WHERE dimension = $1 AND period = $2 AND at > $3 AND at < $4 ORDER BY at LIMIT $5"""
_READ = "SELECT figures FROM tally WHERE dimension = $1 AND period = $2 AND at = $3"
_WRITE = """
INSERT INTO tally (dimension, period, at, figures) VALUES ($1, $2, $3, $4)
ON CONFLICT (dimension, period, at) DO UPDATE SET figures = excluded.figures"""
_DELETE = "DELETE FROM tally WHERE dimension = $1 AND period = $2 AND at = $3"
_BEYOND = """
SELECT at FROM tally WHERE dimension = $1 AND period = $2
ORDER BY abs(at - $3), at OFFSET $4"""
# What a server has added last, and when. Each has a mark of its own, by the epoch with which it has
# begun: while it does not know whether its commit took effect, another one may get its number.
_MARK = "INSERT INTO meta (name, value) VALUES ('tallied_' || $1::bigint || '_' || $2::bigint, $3)"
_FORGET = """
DELETE FROM meta WHERE name LIKE 'tallied\\_%' AND (
    split_part(name, '_', 2) = $1::bigint::text
    OR nullif(split_part(name, '_', 3), '')::bigint < $2::bigint)"""
_MARK_KEPT_US = 7 * DAY  # of a server that has ended, or does not reach the database
_IS_ADDED = "SELECT EXISTS (SELECT FROM meta WHERE name LIKE 'tallied\\_%' AND value = $1)"
# The next commit waits for the disk, and so for this one too.
_UNSYNCED = "SET LOCAL synchronous_commit = off"
# The servers of a cluster add to the same rows, one after the other.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('schedo tallies of ' || current_schema()))"


async def add(
    connection: asyncpg.Connection, tallies: HourTallies, now: int, mark: tuple[int, int]
) -> None:
    """Add the tallies of hours unless that is done; see Store.add_tallies.

    mark: the first epoch of the server, and the name of the batch.
    """
    async with connection.transaction():
        await connection.execute(_UNSYNCED)
        await connection.execute(_LOCK)  # also held by a lost session until its commit has ended
        epoch, batch = mark
        if await connection.fetchval(_IS_ADDED, batch):
            return
        await connection.execute(_FORGET, epoch, now - _MARK_KEPT_US)
        await connection.execute(_MARK, epoch, now, batch)
        for (dimension, at), by_name in tallies.items():
            if await _add_row(connection, dimension, Period.HOUR, at, by_name):
                await _move_to_days(connection, dimension, now)


async def _add_row(
    connection: asyncpg.Connection, dimension: Dimension, period: Period, at: int, tallies: Tallies
) -> bool:
    """Add tallies to a row; return whether it is new."""
    key = dimension.value, period.value, at
    stored = await connection.fetchval(_READ, *key)
    await connection.execute(_WRITE, *key, extend_row(stored, tallies))
    return stored is None


async def _move_to_days(connection: asyncpg.Connection, dimension: Dimension, now: int) -> None:
    hours, days = (dimension.value, Period.HOUR.value), (dimension.value, Period.DAY.value)
    for (at,) in await connection.fetch(_BEYOND, *hours, now, HOURS_KEPT):
        text = await connection.fetchval(_READ, *hours, at)
        await _add_row(connection, dimension, Period.DAY, at - at % DAY, decode_row(text))
        await connection.execute(_DELETE, *hours, at)
    for (at,) in await connection.fetch(_BEYOND, *days, now, DAYS_KEPT):
        await connection.execute(_DELETE, *days, at)
