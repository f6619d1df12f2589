"""The deletion of rows of the inbox, in the commit that has their jobs.

Another transaction may hold such a row, as that of a person does who has deleted it and has not
committed yet. The commit must not wait for that person, because all other commits wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from schedo.errors import StoreError
from schedo.store.postgres.tables import Statement

_HELD_MS = 200  # after so long a commit fails, and the rows are left for later
# The subquery runs first; its setting is for what is left of the transaction.
_DELETE = f"""
DELETE FROM inbox WHERE id = ANY($1::bigint[])
AND (SELECT set_config('lock_timeout', '{_HELD_MS}', true)) IS NOT NULL"""
# A row that is gone has become a job before: then the whole commit must not happen.
_DELETE_ALL = f"""
WITH deleted AS ({_DELETE} RETURNING 1) SELECT require_all(count(*), $2) FROM deleted"""
WAIT_AGAIN = Statement("SET LOCAL lock_timeout = 0", ())  # in the rest of the transaction
_TRY = _DELETE.replace(f"'{_HELD_MS}'", "'1'")
_FIND_GONE = """
SELECT id FROM unnest($1::bigint[]) AS taken (id)
WHERE NOT EXISTS (SELECT FROM inbox WHERE inbox.id = taken.id)"""


class Undo(Exception):
    """Ends a transaction that was only a try."""


def delete(ids: Sequence[int]) -> Statement:
    """Return the statement that deletes the rows; it fails if one is gone, or held by others."""
    return Statement(_DELETE_ALL, (ids, len(ids)))


def has_waited(error: StoreError) -> bool:
    """Return whether the commit has failed because others hold a row."""
    return isinstance(error.__cause__, asyncpg.LockNotAvailableError)


async def find_gone(connection: asyncpg.Connection, ids: Sequence[int]) -> list[int]:
    """Return those of the ids whose rows are not there any more."""
    return [job_id for (job_id,) in await connection.fetch(_FIND_GONE, ids)]


async def find_held(connection: asyncpg.Connection, ids: Sequence[int]) -> list[int]:
    """Return those of the ids whose rows other transactions hold."""
    held = []
    try:
        async with connection.transaction():
            for job_id in ids:
                try:
                    async with connection.transaction():
                        await connection.execute(_TRY, [job_id])
                except asyncpg.LockNotAvailableError:
                    held.append(job_id)
            raise Undo
    except Undo:
        return held
