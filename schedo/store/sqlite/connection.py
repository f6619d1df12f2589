"""The two connections to a SQLite file, and the translation of their errors.

Only one connection writes and checkpoints: two that do can corrupt the file in every SQLite before
3.51.3 (sqlite.org/wal.html#walresetbug). The other connection is read-only. A database in memory
has one connection for everything, without a thread, because it never waits for a disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import quote

import aiosqlite

from schedo.errors import (
    StoreBroken,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnsuitable,
)
from schedo.store.sqlite.plain_names import add_functions
from schedo.store.unencodable import UNFIT

P = ParamSpec("P")
T = TypeVar("T")

MEMORY = ":memory:"

# The log is copied into the database when it is longer than this. Its file keeps this size, because
# a sync of overwritten blocks is cheaper than a sync of a growing file.
WAL_BYTES_MAX = 4 * 1024 * 1024
# A reader in another process can keep the log from starting over. When the log is this long, a
# checkpoint waits for the reader, and another one after each further WAL_BYTES_MAX.
WAL_BYTES_ALARM = 16 * WAL_BYTES_MAX
_BUSY_MS = 5_000
_BUSY_READER_MS = 100
_NICENESS = 10  # by which a thread gives way to all others

_INCREMENTAL = 2  # of auto_vacuum
_WRITER_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "wal_autocheckpoint = 0",
    f"journal_size_limit = {WAL_BYTES_MAX}",
    "temp_store = MEMORY",
    "cache_size = -1024",
    "mmap_size = 0",
    f"busy_timeout = {_BUSY_MS}",
)
_READER_PRAGMAS = (
    "query_only = ON",
    "temp_store = MEMORY",
    "cache_size = -256",  # its pages are in the system's cache too
    "mmap_size = 0",
    f"busy_timeout = {_BUSY_MS}",
)
# The error codes of SQLite about a row. About a value, sqlite3 has the errors of the encoders.
_UNFIT_CODES = {
    *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT),
    *(sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_MISUSE),
    sqlite3.SQLITE_INTERNAL,
}
_COUNT = "UPDATE meta SET value = value + 1 WHERE name = 'commits' RETURNING value"
# With these codes SQLite reports that a file has wrong contents.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Writer(sqlite3.Connection):
    """The connection that writes."""

    commits = 0  # the number of the last commit, as the database has it
    waited_bytes = -WAL_BYTES_MAX  # the length of the log when a checkpoint waited for readers last


class Connection(aiosqlite.Connection):
    """A connection whose thread runs whole functions.

    aiosqlite switches to its thread and back for each statement. A commit has a dozen statements,
    and a switch costs more than most of them. So here a commit is one function and takes one
    switch.
    """

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        self._raw: sqlite3.Connection | None = None
        self._open = connector
        self._stopping: asyncio.Future[Any] | None = None  # done when the thread ends
        super().__init__(self.open_here, iter_chunk_size=64)
        # close() ends the thread. After a crash without a close, a daemon thread lets the process
        # exit.
        self._thread.daemon = True

    def open_here(self) -> sqlite3.Connection:
        """Return the raw connection, which the calling thread opens unless it is open."""
        if self._raw is None:
            self._raw = self._open()
        return self._raw

    def start_thread(self) -> None:
        """Start the thread, unless it runs; nothing is opened.

        On a busy machine, a new thread gets a processor some milliseconds later than one that
        sleeps: a server that waits for its store starts it before.
        """
        if self._thread.ident is None:
            self._thread.start()

    def __await__(self) -> Generator[None, None, Self]:
        """Open the connection in its thread, unless that was done before."""
        self.start_thread()
        yield from self._connect().__await__()
        return self

    def stop(self) -> asyncio.Future[Any] | None:
        """Let the thread close the connection and end, after all earlier calls."""
        self._tx.put_nowait((None, self._close_raw))
        self._stopping = super().stop()
        return self._stopping

    async def close(self) -> None:
        """Close the connection after all earlier calls, and wait for the end of its thread."""
        await super().close()
        if self._stopping is None and self._thread.ident is not None:
            self.stop()  # nothing was opened
        await self.end()

    async def end(self) -> None:
        """Wait for the end of a connection that was closed, or whose opening failed."""
        if self._stopping is not None:
            await asyncio.wait([self._stopping])  # it may have been cancelled
            self._thread.join()
        else:  # its thread was never started
            self._close_raw()

    def _close_raw(self) -> None:
        if self._raw is not None:
            self._raw.close()

    def interrupt_now(self) -> None:
        """End the statement that runs now with an error; any thread may call, also after close."""
        with suppress(sqlite3.ProgrammingError):
            if self._raw is not None:
                self._raw.interrupt()

    async def run(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call the function with the raw connection in its thread, after all earlier calls."""
        call = partial(function, self._conn, *args, **kwargs)
        result: T = await self._execute(call)  # type: ignore[no-untyped-call]
        return result

    def post(self, function: Callable[[sqlite3.Connection], None]) -> None:
        """Run the function after all earlier calls; it must handle its errors itself."""
        self._tx.put_nowait((None, partial(function, self._conn)))


class InlineConnection(Connection):
    """A connection whose functions run at once, in the caller's thread."""

    def start_thread(self) -> None:
        """There is none."""

    def __await__(self) -> Generator[None, None, Self]:
        self.open_here()
        yield from ()
        return self

    async def close(self) -> None:
        if self._raw is not None:
            self._raw.close()

    async def run(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        assert self._raw is not None, "the connection is open"
        return function(self._raw, *args, **kwargs)

    def post(self, function: Callable[[sqlite3.Connection], None]) -> None:
        assert self._raw is not None, "the connection is open"
        function(self._raw)


def connect_writer(path: str, opener: Callable[[], sqlite3.Connection]) -> Connection:
    """Return the writing connection, not yet opened; opener: opens it, with `open_writer`."""
    return InlineConnection(opener) if path == MEMORY else Connection(opener)


def open_writer(path: str, factory: type[Writer] = Writer) -> Writer:
    """Return a raw connection that can write; prepare_writer must run on it."""
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=factory)
    add_functions(writer)
    return writer


def connect_reader(path: str) -> Connection:
    """Return the read-only connection, not yet opened."""
    return Connection(partial(open_reader, path))


def connect_searcher(path: str) -> Connection:
    """As connect_reader; if the processors are busy, all other threads go before its thread."""

    def connect() -> sqlite3.Connection:
        go_last()
        return open_reader(path)

    return Connection(connect)


def go_last() -> None:
    """Let all other threads of the process go before the calling one, where there is a way."""
    if sys.platform != "linux":  # elsewhere a thread has no niceness of its own
        return
    thread = threading.get_native_id()
    with suppress(OSError):
        niceness = os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS  # the kernel stops at 19
        os.setpriority(os.PRIO_PROCESS, thread, niceness)


def open_reader(path: str) -> sqlite3.Connection:
    """Return a read-only connection to the file with its log."""
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        add_functions(connection)
        _set(connection, _READER_PRAGMAS)
    except BaseException:
        connection.close()  # else it is open until the garbage collector finds it
        raise
    return connection


def prepare_writer(connection: sqlite3.Connection) -> None:
    """Use a write-ahead log for the file and sync every commit."""
    # Of a new file, before everything that writes. In a file that has it, the same setting would be
    # a synced commit of its own.
    if connection.execute("PRAGMA auto_vacuum").fetchone() != (_INCREMENTAL,):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    _set(connection, _WRITER_PRAGMAS)
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode not in ("wal", "memory"):
        raise StoreUnsuitable(f"SQLite cannot use a write-ahead log here (it stays in {mode} mode)")


def _set(connection: sqlite3.Connection, pragmas: tuple[str, ...]) -> None:
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Make all writes inside durable, or roll them back if the block raises.

    Every transaction increments the number of commits in the database (see last_commit.py).
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        counted = connection.execute(_COUNT).fetchall()
        connection.execute("COMMIT")
    except BaseException:
        # SQLite may have rolled back already, and on a failing disk this fails too. The first error
        # is the one to raise.
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    if isinstance(connection, Writer):
        connection.commits = counted[0][0] if counted else 0  # an old file before its migration


def last_commit(connection: sqlite3.Connection) -> int:
    """Return the number of the last commit of the writing connection."""
    assert isinstance(connection, Writer), "only one connection writes"
    return connection.commits


def count_statement(connection: sqlite3.Connection) -> None:
    """Count a statement that was a transaction by itself, as a trigger did in the database."""
    if isinstance(connection, Writer):
        connection.commits += 1


@contextmanager
def undone(connection: sqlite3.Connection) -> Iterator[None]:
    """Roll back all writes inside."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        with suppress(sqlite3.Error):  # SQLite may have rolled back already
            connection.execute("ROLLBACK")


@contextmanager
def unsynced(connection: sqlite3.Connection) -> Iterator[None]:
    """Do not sync the transactions inside; the next transaction outside syncs them too.

    Until then a power cut can undo them, each as a whole and with all later ones (NORMAL in
    sqlite.org/pragma.html#pragma_synchronous). After an error the caller calls sync_commits before
    any other transaction: the call in here may fail, and must not hide the error.
    """
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            sync_commits(connection)
        raise
    sync_commits(connection)


def sync_commits(connection: sqlite3.Connection) -> None:
    """Sync every commit before it returns."""
    connection.execute("PRAGMA synchronous = FULL")


def checkpoint(connection: sqlite3.Connection, path: str, *, may_wait: bool) -> bool:
    """Copy the log into the database as far as readers allow; return whether all was copied.

    may_wait: if the log is too long, wait for the readers for a moment, and empty it.
    """
    query = "PRAGMA wal_checkpoint(PASSIVE)"
    is_busy, frames, copied = connection.execute(query).fetchone()
    size = os.stat(path + "-wal").st_size
    assert isinstance(connection, Writer), "only one connection writes"
    has_grown = abs(size - connection.waited_bytes) > WAL_BYTES_MAX  # or has started over
    if may_wait and size > WAL_BYTES_ALARM and has_grown:
        connection.waited_bytes = size
        return truncate_log(connection)
    return not is_busy and frames == copied


def truncate_log(connection: sqlite3.Connection) -> bool:
    """Copy the whole log into the database and empty it; return False if a reader blocks that."""
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_READER_MS}")
    try:
        is_busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    return not is_busy


def is_refusal(error: Exception) -> bool:
    """Return whether the error is about the written values, not about the disk."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        # An error without a code is the binding's.
        return code is None or code & 0xFF in _UNFIT_CODES
    return isinstance(error, UNFIT)


def store_error(error: Exception, path: str) -> StoreError:
    """Translate an error of sqlite3 or of the operating system into a StoreError."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        return _file_error(error, path)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"there is no room left for {path}: {error}")
    name = getattr(error, "sqlite_errorname", "SQLite error")
    if code == sqlite3.SQLITE_IOERR:
        return StoreBroken(f"the disk under {path} failed ({name}: {error}); the server must stop")
    if code in _DAMAGED:
        return StoreDamaged(
            f"{path} is damaged ({name}: {error}); the server must stop. Restore a backup, or save"
            " what can still be read with the command .recover of the shell of SQLite"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"another program is writing to {path}: {error}")
    if is_refusal(error):
        return StoreRefused(f"the store refuses a value: {error}")
    return StoreError(f"the store {path} failed: {error}")


def _file_error(error: OSError, path: str) -> StoreError:
    if error.errno == errno.ENOSPC:
        return StoreFull(f"there is no room left for {path}: {error}")
    kind = StoreBroken if error.errno == errno.EIO else StoreUnsuitable
    return kind(f"the files of {path} cannot be used: {error}")
