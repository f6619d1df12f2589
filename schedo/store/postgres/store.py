"""The store in PostgreSQL, which several servers share."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import secrets
import socket
from collections.abc import Callable
from copy import copy
from typing import Any, BinaryIO

import asyncpg

from schedo.core.changes import Changes
from schedo.core.limits import FAILOVER_TIMEOUT_US
from schedo.core.loads import Load
from schedo.core.model import Job
from schedo.core.tallies import HourTallies
from schedo.errors import (
    NotFound,
    StoreBroken,
    StoreError,
    StoreUnsuitable,
)
from schedo.store.base import ClockMark, Retention, Snapshot, Waiting
from schedo.store.postgres import loads, minutes, reads, server_numbers, writes
from schedo.store.postgres.address import parse_address
from schedo.store.postgres.concurrent_reads import ConcurrentReads
from schedo.store.postgres.control import Control
from schedo.store.postgres.errors import DRIVER_ERRORS, opening_error
from schedo.store.postgres.inbox import PostgresInbox
from schedo.store.postgres.membership import Membership
from schedo.store.postgres.moves import give
from schedo.store.postgres.owned import Owned
from schedo.store.postgres.pruning import prune
from schedo.store.postgres.queue_shares import QueueShares
from schedo.store.postgres.replica import Replica
from schedo.store.postgres.schema import Migrated, migrate
from schedo.store.postgres.self_test import check_rights, check_server, check_sight
from schedo.store.postgres.session import (
    PLAN_ONCE,
    Readers,
    Writer,
    close,
    connect,
    ending_on_error,
)
from schedo.store.postgres.snapshots import OFFSET, clock_names, read_snapshot
from schedo.store.postgres.tallies import add
from schedo.store.postgres.waiting_count import WaitingCount

_KEY_BYTES = 32
_SAVE_CLOCK = """
INSERT INTO meta (name, value) SELECT * FROM unnest($1::text[], $2::bigint[])
ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
_SAVE_KEY = "INSERT INTO secret (name, value) VALUES ('sessions', $1) ON CONFLICT DO NOTHING"
_READ_KEY = "SELECT value FROM secret WHERE name = 'sessions'"

log = logging.getLogger("schedo.store")

_OPENS_MAX = 5  # that others may end, before the start fails


class _Ended(StoreError):
    """The session that writes was ended while the store was opened."""


class PostgresStore(ConcurrentReads):
    """A Store in a schema of a PostgreSQL database; each server writes what its shards have."""

    path: str | None = None

    def __init__(
        self,
        url: str,
        failover_timeout_us: int = FAILOVER_TIMEOUT_US,
        read_url: str | None = None,
    ) -> None:
        """url: as parse_address takes it; nothing is opened yet.

        failover_timeout_us: after so long without a heartbeat, other servers take its shards.
        read_url: of a standby, from which lists and searches are read.
        """
        super().__init__(parse_address(url))
        process = f"{socket.gethostname()} {os.getpid()}"
        self._name = f"schedo {process}"
        self._writer: Writer | None = None
        self._waiting: WaitingCount | None = None
        self.inbox = PostgresInbox(lambda: self._require_readers().session(), self._address.schema)
        self._must_sign = False  # this server has not written yet that it ended in order
        self._closing: asyncio.Task[None] | None = None
        self._read_url = read_url
        self.cluster = Membership(process, failover_timeout_us, self._require_readers)
        self.cluster.is_writing = self._is_writing
        self.cluster.give, self.cluster.sign = self._give, self._sign
        self.cluster.adopt_minutes = self._adopt_minutes
        self.cluster.limits = QueueShares(
            self._require_writer, lambda: self._owned, lambda: self.cluster.settings
        )
        self._control = Control(self._address, self._name, self.cluster)
        self._control.find_writer = lambda: self._writer
        self.cluster.tell = self._control.tell

    # Life.

    async def prepare(self) -> None:
        raise StoreUnsuitable(
            "a standby waits for the lock of a file; with PostgreSQL, start another server: the two"
            " share the work, and each takes over the jobs of the other one when that dies"
        )

    async def open(self) -> Snapshot:
        assert self._writer is None, "the store is open already"
        self._closing = None
        for _ in range(_OPENS_MAX):
            try:
                return await self._open()
            except _Ended as error:
                log.warning("%s while the server starts: it tries again", error)
        return await self._open()

    async def _open(self) -> Snapshot:
        connection = await self._connect_writer()
        try:
            await check_sight(connection, self._address.shown)
            if self._read_url is not None:  # before the others expect heartbeats
                signed = self.cluster.signed
                self._replica = Replica(self._read_url, self._name, self._require_readers, signed)
                await self._replica.open(connection)
            no = await server_numbers.take_number(connection, self._address)
            was_killed = await server_numbers.enter(connection, no)
            # A server that ends before its recovery is durable leaves this to the next one.
            self._must_sign = not was_killed
            await self._control.connect()
            self._writer = Writer(connection, self._address.shown)
            self._readers = Readers(
                self._address, f"{self._name} reads", is_silent=self.cluster.is_silent
            )
            await self._writer.run(self.inbox.listen)
            snapshot = await self._adopt(no)
            await self._control.begin()
        except BaseException as error:
            # A start that takes long on a busy machine looks like a dead server to the others.
            was_ended = isinstance(error, StoreError) and self._writer is not None
            was_ended = was_ended and connection.is_closed()
            connection.terminate()
            self._writer = None
            await self._close_readers()
            await self._control.close()
            if was_ended:
                raise _Ended(str(error)) from error
            if isinstance(error, DRIVER_ERRORS):
                raise opening_error(error, self._address.shown) from error
            raise
        return dataclasses.replace(snapshot, was_killed=was_killed)

    async def _connect_writer(self) -> asyncpg.Connection:
        """Return a session of the migrated store."""
        connection = await connect(self._address, self._name)
        with ending_on_error(connection, self._address):
            await check_server(connection, self._address.shown)
            await migrate(connection, self._address)
            await check_rights(connection, self._address.shown)
            await connection.execute(PLAN_ONCE)
        return connection

    async def _adopt(self, no: int) -> Snapshot:
        """Return a snapshot of the shards that the server with the number owns at this moment."""
        writer, known = self._require_writer(), self.cluster.newest_epoch()
        found = await writer.run(lambda connection: read_snapshot(connection, no, known))
        self.cluster.begin(no, found.snapshot.epoch)
        self._owned = Owned(no, found.shards, found.snapshot.queues)
        self.inbox.own(found.shards)
        self._offset_us = found.snapshot.clock.offset_us
        await self._begin_count(found.snapshot.epoch)
        if not writer.is_signed:  # it is new
            await writer.run(writes.rehearse)
        self.cluster.own(self._owned, found.settings)
        if not writer.is_signed and (found.shards or not self.cluster.is_joining):
            await self._sign()
        return found.snapshot

    async def _sign(self) -> None:
        """Let others judge this server by its heartbeats from now on, and give it shards."""
        cluster, writer = self.cluster, self._require_writer()
        cluster.is_joining = False
        pids = writer.pid, self._control.pid
        signature = server_numbers.Signature(cluster.timeout_us, cluster.settings, *pids)
        await writer.run(lambda c: server_numbers.sign(c, cluster.note_signing(), signature))
        writer.is_signed = True

    def _is_writing(self) -> bool:
        return self._writer is not None and not self._writer.is_lost

    async def _give(self, moves: dict[int, int]) -> set[int]:
        owned = self._owned
        with_runs = not self.cluster.keeps_runs
        given = await self._require_writer().run(
            lambda c: give(c, owned, moves, with_runs=with_runs)
        )
        await self._control.notify()
        return given

    async def close(self, *, keep_log: bool = False) -> None:
        # In a task of its own, so that a cancelled caller does not cancel the closing.
        if self._closing is None:
            self._closing = asyncio.create_task(self._shutdown())
        await asyncio.shield(self._closing)

    async def _shutdown(self) -> None:
        writer, self._writer = self._writer, None
        await self._close_readers()
        if writer is not None:
            if self._must_sign and not writer.is_lost:
                await writer.end(self._end_in_order)
                await self._control.notify()
            await self._control.close()
            await writer.close()

    async def _close_readers(self) -> None:
        readers, self._readers = self._readers, None
        replica, self._replica = self._replica, None
        if self._waiting is not None:
            await self._waiting.end()
        if replica is not None:
            await replica.close()
        if readers is not None:
            await readers.close()

    async def _end_in_order(self, connection: asyncpg.Connection) -> None:
        await server_numbers.release(connection, self._owned.no)
        await server_numbers.leave(connection, self._owned.no)

    async def shorten_log(self) -> None:
        """Do nothing: PostgreSQL has the log."""

    def lock_descriptors(self) -> tuple[int, ...]:
        return ()

    async def recovered(self) -> None:
        self._must_sign = True

    def note_leaving(self) -> None:
        if self._writer is not None:
            no = self._owned.no
            self._writer.begin(lambda connection: server_numbers.leave(connection, no))

    def bound_replay(self, is_bounded: bool) -> None:
        """Do nothing: there is nothing to replay."""

    async def check(self) -> None:
        writer = self._require_writer()
        if not writer.is_lost and not await writer.run(
            lambda connection: server_numbers.is_locked(connection, self._owned.no)
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
        owned, writer = self._owned, self._require_writer()
        commit = writes.encode(changes, self._offset_us, owned)
        has_settings = writes.has_settings(changes)
        queues = [*map(copy, changes.queues.values())]
        await writes.carry_out(writer, commit, self.inbox.leave_held)
        if has_settings:
            owned.note_queues(queues)
            await self._follow_settings(writer)

    async def _follow_settings(self, writer: Writer) -> None:
        """Note the version of the queues, pauses and cordons that this server has just stored."""
        version = await writer.run(lambda connection: connection.fetchval(writes.SETTINGS))
        if self.cluster.note_settings(version):
            await writer.run(lambda c: server_numbers.follow(c, self._owned.no, version))
        await self._control.notify()

    async def snapshot(self) -> Snapshot:
        """Return a snapshot; if the session was lost, take a lock with a new one first.

        By then, other servers may have taken shards of this one.
        """
        writer = self._require_writer()
        return await self._adopt(await self._reclaim(writer) if writer.is_lost else self._owned.no)

    async def _reclaim(self, lost: Writer) -> int:
        """Continue with a new session; return the number of this server from now on."""
        connection = await self._connect_writer()
        with ending_on_error(connection, self._address):
            no = self._owned.no
            if not await server_numbers.lock_again(connection, no, lost.pid):
                no = await server_numbers.take_number(connection, self._address)
                await server_numbers.enter(connection, no)
                self._owned = Owned(no)  # no shards yet: the snapshot that follows may fail
        if self._writer is not lost:  # it was closed meanwhile
            await close(connection)
            return no
        self._writer = Writer(connection, self._address.shown)
        self._require_readers().drop_idle()  # they may be as lost, and not know it
        await self._writer.run(self.inbox.listen)
        return no

    async def _begin_count(self, epoch: int) -> None:
        if self._waiting is not None:
            await self._waiting.end()
        self._waiting, readers = None, self._require_readers()
        waiting = WaitingCount(epoch, await readers.take(), self._owned.shards, readers.put_back)
        await waiting.begin()
        self._waiting = waiting

    async def count_waiting(self, epoch: int) -> Waiting:
        self._require_writer()
        if self._waiting is None:
            raise StoreError("the waiting jobs cannot be counted: the store recovers")
        return await self._waiting.result(epoch)

    async def save_clock(self, mark: ClockMark) -> None:
        values = dict(zip(clock_names(self._owned.no), mark, strict=True))
        if mark.offset_us != self._offset_us:
            values[OFFSET] = mark.offset_us
        await self._require_writer().run(
            lambda c: c.execute(_SAVE_CLOCK, [*values], [*values.values()])
        )
        self._offset_us = mark.offset_us

    async def save_minute(self, at: int, figures: str, keep_us: int) -> None:
        minute = self._owned.no, at, figures, keep_us
        await self._require_writer().run(lambda c: minutes.save_minute(c, *minute))

    async def _adopt_minutes(self) -> list[tuple[int, str]]:
        return await self._require_writer().run(lambda c: minutes.adopt_minutes(c, self._owned.no))

    async def add_tallies(self, tallies: HourTallies, now: int, batch: int) -> None:
        mark = self.cluster.first_epoch, batch
        await self._require_writer().run(lambda c: add(c, tallies, now, mark))

    async def session_key(self) -> bytes:
        async with self._require_readers().session() as session:
            await session.execute(_SAVE_KEY, secrets.token_bytes(_KEY_BYTES))
            key: bytes = await session.fetchval(_READ_KEY)
            return key

    async def load(self, load: Load) -> Any:
        offset_us = self._offset_us
        return await self._require_writer().run(
            lambda c: loads.carry_out(c, load, offset_us, self._owned.shards)
        )

    async def load_running(self, after: int, limit: int) -> list[Job]:
        return await self._require_writer().run(
            lambda c: reads.jobs(
                c, self._offset_us, reads.RUNNING, after, limit, self._owned.shards
            )
        )

    async def load_payload(self, job_id: int) -> bytes:
        found = await self._require_writer().run(lambda c: c.fetchrow(reads.PAYLOAD, job_id))
        if found is None:
            raise NotFound(f"job {job_id} is not in the store")
        payload: bytes = found[0]
        return payload

    async def prune(self, now: int, retention: Retention, limit: int) -> int:
        return await self._require_writer().run(
            lambda c: prune(c, now, retention, limit, self._owned)
        )

    def _require_writer(self) -> Writer:
        if self._writer is None:
            raise StoreError(f"the store {self._address.shown} is not open")
        return self._writer
