"""The store in PostgreSQL, for one server at a time."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
import socket
from collections.abc import Callable
from typing import Any, BinaryIO

import asyncpg

from schedo.core.changes import Changes
from schedo.core.loads import Load
from schedo.core.model import Job
from schedo.core.tallies import HourTallies
from schedo.errors import (
    NotFound,
    StoreBroken,
    StoreError,
    StoreLocked,
    StoreRefused,
    StoreUnsuitable,
)
from schedo.store.base import ClockMark, Retention, Snapshot, Waiting
from schedo.store.postgres import holder, loads, reads, writes
from schedo.store.postgres.address import parse_address
from schedo.store.postgres.concurrent_reads import ConcurrentReads
from schedo.store.postgres.errors import DRIVER_ERRORS, opening_error
from schedo.store.postgres.inbox import PostgresInbox
from schedo.store.postgres.membership import Membership
from schedo.store.postgres.pruning import prune
from schedo.store.postgres.schema import Migrated, migrate
from schedo.store.postgres.self_test import check_server
from schedo.store.postgres.session import Readers, Writer, close, connect
from schedo.store.postgres.tallies import add
from schedo.store.postgres.waiting_count import WaitingCount

_KEY_BYTES = 32
_SAVE_CLOCK = """
INSERT INTO meta (name, value) SELECT * FROM unnest($1::text[], $2::bigint[])
ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
_SAVE_MINUTE = """
WITH deleted AS (DELETE FROM minute WHERE at <= $1 - $3::bigint)
INSERT INTO minute (at, figures) VALUES ($1, $2)
ON CONFLICT (at) DO UPDATE SET figures = excluded.figures"""
_SAVE_KEY = "INSERT INTO secret (name, value) VALUES ('sessions', $1) ON CONFLICT DO NOTHING"
_READ_KEY = "SELECT value FROM secret WHERE name = 'sessions'"


class PostgresStore(ConcurrentReads):
    """A Store in a schema of a PostgreSQL database, which this process locks from open to close."""

    path: str | None = None

    def __init__(self, url: str) -> None:
        """url: as parse_address takes it; nothing is opened yet."""
        super().__init__(parse_address(url))
        self._name = f"schedo {socket.gethostname()} {os.getpid()}"
        self._writer: Writer | None = None
        self._waiting: WaitingCount | None = None
        self.inbox = PostgresInbox(lambda: self._require_readers().session(), self._address.schema)
        self._must_sign = False  # this server has not written yet that it ended in order
        self._closing: asyncio.Task[None] | None = None
        self.cluster = Membership(self._require_readers)

    # Life.

    async def prepare(self) -> None:
        raise StoreUnsuitable(
            "a standby waits for the lock of a file; with PostgreSQL, start the next server when"
            " the other one has ended"
        )

    async def open(self) -> Snapshot:
        assert self._writer is None, "the store is open already"
        self._closing = None
        connection = await self._claim()
        try:
            snapshot = await reads.read_snapshot(connection)
            was_killed = await holder.sign(connection, self._name, snapshot.epoch)
            # A server that ends before its recovery is durable leaves this to the next one.
            self._must_sign = not was_killed
            self._begin(connection, snapshot)
            await self.inbox.listen(connection)
            await self._begin_count(snapshot.epoch)
        except BaseException as error:
            connection.terminate()
            self._writer = None
            if isinstance(error, DRIVER_ERRORS):
                raise opening_error(error, self._address.shown) from error
            raise
        return dataclasses.replace(snapshot, was_killed=was_killed)

    async def _claim(self, own_pid: int = 0) -> asyncpg.Connection:
        """Return a session that holds the lock of the migrated store."""
        connection = await connect(self._address, self._name)
        try:
            await check_server(connection, self._address.shown)
            await holder.lock(connection, self._address, own_pid)
            await migrate(connection, self._address)
        except BaseException as error:
            connection.terminate()
            if isinstance(error, DRIVER_ERRORS):
                raise opening_error(error, self._address.shown) from error
            raise
        return connection

    def _begin(self, connection: asyncpg.Connection, snapshot: Snapshot) -> None:
        self._writer = Writer(connection, self._address.shown)
        self._readers = Readers(self._address, f"{self._name} reads")
        self._offset_us = snapshot.clock.offset_us

    async def close(self, *, keep_log: bool = False) -> None:
        # In a task of its own, so that a cancelled caller does not cancel the closing.
        if self._closing is None:
            self._closing = asyncio.create_task(self._shutdown())
        await asyncio.shield(self._closing)

    async def _shutdown(self) -> None:
        writer, self._writer = self._writer, None
        readers, self._readers = self._readers, None
        if self._waiting is not None:
            await self._waiting.end()
        if readers is not None:
            await readers.close()
        if writer is not None:
            if self._must_sign and not writer.is_lost:
                await asyncio.wait([writer.begin(holder.leave)])
            await writer.close()

    async def shorten_log(self) -> None:
        """Do nothing: PostgreSQL has the log."""

    def lock_descriptors(self) -> tuple[int, ...]:
        return ()

    def note_recovered(self) -> None:
        self._must_sign = True

    def note_leaving(self) -> None:
        if self._writer is not None:
            self._writer.begin(holder.leave)

    def bound_replay(self, is_bounded: bool) -> None:
        """Do nothing: there is nothing to replay."""

    async def check(self) -> None:
        writer = self._require_writer()
        if not writer.is_lost and not await writer.run(
            lambda connection: holder.is_locked(connection, self._address)
        ):
            raise StoreBroken(
                f"the session of this server has lost its lock on {self._address.shown}: something"
                " between the two resets sessions"
            )

    async def backup(self, now: Callable[[], int]) -> tuple[BinaryIO, int]:
        raise StoreUnsuitable(
            "a store in PostgreSQL is backed up by the tools of PostgreSQL, such as pg_dump and"
            " pg_basebackup"
        )

    async def migrate(self) -> Migrated:
        """Bring the schema of a store that is not open to the newest version."""
        connection = await connect(self._address, self._name)
        try:
            await check_server(connection, self._address.shown)
            return await migrate(connection, self._address)
        except DRIVER_ERRORS as error:
            raise opening_error(error, self._address.shown) from error
        finally:
            await close(connection)

    # Calls that run in one order with the commits.

    async def commit(self, changes: Changes) -> None:
        commit = writes.encode(changes, self._offset_us)
        statements = commit.statements()
        writer = self._require_writer()
        if not statements:
            return
        try:
            await writer.run(lambda connection: writes.run(connection, statements))
        except StoreRefused as error:
            faults = await writer.run(lambda connection: writes.find_unwritable(connection, commit))
            raise StoreRefused.of_commit(error, faults) from error

    async def snapshot(self) -> Snapshot:
        """Return a snapshot; if the session was lost, take the lock with a new one first."""
        writer = self._require_writer()
        if writer.is_lost:
            await self._reclaim(writer)
            writer = self._require_writer()
        snapshot = await writer.run(reads.read_snapshot)
        self._offset_us = snapshot.clock.offset_us
        await self._begin_count(snapshot.epoch)
        return snapshot

    async def _reclaim(self, lost: Writer) -> None:
        """Continue with a new session; raise StoreBroken if another server has the store now."""
        try:
            connection = await self._claim(lost.pid)
        except StoreLocked as error:
            raise StoreBroken(f"{error}; this server must end") from error
        if self._writer is not lost:  # it was closed meanwhile
            await close(connection)
            return
        self._writer = Writer(connection, self._address.shown)
        await self._writer.run(self.inbox.listen)

    async def _begin_count(self, epoch: int) -> None:
        if self._waiting is not None:
            await self._waiting.end()
        connection = await connect(self._address, f"{self._name} counts")
        self._waiting = WaitingCount(epoch, connection)
        await self._waiting.begin()

    async def count_waiting(self, epoch: int) -> Waiting:
        self._require_writer()
        assert self._waiting is not None, "each snapshot begins a count"
        return await self._waiting.result(epoch)

    async def save_clock(self, mark: ClockMark) -> None:
        names = [f"clock_{name}" for name in mark._fields]
        await self._require_writer().run(lambda c: c.execute(_SAVE_CLOCK, names, [*mark]))
        self._offset_us = mark.offset_us

    async def save_minute(self, at: int, figures: str, keep_us: int) -> None:
        await self._require_writer().run(lambda c: c.execute(_SAVE_MINUTE, at, figures, keep_us))

    async def add_tallies(self, tallies: HourTallies, now: int) -> None:
        await self._require_writer().run(lambda connection: add(connection, tallies, now))

    async def session_key(self) -> bytes:
        async def load_key(connection: asyncpg.Connection) -> bytes:
            await connection.execute(_SAVE_KEY, secrets.token_bytes(_KEY_BYTES))
            key: bytes = await connection.fetchval(_READ_KEY)
            return key

        return await self._require_writer().run(load_key)

    async def load(self, load: Load) -> Any:
        offset_us = self._offset_us
        return await self._require_writer().run(lambda c: loads.carry_out(c, load, offset_us))

    async def load_running(self, after: int, limit: int) -> list[Job]:
        return await self._require_writer().run(
            lambda c: reads.jobs(c, self._offset_us, reads.RUNNING, after, limit)
        )

    async def load_payload(self, job_id: int) -> bytes:
        found = await self._require_writer().run(lambda c: c.fetchrow(reads.PAYLOAD, job_id))
        if found is None:
            raise NotFound(f"job {job_id} is not in the store")
        payload: bytes = found[0]
        return payload

    async def prune(self, now: int, retention: Retention, limit: int) -> int:
        return await self._require_writer().run(lambda c: prune(c, now, retention, limit))

    def _require_writer(self) -> Writer:
        if self._writer is None:
            raise StoreError(f"the store {self._address.shown} is not open")
        return self._writer
