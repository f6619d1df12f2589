"""Schema migrations: numbered SQL files that run in order, each in one transaction.

The first line of a file says which version of schedo may still open the store after it:

    -- schedo: reads_from=1

reads_from: the oldest schema whose schedo may do that, as in the SQLite store (docs/adr/0036). The
table `meta` has the number of the last migration as `schema`, and what it says as `reads_from`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import asyncpg

from schedo.errors import StoreError, StoreUnsuitable
from schedo.store.postgres.address import Address
from schedo.store.postgres.session import transaction

DIRECTORY = Path(__file__).parent / "migrations"
_MARK = re.compile(r"-- schedo: reads_from=(\d+)\n")
_SAVE = """
INSERT INTO meta (name, value) VALUES ('schema', $1), ('reads_from', $2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
_READ = "SELECT name, value FROM meta WHERE name IN ('schema', 'reads_from')"
# Of two servers that start together, one migrates. The lock ends with the transaction.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('schedo migrations of ' || $1))"
# All servers wait behind a migration that waits for a table. It is longer than deadlock_timeout,
# after which PostgreSQL ends an automatic vacuum for it.
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '2s'"
LONG_S = 2.0  # a transaction that uses the tables for longer is no commit of a server
# The one that has used the tables of the schema for longest, for at least $2 seconds.
_HOLDER = """
SELECT coalesce(nullif(application_name, ''), usename::text, backend_type), pid
FROM pg_locks JOIN pg_stat_activity USING (pid) JOIN pg_class ON pg_class.oid = relation
JOIN pg_namespace AS schema ON schema.oid = relnamespace
WHERE nspname = $1 AND granted AND pid <> pg_backend_pid() AND datname = current_database()
AND clock_timestamp() - xact_start >= make_interval(secs => $2) AND backend_type = 'client backend'
ORDER BY xact_start LIMIT 1"""
# To create a schema that exists needs the right to create one, even with IF NOT EXISTS.
_HAS_SCHEMA = "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)"


class Migration(NamedTuple):
    """A migration: its number, the oldest schema that may use its result, and its statements."""

    number: int
    reads_from: int
    script: str


class Migrated(NamedTuple):
    """What the migrations did: the schema of the store before (0: none) and after them."""

    before: int
    after: int


@cache
def list_migrations(directory: Path = DIRECTORY) -> tuple[Migration, ...]:
    """Return the migrations in the order of their numbers."""
    files = sorted(directory.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    found = []
    for file in files:
        script = file.read_text(encoding="utf-8")
        mark = _MARK.match(script)
        assert mark is not None, f"{file.name} does not say which schemas may read its result"
        found.append(Migration(int(file.name[:4]), int(mark[1]), script))
    return tuple(found)


async def migrate(
    connection: asyncpg.Connection, address: Address, directory: Path = DIRECTORY
) -> Migrated:
    """Bring the schema to the newest version; raise StoreUnsuitable if it is newer than that.

    All pending migrations run in one transaction, so another version finds all of them or none.
    Raise StoreError, and change nothing, while another session uses the tables for long. That is
    found out before the other servers would have to wait, so a supervisor may try again and again.
    """
    try:
        return await _migrate(connection, address, directory)
    except asyncpg.LockNotAvailableError:
        found = await connection.fetchrow(_HOLDER, address.schema, 0.0)
        raise _is_in_use(address, found) from None


def _is_in_use(address: Address, holder: Sequence[object] | None) -> StoreError:
    who = "another session" if holder is None else f"{holder[0]} (PostgreSQL session {holder[1]})"
    return StoreError(
        f"{address.shown} cannot be migrated while {who} uses its tables, as a backup does;"
        " nothing was changed, start again when that has ended"
    )


async def _migrate(connection: asyncpg.Connection, address: Address, directory: Path) -> Migrated:
    migrations = list_migrations(directory)
    async with transaction(connection):
        await connection.execute(_LOCK, address.schema)
        newest = migrations[-1].number
        before = await _read_schema(connection, address, newest)
        pending = [each for each in migrations if each.number > before]
        if not await connection.fetchval(_HAS_SCHEMA, address.schema):
            await connection.execute(f'CREATE SCHEMA "{address.schema}"')
        if pending:
            holder = await connection.fetchrow(_HOLDER, address.schema, LONG_S)
            if holder is not None:
                raise _is_in_use(address, holder)
        await connection.execute(_LOCK_TIMEOUT)
        for migration in pending:
            await connection.execute(migration.script)
            await connection.execute(_SAVE, migration.number, migration.reads_from)
    return Migrated(before, max(before, newest))


async def check_exists(connection: asyncpg.Connection, address: Address) -> None:
    """Raise StoreUnsuitable if the schema has no tables of a store, or is not there."""
    if not await _read_schema(connection, address, list_migrations()[-1].number):
        raise StoreUnsuitable(f"there is no store at {address.shown}")


async def _read_schema(connection: asyncpg.Connection, address: Address, newest: int) -> int:
    """Return the schema of the store, 0 if it is new; raise StoreUnsuitable if it is too new."""
    tables = await connection.fetchval(
        "SELECT array_agg(relname::text) FROM pg_class JOIN pg_namespace AS schema"
        " ON schema.oid = relnamespace WHERE nspname = $1 AND relkind IN ('r', 'p', 'v', 'm')",
        address.schema,
    )
    if not tables:
        return 0
    if not {"meta", "job", "server"} <= {*tables}:
        raise StoreUnsuitable(
            f"the schema {address.schema!r} of {address.shown} has tables of another program;"
            " nothing was changed, give another one: …?schema=NAME"
        )
    found = dict(await connection.fetch(_READ))
    if found["schema"] > newest and found["reads_from"] > newest:
        raise StoreUnsuitable(
            f"{address.shown} was migrated by a newer schedo (schema {found['schema']}, this one"
            f" knows {newest}); versions with schema {found['reads_from']} and later can open it;"
            " nothing was changed, install the newer version"
        )
    return int(found["schema"])
