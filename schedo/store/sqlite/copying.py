"""A store in a file as the source or the target of a copy; see store/copying.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from schedo.errors import StoreUnsuitable
from schedo.store.copying import MARKS, Row
from schedo.store.sqlite.connection import store_error
from schedo.store.sqlite.last_commit import SUFFIX
from schedo.store.sqlite.lock import FileLock, hold_database
from schedo.store.sqlite.path_checks import prepare_directory
from schedo.store.sqlite.store import SqliteStore

T = TypeVar("T")

UNFINISHED_SUFFIX = ".copy-in-progress"
_MADE = ("", "-wal", "-shm", "-journal", ".lock", SUFFIX)  # the files of the unfinished store
_ROWS = 5_000  # are read at a time
_BYTES_MAX = 16_777_216  # about, of rows that are read at a time
# An undo is an operation that older versions of the file do not know.
_OPERATIONS = "(SELECT id, record FROM bulk_operation UNION ALL SELECT id, record FROM bulk_undo)"
_MOVE_UNDOS = (
    "INSERT INTO bulk_undo SELECT id, record FROM bulk_operation"
    " WHERE json_extract(record, '$.undoes') IS NOT NULL",
    "DELETE FROM bulk_operation WHERE id IN (SELECT id FROM bulk_undo)",
)
_MARKS = f"SELECT name, value FROM meta WHERE name IN ('epoch', {', '.join('?' * len(MARKS))})"
_WRITE_MARK = "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)"


class SqliteSide:
    """A connection to the file of a store that this process has locked."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._path = connection, path
        # One thread has all cursors: a cursor that another one drops would reset a statement that
        # is used again already.
        self._thread = ThreadPoolExecutor(1, "schedo copy")

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, OSError) as error:
            raise store_error(error, self._path) from error

    def close(self) -> None:
        """Close the connection when the call that is under way has ended."""
        self._thread.shutdown()
        self._connection.close()

    async def columns(self, table: str) -> list[str]:
        sql = f"PRAGMA table_info({table})"
        found = await self._run(lambda: self._connection.execute(sql).fetchall())
        return [name for _, name, *_ in found]

    async def read(
        self, table: str, columns: Sequence[str], order: Sequence[str]
    ) -> AsyncIterator[list[Row]]:
        source = _OPERATIONS if table == "bulk_operation" else table
        sql = f"SELECT {_quoted(columns)} FROM {source} ORDER BY {', '.join(order)}"
        cursor = await self._run(lambda: self._connection.execute(sql))
        while rows := await self._run(lambda: _fetch(cursor)):
            yield rows
        await self._run(cursor.close)

    async def read_marks(self) -> dict[str, int]:
        return dict(await self._run(lambda: self._connection.execute(_MARKS, MARKS).fetchall()))

    async def end(self) -> None:
        """Do nothing: only the holder of the lock changes a file."""

    async def write(self, table: str, columns: Sequence[str], rows: list[Row]) -> None:
        marks = ", ".join("?" * len(columns))
        sql = f"INSERT INTO {table} ({_quoted(columns)}) VALUES ({marks})"
        await self._run(lambda: self._connection.executemany(sql, map(tuple, rows)).close())

    async def write_marks(self, marks: dict[str, int]) -> None:
        def work() -> None:
            for statement in _MOVE_UNDOS:
                self._connection.execute(statement)
            self._connection.executemany(_WRITE_MARK, marks.items())

        await self._run(work)


class SqliteTarget(SqliteSide):
    """A new file, which gets its name at the end."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        super().__init__(connection, path)
        self._unfinished = path + UNFINISHED_SUFFIX

    async def finish(self) -> None:
        def work() -> None:
            self._connection.execute("COMMIT")
            self._connection.close()
            _sync(self._unfinished)
            os.rename(self._unfinished, self._path)
            _sync(os.path.dirname(self._path))

        await self._run(work)


@asynccontextmanager
async def sqlite_source(path: str) -> AsyncIterator[SqliteSide]:
    """Hold the store at the path and read it; raise StoreLocked if a server has it."""
    _check_exists(path)
    store = SqliteStore(path)
    await store.open()
    try:
        await store.settle()
        assert store.path is not None, "it is in a file"
        connection = sqlite3.connect(
            f"file:{store.path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        with contextlib.closing(SqliteSide(connection, store.path)) as side:
            yield side
    finally:
        await store.close()


@asynccontextmanager
async def sqlite_target(path: str) -> AsyncIterator[SqliteTarget]:
    """Hold the path, at which there is no store, and make one beside it."""
    path = _prepare_path(path)
    lock = FileLock(path + ".lock")
    lock.acquire()
    try:
        _check_free(path)
        async with _new_store(path) as target:
            yield target
        lock.clear()
    finally:
        lock.release()


def _prepare_path(path: str) -> str:
    """Return the absolute path, whose directory exists and is private enough."""
    path = os.path.realpath(path)
    prepare_directory(path)
    return path


def _check_exists(path: str) -> None:
    if not os.path.exists(path):
        raise StoreUnsuitable(f"there is no store {path}")


def _check_free(path: str) -> None:
    held = hold_database(path, create=False)
    if held is not None:
        os.close(held)
    # The next server would take a log that is here for that of the copy.
    there = [path + suffix for suffix in ("", "-wal", SUFFIX) if os.path.lexists(path + suffix)]
    if there:
        raise StoreUnsuitable(
            f"there is a store at {path} already ({', '.join(there)}); the target must be empty"
        )


@asynccontextmanager
async def _new_store(path: str) -> AsyncIterator[SqliteTarget]:
    """Make an empty store under another name; yield it with a connection in a transaction.

    What is left of it at the end is removed.
    """
    unfinished = path + UNFINISHED_SUFFIX
    _remove(unfinished)
    try:
        store = SqliteStore(unfinished)
        await store.open()
        await store.close()
        connection = sqlite3.connect(unfinished, isolation_level=None, check_same_thread=False)
        with contextlib.closing(SqliteTarget(connection, path)) as target:
            # SQLite need not sync while it writes: no server opens the file before it is complete,
            # and it is synced then.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            yield target
    finally:
        _remove(unfinished)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    for suffix in _MADE:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path + suffix)


def _fetch(cursor: sqlite3.Cursor) -> list[Row]:
    rows: list[Row] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes | str))
        if len(rows) >= _ROWS or size >= _BYTES_MAX:
            break
    return rows


def _quoted(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)
