"""The calls of a store to the threads of its two connections, and the errors that end it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from schedo.errors import StoreBroken, StoreError
from schedo.store.sqlite import connection as connections
from schedo.store.sqlite.connection import Connection
from schedo.store.sqlite.file_guard import DatabaseGuard
from schedo.store.unencodable import UNFIT

log = logging.getLogger("schedo.store")

P = ParamSpec("P")
T = TypeVar("T")


class StoreCalls:
    """Calls functions with the raw connections. After a StoreBroken, it raises that again."""

    def __init__(self, name: str, file_guard: DatabaseGuard) -> None:
        """name: the path of the file, for the texts of errors, or MEMORY."""
        self._name, self._guard = name, file_guard
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        self._broken: StoreBroken | None = None

    async def _read(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call the function in the thread of the read-only connection."""
        return await self._run(self._require_open(self._reader), function, *args, **kwargs)

    async def _run(
        self,
        connection: Connection,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call the function in the thread of the connection, after all earlier calls."""
        if self._broken is not None:
            raise type(self._broken)(*self._broken.args)

        def do(raw: sqlite3.Connection) -> T:
            self._guard.check_index()
            return function(raw, *args, **kwargs)

        try:
            return await connection.run(do)
        except (sqlite3.Error, *UNFIT) as error:
            raise self._translate_error(error) from error
        except StoreBroken as error:
            self._translate_error(error)
            raise

    async def _connect(self, connection: Connection) -> Connection:
        try:
            await connection
        except (Exception, asyncio.CancelledError) as error:
            await connection.end()
            if isinstance(error, (sqlite3.Error, *UNFIT)):
                raise self._translate_error(error) from error
            raise
        return connection

    def _require_open(self, connection: Connection | None) -> Connection:
        if connection is None:
            raise StoreError(f"the store {self._name} is not open")
        return connection

    def _translate_error(self, error: Exception) -> StoreError:
        meaning = connections.store_error(error, self._name)
        if isinstance(meaning, StoreBroken):
            self._broken = meaning
        return meaning

    def _post(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Run the function after all earlier calls, without waiting for it."""

        def run(connection: sqlite3.Connection) -> None:
            if self._broken is None:
                try:
                    self._guard.check_index()
                    function(connection, *args, **kwargs)
                except (sqlite3.Error, StoreError, *UNFIT) as error:
                    # The next commit meets a full disk or a lock again, and reports it.
                    log.warning(
                        "writing to the tables is postponed: %s", self._translate_error(error)
                    )

        if self._writer is not None:
            self._writer.post(run)
