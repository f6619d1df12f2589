"""The count of the jobs that waited in a snapshot, beside later commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import asyncpg

from schedo.errors import StoreError
from schedo.store.base import Waiting
from schedo.store.postgres import snapshots
from schedo.store.postgres.errors import DRIVER_ERRORS

# The first moments after a take-over belong to the jobs that became due meanwhile.
AFTER_S = 0.1
END_S = 0.2  # for the end of its transaction: a recovery waits for it, and so does a close


class WaitingCount:
    """Counts in a transaction that sees the tables as they were when it began."""

    def __init__(
        self,
        epoch: int,
        connection: asyncpg.Connection,
        shards: list[int],
        keep: Callable[[asyncpg.Connection], None],
    ) -> None:
        """connection: a session for this. shards: whose jobs are counted. keep: gets it back.

        The count begins AFTER_S after `begin`, or when a request waits for it.
        """
        self._keep = keep
        self._epoch, self._connection, self._shards = epoch, connection, shards
        self._counting: asyncio.Task[Waiting] | None = None
        self._is_awaited = asyncio.Event()
        self._has_ended = self._is_running = False

    async def begin(self) -> None:
        """Fix what is counted: the jobs that the tables have now. Raise StoreError."""
        try:
            # The first query fixes what all others see.
            await self._connection.execute(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1"
            )
        except BaseException as error:
            self._connection.terminate()
            if isinstance(error, DRIVER_ERRORS):
                raise StoreError(f"the waiting jobs cannot be counted: {error}") from error
            raise
        self._counting = asyncio.create_task(self._count(), name="schedo count of waiting jobs")
        self._counting.add_done_callback(_forget_error)

    async def _count(self) -> Waiting:
        counts: Waiting = {}
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(AFTER_S):
                    await self._is_awaited.wait()
            if not self._has_ended:
                self._is_running = True
                counts = await snapshots.count_waiting(self._connection, self._shards)
            await self._connection.execute("COMMIT")
        except BaseException:
            self._connection.terminate()
            raise
        self._keep(self._connection)
        if self._has_ended:
            raise asyncio.CancelledError
        return counts

    async def result(self, epoch: int) -> Waiting:
        """Return the numbers of waiting jobs; raise StoreError if they cannot be counted."""
        assert self._counting is not None, "the count has begun"
        self._is_awaited.set()
        try:
            if epoch == self._epoch:
                return await asyncio.shield(self._counting)
            reason = "the store has recovered meanwhile"
        except DRIVER_ERRORS as error:
            reason = str(error)
        except asyncio.CancelledError:
            if not self._counting.cancelled():
                raise
            reason = "the store is closed"
        raise StoreError(f"the waiting jobs cannot be counted: {reason}")

    async def end(self) -> None:
        """Stop the count; harmless after its end.

        The session is closed if it counts already, or does not respond.
        """
        if self._counting is not None and not self._counting.done():
            self._has_ended = True
            self._is_awaited.set()
            if not self._is_running:
                await asyncio.wait((self._counting,), timeout=END_S)
            if not self._counting.done():
                self._connection.terminate()
                self._counting.cancel()
                await asyncio.wait((self._counting,))


def _forget_error(counting: asyncio.Task[Waiting]) -> None:
    """Mark an error as seen: `result` raises it in each caller, if there is one."""
    if not counting.cancelled():
        counting.exception()
