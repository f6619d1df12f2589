"""The snapshots of a store. Each has a count of the waiting jobs, which goes on behind it."""

from __future__ import annotations

import asyncio
import sqlite3

from schedo.store.base import Snapshot, Waiting
from schedo.store.sqlite import connection as connections
from schedo.store.sqlite import reads
from schedo.store.sqlite.buffer_bounds import FLUSH_PERIOD_S
from schedo.store.sqlite.connection import Connection
from schedo.store.sqlite.file_guard import DatabaseGuard
from schedo.store.sqlite.read_connection import ConcurrentReads
from schedo.store.sqlite.waiting_count import WaitingCount
from schedo.store.sqlite.warm_connections import WarmConnections


class Snapshots(ConcurrentReads):
    """The part of a store that reads snapshots and counts the waiting jobs."""

    path: str | None

    def __init__(self, name: str, file_guard: DatabaseGuard) -> None:
        super().__init__(name, file_guard)
        self._waiting: WaitingCount | None = None
        self._warm = WarmConnections()
        self._has_left_log = False  # of the previous server, which is not copied yet

    def _make_count(self, writer: Connection) -> WaitingCount:
        """Return the count of the next snapshot; the store's own stays until that is read."""
        return WaitingCount(writer if self.path is None else self._take_reader(self.path))

    def _raise_epoch(self, connection: sqlite3.Connection) -> None:
        """Drop what is not durable, and begin the next epoch."""
        raise NotImplementedError

    async def snapshot(self) -> Snapshot:
        writer = self._require_open(self._writer)
        count = self._make_count(writer)

        def read(connection: sqlite3.Connection) -> Snapshot:
            self._raise_epoch(connection)
            return self._read_snapshot(connection, count)

        try:
            snapshot = await self._run(writer, read)
        except (Exception, asyncio.CancelledError):
            await count.end()
            raise
        last, self._waiting = self._waiting, count
        if last is not None:
            await last.end()
        self._offset_us = snapshot.clock.offset_us
        await self._begin_count(snapshot.epoch)
        return snapshot

    @staticmethod
    def _read_snapshot(connection: sqlite3.Connection, count: WaitingCount) -> Snapshot:
        """Read the snapshot, and fix what is counted for it: no commit comes between the two."""
        count.fix()
        return reads.read_snapshot(connection)

    async def _begin_count(self, epoch: int) -> None:
        assert self._waiting is not None, "each snapshot has a count"
        await self._connect(self._waiting.connection)
        # In a take-over the first moments belong to the jobs that became due meanwhile.
        await self._waiting.begin(epoch, FLUSH_PERIOD_S if self._has_left_log else 0.0)

    def _take_reader(self, path: str) -> Connection:
        return self._warm.take() or connections.connect_reader(path)

    async def count_waiting(self, epoch: int) -> Waiting:
        self._require_open(self._writer)
        assert self._waiting is not None, "each snapshot has a count"
        return await self._waiting.result(epoch)
