"""The figures of minutes: each server stores its own, and adopts those of servers that are gone."""

from __future__ import annotations

from collections import defaultdict

import asyncpg

from schedo.core.minutes import merge_minutes
from schedo.core.shards import SHARDS
from schedo.store.postgres.server_numbers import CLASS, LIVING

_ADOPTED_MAX = 32  # at a time: commits wait meanwhile

_SAVE = """
WITH deleted AS (DELETE FROM minute WHERE server = $4 AND at <= $1 - $3::bigint)
INSERT INTO minute (at, figures, server) VALUES ($1, $2, $4)
ON CONFLICT (server, at) DO UPDATE SET figures = excluded.figures"""
# A server that lives holds the lock of its number, and one that starts reads its minutes under it.
# One that has just lost the session with the lock lives by its heartbeats, and has its minutes in
# memory: they would count twice.
_TAKE = f"""
WITH known AS MATERIALIZED (
    SELECT no FROM generate_series(1, {SHARDS}) AS no
    WHERE no <> $1 AND EXISTS (SELECT 1 FROM minute WHERE server = no) AND no NOT IN ({LIVING})
), gone AS MATERIALIZED (
    SELECT no FROM known WHERE pg_try_advisory_xact_lock({CLASS}, no)
), wanted AS (
    SELECT server, at FROM minute WHERE server IN (SELECT no FROM gone) ORDER BY at DESC LIMIT $2
)
DELETE FROM minute USING wanted WHERE minute.server = wanted.server AND minute.at = wanted.at
RETURNING minute.at, minute.figures"""
_OWN = "SELECT at, figures FROM minute WHERE server = $1 AND at = ANY($2::bigint[])"
_REPLACE = """
INSERT INTO minute (at, figures, server)
SELECT at, figures, $1 FROM unnest($2::bigint[], $3::text[]) AS merged (at, figures)
ON CONFLICT (server, at) DO UPDATE SET figures = excluded.figures"""


async def save_minute(
    connection: asyncpg.Connection, no: int, at: int, figures: str, keep_us: int
) -> None:
    """Write a minute of the server, and delete its old ones."""
    await connection.execute(_SAVE, at, figures, keep_us, no)


async def adopt_minutes(connection: asyncpg.Connection, no: int) -> list[tuple[int, str]]:
    """Add some minutes of servers that are gone to those of the server.

    Return these minutes as they are now; none if no other server has left any.
    """
    found: defaultdict[int, list[str]] = defaultdict(list)
    async with connection.transaction():
        for at, figures in await connection.fetch(_TAKE, no, _ADOPTED_MAX):
            found[at].append(figures)
        if not found:
            return []
        for at, figures in await connection.fetch(_OWN, no, [*found]):
            found[at].append(figures)
        merged = {at: merge_minutes(texts) for at, texts in found.items()}
        await connection.execute(_REPLACE, no, [*merged], [*merged.values()])
    return sorted(merged.items())
