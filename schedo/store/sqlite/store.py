"""The store in one SQLite file, or in memory.

A commit is on the disk when it returns: write-ahead log, synchronous=FULL. Its changes may still be
in the write buffer then (see write_buffer.py). They are flushed to the tables before any other read
or write, and a moment later in any case. After an I/O error every later call raises StoreBroken,
and the log stays for the recovery at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Concatenate, ParamSpec, TypeVar

from schedo.core.changes import Changes
from schedo.core.loads import Load, PromoteDue
from schedo.core.model import Job
from schedo.errors import (
    NotFound,
    Overloaded,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnsuitable,
)
from schedo.store.base import ClockMark, Retention, Snapshot
from schedo.store.sqlite import bad_values, loads, queries, reads, writes
from schedo.store.sqlite import connection as connections
from schedo.store.sqlite.backup import remove_unfinished, write_backup_behind
from schedo.store.sqlite.buffer_bounds import ALONE, BESIDE_STANDBY, FLUSH_PERIOD_S
from schedo.store.sqlite.buffer_entries import has_entries, write_layout
from schedo.store.sqlite.connection import MEMORY, Connection
from schedo.store.sqlite.file_guard import DatabaseGuard, FileGuard
from schedo.store.sqlite.lock_passing import PassedLocks
from schedo.store.sqlite.path_checks import size_bytes
from schedo.store.sqlite.pruning import prune
from schedo.store.sqlite.replay import replay
from schedo.store.sqlite.schema import check_file, is_old, migrate
from schedo.store.sqlite.session_keys import SessionKeys
from schedo.store.sqlite.snapshots import Snapshots
from schedo.store.sqlite.write_buffer import WriteBuffer
from schedo.store.sqlite.writes import Commit
from schedo.store.unencodable import UNFIT, find_unencodable

if TYPE_CHECKING:
    from schedo.core.tallies import HourTallies

log = logging.getLogger("schedo.store")

P = ParamSpec("P")
T = TypeVar("T")


class SqliteStore(PassedLocks, SessionKeys, Snapshots):
    """A Store in a file, which this process locks from open to close; or in memory, until close."""

    def __init__(self, path: str | os.PathLike[str], *, accept_loss: bool = False) -> None:
        self.path: str | None = None
        if path == MEMORY:
            super().__init__(MEMORY, DatabaseGuard())
        else:
            # SQLite puts the log beside the file, not beside a symbolic link to it.
            self.path = os.path.realpath(path)
            super().__init__(self.path, FileGuard(self.path, accept_loss=accept_loss))
        self._closing: asyncio.Task[None] | None = None
        self._buffer = WriteBuffer()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._is_copied = False  # a backup runs, which keeps the log from starting over
        self._tallied = 0  # the batch that was added last; its caller may not know that
        self._opened: Snapshot | None = None  # by the writer's thread

    async def prepare(self) -> None:
        assert self._writer is None, "the store is open already"
        if self.path is not None:
            self._closing = None
            try:
                self._guard.prepare()
                await self._warm.open(self.path, self._connect, self._make_writer())
            except BaseException as error:
                await self._warm.close()
                raise self._translate_opening(error) from error

    async def open(self) -> Snapshot:
        assert self._writer is None, "the store is open already"
        self._closing, self._broken = None, None
        self._buffer = WriteBuffer(self._buffer.bounds)
        try:
            if self.path is not None:
                await self._warm.keep_if_same(self.path)
            writer = self._warm.take_writer() or self._make_writer()
            self._waiting = self._make_count(writer)
            # All of it is one call of the writer's thread: in a take-over, each switch costs time.
            self._writer = await self._connect(writer)
            snapshot, self._opened = self._opened, None
            assert snapshot is not None, "each open reads one"
            self._offset_us = snapshot.clock.offset_us
            self._reader = self._writer
            if self.path is not None:
                self._reader = await self._connect(self._take_reader(self.path))
            await self._begin_count(snapshot.epoch)
            if self._has_left_log:
                self._flush_later()
        except BaseException as error:
            await self.close()
            raise self._translate_opening(error) from error
        return dataclasses.replace(snapshot, was_killed=self._guard.was_killed)

    def _make_writer(self) -> Connection:
        return connections.connect_writer(self._name, self._open_file)

    def _translate_opening(self, error: BaseException) -> BaseException:
        if isinstance(error, sqlite3.Error | OSError):
            return self._translate_error(error)
        return error

    async def close(self, *, keep_log: bool = False) -> None:
        # In a task of its own, so that a cancelled caller does not cancel the closing.
        if self._closing is None:
            self._closing = asyncio.create_task(self._shutdown(keep_log=keep_log))
        await asyncio.shield(self._closing)
        if not keep_log:
            self._guard.end()

    async def shorten_log(self) -> None:
        await self.settle()
        await self._run(self._require_open(self._writer), self._checkpoint)

    async def recovered(self) -> None:
        await self._run(self._require_open(self._writer), self._guard.recovered)

    def note_leaving(self) -> None:
        self._guard.note_leaving()

    def bound_replay(self, is_bounded: bool) -> None:
        self._buffer.bounds = BESIDE_STANDBY if is_bounded else ALONE

    async def commit(self, changes: Changes) -> None:
        try:
            commit = writes.encode(changes, self._offset_us)
        except UNFIT as error:
            faults = find_unencodable(changes, writes.encode)
            raise StoreRefused.of_commit(error, faults) from error
        writer = self._require_open(self._writer)
        try:
            log_bytes = await self._run(writer, self._commit, commit)
        except StoreRefused as error:
            faults = await self._run(writer, bad_values.find_unwritable, commit)
            raise StoreRefused.of_commit(error, faults) from error
        if self._buffer.is_long:
            self._post(self._buffer.flush_oldest)
        elif self._buffer.may_flush_ended:
            self._post(self._buffer.flush_ended)
        if self._buffer and self._flush_timer is None:
            self._flush_later()
        self._checkpoint_if_long(log_bytes)

    def _commit(self, connection: sqlite3.Connection, commit: Commit) -> int:
        """Make the commit durable, and return the bytes of the log."""
        self._buffer.commit(connection, commit)
        return self._guard.committed(connection)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        # The count reads for seconds: a wait for it would only hold up the commits.
        may_wait = self._waiting is None or not self._waiting.is_reading
        copy = partial(connections.checkpoint, path=self._name, may_wait=may_wait)
        self._guard.copy_log(connection, copy)

    async def check(self) -> None:
        await self._run(self._require_open(self._writer), self._guard.check)

    # Calls that run in one order with the commits.

    def _raise_epoch(self, connection: sqlite3.Connection) -> None:
        self._buffer.forget()  # here, because a commit may still run before it
        self._buffer.flush(connection)
        with connections.transaction(connection):
            writes.raise_epoch(connection)
        self._guard.committed(connection)

    async def save_clock(self, mark: ClockMark) -> None:
        def save_clock(connection: sqlite3.Connection) -> None:
            with connections.transaction(connection):
                writes.save_clock(connection, mark)
            self._guard.committed(connection)

        await self._run(self._require_open(self._writer), save_clock)
        self._offset_us = mark.offset_us

    async def save_minute(self, at: int, figures: str, keep_us: int) -> None:
        def save_minute(connection: sqlite3.Connection) -> int:
            with connections.transaction(connection):
                writes.save_minute(connection, at, figures, keep_us)
            return self._guard.committed(connection)

        self._checkpoint_if_long(await self._run(self._require_open(self._writer), save_minute))

    async def add_tallies(self, tallies: HourTallies, now: int, batch: int) -> None:
        from schedo.store.sqlite.tallies import add

        def add_once(connection: sqlite3.Connection) -> None:
            if batch != self._tallied:
                add(connection, tallies, now)
                self._tallied = batch

        await self._run(self._require_open(self._writer), add_once)
        self._checkpoint_if_long(self._guard.log_bytes())

    async def load(self, load: Load) -> Any:
        writer = self._require_open(self._writer)
        found = await self._run(writer, loads.carry_out, self._buffer, load, self._offset_us)
        self._buffer.is_bypassed = False
        if isinstance(load, PromoteDue):
            self._checkpoint_if_long(self._guard.log_bytes())
        return found

    async def load_running(self, after: int, limit: int) -> list[Job]:
        return await self._load(reads.jobs, self._offset_us, queries.RUNNING, (after, limit))

    async def load_payload(self, job_id: int) -> bytes:
        # A large payload is never in the buffer, and small ones stay in memory with their jobs.
        writer = self._require_open(self._writer)
        found = await self._run(writer, reads.fetch_all, queries.LARGE_PAYLOAD, (job_id,))
        found = found or await self._load(reads.fetch_all, queries.PAYLOAD, (job_id,))
        if not found:
            raise NotFound(f"job {job_id} is not in the store")
        payload: bytes = found[0][0]
        return payload

    async def prune(self, now: int, retention: Retention, limit: int) -> int:
        writer = self._require_open(self._writer)
        count = await self._run(writer, prune, now, retention, limit, self._buffer.holds)
        self._checkpoint_if_long(self._guard.log_bytes())
        return count

    async def backup(self, now: Callable[[], int]) -> tuple[BinaryIO, int]:
        if self.path is None:
            raise StoreUnsuitable("a store in memory cannot be backed up")
        self._require_open(self._writer)
        if self._is_copied:
            raise Overloaded("another backup is under way; try again when it has ended", 10)
        self._is_copied = True
        try:
            return await write_backup_behind(self.path, now)
        finally:
            self._is_copied = False
            self._checkpoint_if_long(self._guard.log_bytes())

    async def size_bytes(self) -> int:
        return 0 if self.path is None else size_bytes(self.path)

    # Connections.

    async def _load(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        def load(connection: sqlite3.Connection) -> T:
            self._buffer.flush(connection)
            return function(connection, *args, **kwargs)

        return await self._run(self._require_open(self._writer), load)

    async def _flush_all(self) -> bool:
        writer = self._require_open(self._writer)
        if self._buffer:
            last = self._buffer.newest
            try:
                while not await self._run(writer, self._buffer.flush_step, last):
                    pass  # commits run between two steps
            except StoreFull:
                return False
        return True

    async def _read_unflushed(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        writer = self._require_open(self._writer)
        return await self._run(writer, self._buffer.read_flushed, function, *args, **kwargs)

    def _is_buffered(self, job_id: int) -> bool:
        return self._buffer.holds(job_id)

    def _open_file(self) -> sqlite3.Connection:
        """Lock the file, check it, open it, and bring it up to date."""
        self._guard.take()
        if self.path is not None:
            remove_unfinished(self.path)
        connection = connections.open_writer(self._name)
        try:
            self._opened = self._begin(connection)
        except BaseException as error:
            if isinstance(error, sqlite3.Error | OSError):
                self._translate_error(error)  # a broken store writes no more
            self._close_writer(connection, keep_log=False)
            raise
        return connection

    def _begin(self, connection: sqlite3.Connection) -> Snapshot:
        check_file(connection, self._name)
        connections.prepare_writer(connection)
        if is_old(connection):
            if has_entries(connection):
                with connections.transaction(connection):
                    replay(connection)  # with the old columns
            migrate(connection)
        # Not synced by itself: the first synced commit makes it durable, in `recovered` at the
        # latest. No lease has the epoch before.
        with connections.unsynced(connection), connections.transaction(connection):
            replay(connection)
            write_layout(connection)
            writes.raise_epoch(connection)
            self._guard.attach(connection)
        self._guard.begin(connection)
        # So that the file itself says that it is open. That of a server that was killed, or has
        # passed its store, says it already, and its log is copied a moment later, when the jobs
        # that became due meanwhile have started.
        self._has_left_log = self._buffer.is_bypassed = self._guard.was_open
        if self.path is not None and not self._has_left_log:
            self._checkpoint(connection)
        assert self._waiting is not None, "each snapshot has a count"
        return self._read_snapshot(connection, self._waiting)

    def _checkpoint_if_long(self, log_bytes: int) -> None:
        # The log that the previous server left is copied by `_flush_old`, after the first reads.
        is_due = log_bytes > connections.WAL_BYTES_MAX and not self._has_left_log
        if is_due and not self._is_copied:
            self._post(self._checkpoint)

    def _flush_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._flush_timer = loop.call_later(FLUSH_PERIOD_S, self._flush_old)

    def _flush_old(self) -> None:
        """Flush old entries; most jobs of a fast stream end within a period."""
        self._flush_timer = None
        if self._buffer.end_period():
            self._post(self._buffer.flush_old)
        if self._has_left_log and not self._is_copied:
            self._has_left_log = False
            self._post(self._checkpoint)
        if self._buffer or self._has_left_log:
            self._flush_later()

    async def _shutdown(self, *, keep_log: bool) -> None:
        reader, writer = self._reader, self._writer
        self._reader = self._writer = None
        if reader is writer:
            reader = None
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        checking = [] if writer is None else [self._run(writer, self._guard.check)]
        counting = [] if self._waiting is None else [self._waiting.end()]
        closing = self._warm.close(), self._close_searcher(), *counting, *checking
        await asyncio.gather(*closing, return_exceptions=True)  # the next start reports a damage
        if self._broken is not None or keep_log:
            # The connection that closes last copies the log into the database. The reader cannot do
            # that. So it closes last, and the next start recovers from the log as it is on disk.
            reader, writer = writer, reader
        try:
            if reader is not None:
                await reader.close()
        finally:
            await self._close_last(writer, keep_log=keep_log)

    async def _close_last(self, connection: Connection | None, *, keep_log: bool) -> None:
        if connection is None:
            self._guard.end(keep_lock=keep_log)
            return
        try:
            await connection.run(partial(self._close_writer, keep_log=keep_log))
        finally:
            await connection.close()

    def _close_writer(self, connection: sqlite3.Connection, *, keep_log: bool) -> None:
        # In the connection's thread, so that the lock is held until a running commit has ended.
        try:
            if self._broken is None and not keep_log:
                with contextlib.suppress(sqlite3.Error, StoreError):  # the next start recovers then
                    self._buffer.flush(connection)
                    self._guard.detach(connection)
                    self._guard.copy_log(connection, connections.truncate_log)
            connection.close()
        finally:
            self._guard.end(keep_lock=keep_log and self._broken is None)
