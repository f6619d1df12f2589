"""The count of the jobs that waited in a snapshot, beside later commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncpg

from schedo.errors import StoreError
from schedo.store.base import Waiting
from schedo.store.postgres import snapshots
from schedo.store.postgres.errors import DRIVER_ERRORS


class WaitingCount:
    """Counts in a transaction that sees the tables as they were when it began."""

    def __init__(
        self,
        epoch: int,
        connection: asyncpg.Connection,
        shards: list[int],
        keep: Callable[[asyncpg.Connection], None],
    ) -> None:
        """connection: a session for this. shards: whose jobs are counted. keep: gets it back."""
        self._keep = keep
        self._epoch, self._connection, self._shards = epoch, connection, shards
        self._counting: asyncio.Task[Waiting] | None = None

    async def begin(self) -> None:
        """Fix what is counted: the jobs that the tables have now."""
        try:
            # The first query fixes what all others see.
            await self._connection.execute(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1"
            )
        except BaseException:
            self._connection.terminate()
            raise
        self._counting = asyncio.create_task(self._count(), name="schedo count of waiting jobs")
        self._counting.add_done_callback(_forget_error)

    async def _count(self) -> Waiting:
        try:
            counts = await snapshots.count_waiting(self._connection, self._shards)
            await self._connection.execute("COMMIT")
        except BaseException:
            self._connection.terminate()
            raise
        self._keep(self._connection)
        return counts

    async def result(self, epoch: int) -> Waiting:
        """Return the numbers of waiting jobs; raise StoreError if they cannot be counted."""
        assert self._counting is not None, "the count has begun"
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
        """Stop the count and close its session; harmless after its end."""
        if self._counting is not None and not self._counting.done():
            self._connection.terminate()
            self._counting.cancel()
            await asyncio.wait((self._counting,))


def _forget_error(counting: asyncio.Task[Waiting]) -> None:
    """Mark an error as seen: `result` raises it in each caller, if there is one."""
    if not counting.cancelled():
        counting.exception()
