"""What a waiting server prepares of its connections beside the server that holds the lock.

Two read-only connections are open. They have read the schema and the first pages, and they keep the
index of the log alive, so that the next writer need not build it from the log. They never write,
and hold no transaction. Of the connection that will write, only the thread runs.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress

from schedo.store.sqlite import reads
from schedo.store.sqlite.connection import Connection, connect_reader
from schedo.store.sqlite.schema import check_file, check_handover

Connect = Callable[[Connection], Awaitable[Connection]]
COUNT = 2  # the reader of the store, and that of its first count


class WarmConnections:
    """The connections of one file, until they are taken or closed."""

    def __init__(self) -> None:
        self._connections: list[Connection] = []
        self._writer: Connection | None = None  # not open yet
        self._file: tuple[int, int] | None = None  # its device and inode

    async def open(self, path: str, connect: Connect, writer: Connection) -> None:
        """Open the connections and read what an opening server reads; check the file's version."""
        self._writer = writer
        writer.start_thread()
        self._file = _identify(path)
        while self._file is not None and len(self._connections) < COUNT:
            connection = await connect(connect_reader(path))
            self._connections.append(connection)
            await connection.run(_read, path)

    async def keep_if_same(self, path: str) -> None:
        """Close the connections if the path names another file now."""
        if self._connections and _identify(path) != self._file:
            await self.close()

    def take(self) -> Connection | None:
        """Return one of the read-only ones, which belongs to the caller now, or None."""
        return self._connections.pop() if self._connections else None

    def take_writer(self) -> Connection | None:
        """Return the connection that will write, which belongs to the caller now, or None."""
        writer, self._writer = self._writer, None
        return writer

    async def close(self) -> None:
        """Close the connections that were not taken."""
        if (writer := self.take_writer()) is not None:
            await writer.close()
        while self._connections:
            await self._connections.pop().close()


def _identify(path: str) -> tuple[int, int] | None:
    """Return the device and the inode of the file; None if it is missing or empty."""
    with suppress(FileNotFoundError):
        found = os.stat(path)
        if found.st_size:
            return found.st_dev, found.st_ino
    return None


def _read(connection: sqlite3.Connection, path: str) -> None:
    check_file(connection, path)
    check_handover(connection, path)
    with suppress(sqlite3.OperationalError):  # an older schema, which the opening server migrates
        reads.read_snapshot(connection)
