"""A store in PostgreSQL as the source or the target of a copy; see store/copying.py."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

from schedo.core.ids import SLOTS, newest_at
from schedo.core.shards import SHARDS
from schedo.errors import StoreLocked, StoreUnsuitable
from schedo.store.base import ClockMark
from schedo.store.copying import MARKS, TABLES, Row
from schedo.store.postgres import server_numbers
from schedo.store.postgres.address import Address, parse_address
from schedo.store.postgres.errors import DRIVER_ERRORS, opening_error, store_error
from schedo.store.postgres.schema import check_exists, migrate
from schedo.store.postgres.self_test import check_server
from schedo.store.postgres.session import close, connect
from schedo.store.postgres.snapshots import OFFSET, clock_name, read_clock

_ROWS = 1_000  # are read at a time, or fewer of a table that has large ones
_BYTES_MAX = 16_777_216  # of the rows that are read at a time
_COLUMNS = """
SELECT attname::text FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"""
_LONG_COLUMNS = f"{_COLUMNS} AND atttypid IN ('text'::regtype, 'bytea'::regtype)"
# Each server has marks of its own; a copy gets the latest decision, and the clock of the first one.
_MARKS = r"""
SELECT name, value FROM (
    SELECT regexp_replace(name, '_\d+$', '') AS name, max(value) AS value FROM meta
    WHERE name NOT LIKE 'clock\_%' GROUP BY 1
) AS mark WHERE name = ANY($1::text[])"""
_CLOCK_MARKS = r"SELECT name, value FROM meta WHERE name LIKE 'clock\_%'"
_FIRST = 1  # the number of the server that has the marks of a copy
_EPOCH = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM epoch"
_DELETE_MARKS = "DELETE FROM meta WHERE regexp_replace(name, '_\\d+$', '') = ANY($1::text[])"
_WRITE_MARKS = "INSERT INTO meta (name, value) SELECT * FROM unnest($1::text[], $2::bigint[])"
# What has a home goes there; see Owned.place.
_PLACE = """
UPDATE job SET shard = coalesce(
    (SELECT schedule.shard FROM schedule WHERE schedule.id = job.schedule_id),
    shard_of(unique_key),
    (SELECT shard_of(name) FROM queue WHERE name = job.queue AND concurrency IS NOT NULL),
    shard
) WHERE schedule_id IS NOT NULL OR unique_key IS NOT NULL
OR queue IN (SELECT name FROM queue WHERE concurrency IS NOT NULL)"""
_PLACE_RELEASES = """
UPDATE run_release SET shard = schedule.shard FROM schedule WHERE schedule.id = schedule_id"""
_SET_EPOCH = "SELECT setval('epoch', greatest($1, 1), $1 > 0)"
# The ids and numbers that the database makes follow those of the rows.
_SET_NUMBERS = (
    "SELECT setval(pg_get_serial_sequence('action_log', 'number'), max(number)) FROM action_log",
    f"SELECT setval('inbox_number', greatest(last_value, (SELECT max(id) / {SLOTS} FROM job)))"
    " FROM inbox_number",
)
# The lock of each number that a server may have.
_LOCK = (
    f"SELECT bool_and(pg_try_advisory_lock({server_numbers.CLASS}, no))"
    f" FROM generate_series(1, {SHARDS}) AS no"
)
_UNLOCK = "SELECT pg_advisory_unlock_all()"
# Until the end of the transaction, no client can submit a job.
_END_READING = """
COMMIT; BEGIN; SET LOCAL lock_timeout = '2s'; LOCK TABLE inbox IN SHARE MODE"""
LOCK_S = 2.0  # the session of a dead server ends a moment later
_PAUSE_S = 0.05
# To fill a table and make its indexes afterwards takes less time than to extend them row by row.
_INDEXES = """
SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
WHERE indrelid = 'job'::regclass AND NOT indisprimary"""


class PostgresSide:
    """A session in a transaction; it holds the lock of the store."""

    def __init__(self, connection: asyncpg.Connection, address: Address) -> None:
        self._connection, self._address = connection, address

    async def columns(self, table: str) -> list[str]:
        return [name for (name,) in await self._connection.fetch(_COLUMNS, table)]

    async def read(
        self, table: str, columns: Sequence[str], order: Sequence[str]
    ) -> AsyncIterator[list[Row]]:
        sql = f"SELECT {_quoted(columns)} FROM {table} ORDER BY {', '.join(order)}"
        # The cursors of the driver stay open, and then the table gets no index.
        await self._connection.execute(f"DECLARE copied_{table} NO SCROLL CURSOR FOR {sql}")
        count = max(1, min(_ROWS, _BYTES_MAX // await self._largest_row(table)))
        while rows := await self._connection.fetch(f"FETCH {count} FROM copied_{table}"):
            yield rows
        await self._connection.execute(f"CLOSE copied_{table}")

    async def _largest_row(self, table: str) -> int:
        """Return the most bytes that the texts of a row have, and 1 at least."""
        found = await self._connection.fetch(_LONG_COLUMNS, table)
        sizes = [f'coalesce(octet_length("{name}"), 0)' for (name,) in found]
        query = f"SELECT max({' + '.join(['1', *sizes])}) FROM {table}"
        return await self._connection.fetchval(query) or 1

    async def read_marks(self) -> dict[str, int]:
        found = dict(await self._connection.fetch(_MARKS, MARKS))
        stored = dict(await self._connection.fetch(_CLOCK_MARKS))
        for field, value in read_clock(_FIRST, stored)._asdict().items():
            if clock_name(field, _FIRST) in stored:
                found[f"clock_{field}"] = value
        return found | {"epoch": await self._connection.fetchval(_EPOCH)}

    async def end(self) -> None:
        # The clients of SQL need no lock of the store. Transactions that are open may have rows.
        try:
            await self._connection.execute(_END_READING)
        except asyncpg.LockNotAvailableError:
            raise StoreUnsuitable(
                f"SQL clients submit jobs to {self._address.shown} in open transactions; end them,"
                " start its server once more, and stop the clients before the copy"
            ) from None
        await self.require_empty_inbox()

    async def require_empty_inbox(self) -> None:
        """Raise StoreUnsuitable if jobs of SQL clients wait."""
        waiting = await self._connection.fetchval("SELECT count(*) FROM inbox")
        if waiting:
            raise StoreUnsuitable(
                f"{waiting} jobs of SQL clients wait in the inbox of {self._address.shown}; start"
                " its server once more, which takes them"
            )


class PostgresTarget(PostgresSide):
    """An empty store, which is filled in one transaction."""

    def __init__(self, connection: asyncpg.Connection, address: Address) -> None:
        super().__init__(connection, address)
        self._indexes: list[str] | None = None  # of the table of jobs, while it has none

    async def write(self, table: str, columns: Sequence[str], rows: list[Row]) -> None:
        if table == "job" and self._indexes is None:
            await self._drop_indexes()
        if table == "job":
            at = columns.index("id")
            columns = [*columns, "shard"]
            rows = [(*row, newest_at(row[at]) % SHARDS) for row in rows]
        await self._connection.copy_records_to_table(
            table, schema_name=self._address.schema, columns=columns, records=rows
        )

    async def _drop_indexes(self) -> None:
        found = await self._connection.fetch(_INDEXES)
        self._indexes = [definition for _, definition in found]
        for name, _ in found:
            await self._connection.execute(f"DROP INDEX {name}")

    async def write_marks(self, marks: dict[str, int]) -> None:
        await self._connection.execute(_PLACE)
        await self._connection.execute(_PLACE_RELEASES)
        for definition in self._indexes or ():
            await self._connection.execute(definition)
        await self._connection.execute(_DELETE_MARKS, MARKS)
        values = {name: marks[name] for name in marks if name != "epoch"}
        for field in ClockMark._fields:
            if f"clock_{field}" in marks:
                values[clock_name(field, _FIRST)] = values.pop(f"clock_{field}")
        if OFFSET in marks:
            values[OFFSET] = marks[OFFSET]
        await self._connection.execute(_WRITE_MARKS, [*values], [*values.values()])
        await self._connection.execute(_SET_EPOCH, marks["epoch"])
        for statement in _SET_NUMBERS:
            await self._connection.execute(statement)

    async def finish(self) -> None:
        await self._connection.execute("COMMIT")
        await self._connection.execute("ANALYZE job")


@asynccontextmanager
async def postgres_source(url: str) -> AsyncIterator[PostgresSide]:
    """Hold the store, which must exist, and read it; raise StoreLocked if a server has it."""
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ"
    async with _held(url, begin, must_exist=True) as (connection, address):
        side = PostgresSide(connection, address)
        await side.require_empty_inbox()
        yield side


@asynccontextmanager
async def postgres_target(url: str) -> AsyncIterator[PostgresTarget]:
    """Hold the store, which must be empty; its tables are made if it has none.

    The minutes of a server that had nothing to do are deleted: they say nothing about jobs.
    """
    async with _held(url, "BEGIN") as (connection, address):
        for table in (*sorted({*TABLES} - {"minute"}), "inbox"):
            if await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table})"):
                raise StoreUnsuitable(
                    f"the target must be empty, but {address.shown} has rows in the table {table};"
                    " name another schema at the end of the URL: ?schema=NAME"
                )
        await connection.execute("DELETE FROM minute")
        yield PostgresTarget(connection, address)


@asynccontextmanager
async def _held(
    url: str, begin: str, *, must_exist: bool = False
) -> AsyncIterator[tuple[asyncpg.Connection, Address]]:
    """Yield a session with the lock of the migrated store, in a transaction."""
    address = parse_address(url)
    name = f"schedo {socket.gethostname()} {os.getpid()}{server_numbers.COPIES}"
    connection = await connect(address, name)
    try:
        try:
            await check_server(connection, address.shown)
            if must_exist:  # a mistyped schema would be an empty store
                await check_exists(connection, address)
            await migrate(connection, address)
            await _lock(connection, address)
        except DRIVER_ERRORS as error:
            raise opening_error(error, address.shown) from error
        try:
            await connection.execute("SET maintenance_work_mem = '256MB'")
            await connection.execute(begin)
            yield connection, address
        except DRIVER_ERRORS as error:
            raise store_error(error, address.shown) from error
    except BaseException:
        connection.terminate()  # PostgreSQL rolls back
        raise
    await close(connection)


async def _lock(connection: asyncpg.Connection, address: Address) -> None:
    """Take the place of all servers of the store; raise StoreLocked, which names those that run."""
    loop = asyncio.get_running_loop()
    until = loop.time() + LOCK_S
    while not await connection.fetchval(_LOCK):
        await connection.execute(_UNLOCK)
        found = await connection.fetch(server_numbers.HOLDERS)
        if found and loop.time() > until:
            names = ", ".join(f"{name} (PostgreSQL session {pid})" for name, pid in found)
            raise StoreLocked(f"a server holds {address.shown}; stop it first: {names}")
        await asyncio.wait([loop.create_future()], timeout=_PAUSE_S)


def _quoted(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)
