"""A disk of real SQLite files: the store's own code in virtual time, with faults at any statement.

Each server has a directory of its own. When a server dies, the next one gets a copy of its files as
they were at that instant, perhaps in the middle of a transaction; after a power cut, as they were
before the transactions that were not synced. A model in memory has all commits, and every result of
the store is compared with the model's.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest

from schedo.core.changes import Changes
from schedo.core.loads import PromoteDue
from schedo.errors import SchedoError, StoreError
from schedo.store.base import ClockMark, Retention, Snapshot
from schedo.store.sqlite import connection as connections
from schedo.store.sqlite import job_search, queries, read_connection, schedule_search, writes
from schedo.store.sqlite.connection import open_writer
from schedo.store.sqlite.store import SqliteStore
from tests.sim.directories import Files
from tests.sim.disk import Disk, ServerStore, freeze
from tests.sim.trace import Broke, StoreFailed

COUNTDOWNS = (1, 1, 1, 2, 3, 4, 6, 10)  # the statement that fails; most calls have few statements
UNCOMPARED = {
    "find_job_ids",
    "size_bytes",
    "count_waiting",
    "find_idempotency_record",
    "list_outputs",
    "load_payload",
    "load_minutes",
}
_NOT_COUNTED = ("PRAGMA", "ROLLBACK")
_APPEND = "INSERT INTO write_buffer"
_REPLAY = "DELETE FROM write_buffer"  # all entries: not a commit of the engine


class FileStore(ServerStore):
    """The SQLite store of one server."""

    def __init__(self, disk: Disk, files: Files, die: Callable[[], None]) -> None:
        super().__init__(disk, die)
        self._files = files
        self._directory = files.directory
        self._store = SqliteStore(files.directory / "schedo.db")
        self._connections: list[Inline] = []
        self._fate: Callable[[], None] | None = None
        self._breaks = False  # whether the disk has failed, which every later call reports
        self._countdown = 0
        self._is_after = False  # whether the fault occurs after the statement
        self._left: Path | None = None  # the files that a power cut leaves
        self._has_struck = False
        self._transaction: list[str] = []
        self._committed: list[list[str]] = []  # statements of the current call, by transaction
        self._unopened: Path | None = None  # the files before the open, until a commit is synced

    # Faults.

    def arm(self, probability: float) -> None:
        """Choose at random whether, and which, of the next statements fails."""
        faults, random = self._disk.faults, self._disk.random
        self._fate = None
        self._has_struck = False
        self._committed = []
        if self._disk.chance(probability):
            self._fate = self._fail_statement
        elif self._disk.chance(faults.dies):
            self._fate = self._die_here
        elif self._disk.chance(faults.breaks):
            self._fate = partial(self._fail_statement, sqlite3.SQLITE_IOERR)
        if self._fate is not None:
            self._countdown = random.choice(COUNTDOWNS)
            self._is_after = random.random() < 0.5

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Give the block faults of its own, apart from those of the call around it."""
        kept = self._fate, self._countdown, self._is_after, self._committed, self._has_struck
        self.arm(self._disk.faults.commit_fails)
        try:
            yield
        except asyncio.CancelledError:
            assert self.is_dead, "nothing else ends it"
        finally:
            self._fate, self._countdown, self._is_after, self._committed, self._has_struck = kept

    def _fail_statement(self, code: int | None = None) -> None:
        if code is None:
            code = self._disk.random.choice((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL))
        error = sqlite3.OperationalError("it flickered")
        error.sqlite_errorcode = code
        self._has_struck = True
        self._breaks = self._breaks or code == sqlite3.SQLITE_IOERR
        raise error

    def _die_here(self) -> None:
        self._die()
        raise asyncio.CancelledError

    def execute(self, sql: str, call: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        """Carry out a statement of the writing connection, with a fault before or after it."""
        if self.is_dead:
            raise asyncio.CancelledError
        is_counted = not sql.startswith(_NOT_COUNTED)
        if sql == "PRAGMA synchronous = NORMAL" and self._disk.chance(
            self._disk.faults.power_fails
        ):
            self._left = self._files.copy()
        elif sql == "PRAGMA synchronous = FULL":
            self._left = None  # the transaction failed, so there is no power cut after it
        if is_counted:
            self._strike(is_after=False)
        before = len(self._committed)
        done = call()
        self._note(sql.strip(), done)
        if self._left is not None and len(self._committed) > before:
            self._die_here()
        if is_counted:
            try:
                self._strike(is_after=True)
            except BaseException:
                done.close()  # as SQLite does when a statement fails
                raise
        return done

    def _strike(self, *, is_after: bool) -> None:
        if self._fate is None or self.is_dead:
            return
        if not is_after:
            self._countdown -= 1
        if self._countdown == 0 and is_after is self._is_after:
            fate, self._fate = self._fate, None
            fate()

    def _note(self, sql: str, done: sqlite3.Cursor) -> None:
        if sql.startswith("BEGIN"):
            self._transaction = []
        elif sql == "COMMIT":
            self._committed.append(self._transaction)
        elif (
            sql.startswith(_APPEND)
            and done.rowcount == 1
            and not done.connection.in_transaction  # alone, it is a transaction by itself
        ):
            self._committed.append([sql])
        else:
            self._transaction.append(sql)

    # Opening, closing and dying.

    def die(self) -> None:
        """Copy the files as they are now, for the next server."""
        if not self.is_dead:
            super().die()
            if not self.is_passed:
                self._files.directory = self._left or self._files.copy()

    def pass_on(self) -> None:
        """Leave the files to the next server, after they were closed for it."""
        super().pass_on()
        self._files.directory = self._files.copy()

    def abandon(self) -> None:
        """Release the resources of a dead process."""
        for each in self._connections:
            each.raw.close()
        if self._store._flush_timer is not None:
            self._store._flush_timer.cancel()
        self._store._guard.end()
        shutil.rmtree(self._directory)

    @contextmanager
    def _inline(self) -> Iterator[None]:
        """Replace the store's connections by ones that work in this thread.

        A search goes on until it ends, however busy the machine is.
        """
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connections, "Connection", partial(Inline, self))
            patch.setattr(connections, "open_writer", self._open_faulty)
            patch.setattr(read_connection, "SEARCH_S", inf)
            patch.setattr(job_search, "STEP_S", inf)
            patch.setattr(schedule_search, "STEP_S", inf)
            yield

    def connected(self, connection: Inline) -> None:
        self._connections.append(connection)

    def _open_faulty(self, path: str) -> connections.Writer:
        return open_writer(path, type("Faulty", (_Faulty, connections.Writer), {"owner": self}))

    async def open(self) -> Snapshot:
        """Open the files of the last server."""
        await self._access(0)
        if not self._disk.memory._is_open:
            await self._disk.memory.open()
        if self._disk.faults.power_fails:
            self._unopened = self._files.copy()
        self.arm(self._disk.faults.load_fails)
        with self._inline():
            opening: Snapshot = await self._watched(self._store.open())
        self._compare("open", opening, await self._model("snapshot"))
        await self._access()
        return self._opened(opening)

    async def recovered(self) -> None:
        """Sync the open, unless a commit has; if the power fails before, it has not happened."""
        async with self._turn:
            await self._access(0)
            if self._unopened is not None and self._disk.chance(self._disk.faults.power_fails):
                self._left = self._unopened
                self._disk.memory._epoch -= 1
                self._die_here()
            self.arm(self._disk.faults.commit_fails)
            await self._watched(self._store.recovered())
            self._unopened = None
            await self._access(0)

    async def close(self, *, keep_log: bool = False) -> None:
        """Close the files."""
        if not self.is_dead:
            self._is_open = self._disk.was_killed = False
            await self._store.close(keep_log=keep_log)

    # Calls.

    def _call(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **options: Any) -> Any:
            return await self._ask(name, *args, **options)

        return call

    async def _ask(self, name: str, *args: Any, **options: Any) -> Any:
        """Call the store, and compare its result with the model's."""
        if name == "count_waiting" and self._has_newer_snapshot(*args):
            return await self._store.count_waiting(*args)  # it raises
        self.arm(self._disk.faults.load_fails)
        is_writing = name == "prune" or (name == "load" and isinstance(args[0], PromoteDue))
        expected = None if is_writing else await self._model(name, *args, **options)
        try:
            with self._inline():  # a snapshot opens a connection for its count
                found = await self._watched(getattr(self._store, name)(*args, **options))
        except BaseException:
            # A power cut undoes the transaction that was not synced, which is always the last one.
            if is_writing and self._left is None and any(map(_changes_jobs, self._committed)):
                await self._model(name, *args)
            raise
        self._compare(name, found, await self._model(name, *args) if is_writing else expected)
        return found

    def _has_newer_snapshot(self, epoch: int) -> bool:
        """Whether the engine has recovered while the access to the count of this epoch waited."""
        waiting = self._store._waiting
        return waiting is not None and waiting._epoch > epoch

    async def commit(self, changes: Changes) -> None:
        """Write the changes, unless a fault occurs at one of the statements."""
        frozen = freeze(changes)
        async with self._turn:
            await self._access(0)
            self.arm(self._disk.faults.commit_fails)
            try:
                await self._watched(self._store.commit(frozen))
            finally:
                if any(_REPLAY not in statements for statements in self._committed):
                    self._unopened = None
                    await self._disk.write(frozen)
            await self._access(0)

    async def save_clock(self, mark: ClockMark) -> None:
        """Write the clock's position, unless a fault occurs at one of the statements."""
        async with self._turn:
            await self._access(0)
            self.arm(self._disk.faults.commit_fails)
            try:
                await self._watched(self._store.save_clock(mark))
            finally:
                if any(writes.SAVE_CLOCK in statements for statements in self._committed):
                    self._unopened = None
                    await self._disk.save_clock(mark)
            await self._access(0)

    async def prune(self, now: int, retention: Retention, limit: int) -> int:
        """Delete the records whose retention has passed."""
        async with self._turn:
            await self._access(0)
            await self._ask("load_running", 0, 1)  # the model has no write buffer, so it is flushed
            return await self._pruned(partial(self._ask, "prune", now, retention, limit))

    async def _watched(self, asked: Awaitable[Any]) -> Any:
        """Return the result; an error that no fault has caused is a bug."""
        try:
            return await asked
        except StoreError as error:
            self._disk.record(StoreFailed, error.code)
            is_closed = self._store._writer is None  # the store was closed during the call
            if not (self._has_struck or self._breaks or is_closed):
                self._disk.record(Broke, f"the store failed without a fault: {error}")
            raise
        finally:
            self._fate = None
            if self.is_dead:
                raise asyncio.CancelledError

    async def _model(self, name: str, *args: Any, **options: Any) -> Any:
        try:
            return await getattr(self._disk.memory, name)(*args, **options)
        except SchedoError as error:
            return error

    def _compare(self, name: str, found: Any, expected: Any) -> None:
        if isinstance(found, Snapshot):
            found, expected = _stock(found), _stock(expected)
        if name not in UNCOMPARED and found != expected:
            self._disk.record(Broke, f"{name} of the store is {found}, it should be {expected}")


class Inline:
    """Replaces the store's connection and its thread: it works at once, in this thread.

    A posted function runs a little later, but before the next call.
    """

    def __init__(self, owner: FileStore, connector: Callable[..., sqlite3.Connection]) -> None:
        self._owner = owner
        self._connector = connector
        self._posted: deque[Callable[[sqlite3.Connection], None]] = deque()

    def __await__(self) -> Generator[None, None, Inline]:
        self.open_here()
        yield from ()
        return self

    def open_here(self) -> sqlite3.Connection:
        if not hasattr(self, "raw"):
            self.raw = self._connector()
            self._owner.connected(self)
        return self.raw

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._drain()
        return function(self.raw, *args, **kwargs)

    def post(self, function: Callable[[sqlite3.Connection], None]) -> None:
        self._posted.append(function)
        disk = self._owner._disk
        disk.loop.call_later(disk.random.expovariate(1 / disk.faults.delay_s), self._drain)

    def _drain(self) -> None:
        while self._posted and not self._owner.is_dead:
            function = self._posted.popleft()
            with self._owner.beside():
                function(self.raw)

    async def close(self) -> None:
        self._drain()
        if hasattr(self, "raw"):
            self.raw.close()

    end = close

    def interrupt_now(self) -> None:
        pass  # each statement has ended when it returns


class _Faulty(sqlite3.Connection):
    """A connection that calls its owner before and after each statement."""

    owner: FileStore

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        return self.owner.execute(sql, partial(super().execute, sql, *args))

    def executemany(self, sql: str, *args: Any) -> sqlite3.Cursor:
        return self.owner.execute(sql, partial(super().executemany, sql, *args))


def _changes_jobs(statements: list[str]) -> bool:
    return any(
        sql.startswith("DELETE FROM job ") or sql == queries.QUEUE_JOBS.strip()
        for sql in statements
    )


def _stock(opening: Snapshot) -> tuple[Any, ...]:
    ready_keys = sorted(opening.ready_keys, key=repr)
    return opening.last_id, opening.queues, ready_keys, opening.has_blocked, opening.clock[:3]
