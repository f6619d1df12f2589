"""The watch of a server over another one: a session that waits for the other's lock.

PostgreSQL grants the lock in the moment in which the session that writes ends, as it does when its
process dies. So no server asks in short intervals whether the others live. Each watches the one
with the next number, and tells all others what it finds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import asyncpg

from schedo.errors import StoreError
from schedo.store.postgres import server_numbers
from schedo.store.postgres.address import Address
from schedo.store.postgres.errors import DRIVER_ERRORS
from schedo.store.postgres.membership import Membership
from schedo.store.postgres.session import ANSWER_S, connect

log = logging.getLogger("schedo.store")
PAUSE_S = 0.5  # after the end of a session whose server lives: it gets its lock again meanwhile
IDLE_S = 0.2

_AWAIT = f"SELECT await_end({server_numbers.CLASS}, $1::int)"


class NeighbourWatch:
    """Watches one server at a time, and calls `found` when its session that writes has ended."""

    def __init__(
        self, address: Address, name: str, membership: Membership, found: Callable[[], None]
    ) -> None:
        self._address, self._name = address, name
        self._membership, self._found = membership, found
        self._connection: asyncpg.Connection | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Watch in the background."""
        self._task = asyncio.create_task(self._run(), name="schedo watch")

    async def close(self) -> None:
        """End the watch and its session."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()  # it may wait for a lock

    async def _run(self) -> None:
        while True:
            no = self._membership.find_next()
            if no is None:
                await asyncio.sleep(IDLE_S)
                continue
            try:
                if await self._has_ended(no):
                    await asyncio.sleep(PAUSE_S)
            except Exception as error:
                if not isinstance(error, (StoreError, *DRIVER_ERRORS)):  # else the control says it
                    log.exception("a bug in schedo: the watch over another server failed")
                self._drop()
                await asyncio.sleep(PAUSE_S)

    async def _has_ended(self, no: int) -> bool:
        """Wait for the end of a server for a moment; report it."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._address, self._name)
        has_ended: bool = await self._connection.fetchval(_AWAIT, no, timeout=ANSWER_S)
        if has_ended:
            self._found()
        return has_ended
