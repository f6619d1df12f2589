"""The count of the waiting jobs of a snapshot, which goes on beside later commits.

A count of ten million jobs takes seconds. So it has a connection of its own, and reads inside one
transaction, which sees no later commit. The core counts those itself (core/waiting_counts.py).
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress

from schedo.core.states import State
from schedo.errors import StoreError
from schedo.store.base import Waiting
from schedo.store.sqlite import queries, reads
from schedo.store.sqlite.connection import Connection, InlineConnection

COUNTED_AT_ONCE = 10_000  # jobs: SQLite sorts them in half a MiB and a few milliseconds


class WaitingCount:
    """The count for one epoch, on a connection of its own; or at once on that of a memory store."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._epoch = 0
        self._after_s = 0.0
        self._is_fixed = False
        self._is_awaited = asyncio.Event()
        self._counting: asyncio.Future[Waiting] = asyncio.get_running_loop().create_future()

    @property
    def is_reading(self) -> bool:
        """Whether a transaction reads for it; any thread may ask."""
        return self._is_fixed and not self._counting.done()

    def fix(self) -> None:
        """Fix what is counted: the jobs that the tables have now; call it before any commit.

        The thread that writes calls it, so that no commit can come between, and nothing waits for
        another thread.
        """
        if not isinstance(self.connection, InlineConnection):
            raw = self.connection.open_here()
            raw.execute("BEGIN")
            raw.execute(queries.LAST_ID).fetchone()  # the first read fixes what all others see
            self._is_fixed = True

    async def begin(self, epoch: int, after_s: float = 0.0) -> None:
        """Count from now on; after_s: so much later, or when a request waits for it."""
        self._epoch, self._after_s = epoch, after_s
        if isinstance(self.connection, InlineConnection):
            self._counting.set_result(await _count(self.connection))
            return
        self._counting = asyncio.create_task(self._count(), name="schedo count of waiting jobs")
        self._counting.add_done_callback(_forget_error)

    async def _count(self) -> Waiting:
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._after_s):
                    await self._is_awaited.wait()
            return await _count(self.connection)
        finally:
            await self.connection.close()

    async def result(self, epoch: int) -> Waiting:
        """Return the numbers of waiting jobs; raise StoreError if they cannot be counted."""
        try:
            if epoch == self._epoch:
                self._is_awaited.set()
                return await asyncio.shield(self._counting)
            reason = "the store has recovered meanwhile"
        except sqlite3.Error as error:
            reason = str(error)
        except asyncio.CancelledError:
            if not self._counting.cancelled():
                raise
            reason = "the store is closed"
        raise StoreError(f"the waiting jobs cannot be counted: {reason}")

    async def end(self) -> None:
        """Stop the count and close its connection; harmless after its end."""
        if isinstance(self.connection, InlineConnection):
            return  # it is the store's own
        if not self._counting.done():
            self.connection.interrupt_now()
            self._counting.cancel()
            await asyncio.wait((self._counting,))
        # Here too: a task that is cancelled before its first step does not reach its `finally`.
        await self.connection.close()


def _forget_error(counting: asyncio.Future[Waiting]) -> None:
    """Mark an error as seen: `result` raises it in each caller, if there is one."""
    if not counting.cancelled():
        counting.exception()


async def _count(connection: Connection) -> Waiting:
    counts: Waiting = {}
    for queue, state, count in await connection.run(reads.fetch_all, queries.COUNTS, ()):
        counts.setdefault(queue, {})[State(state)] = count
    after: tuple[int, int, int] | None = None
    while True:
        counted, after = await connection.run(reads.count_timed, after, COUNTED_AT_ONCE)
        for queue, state, count in counted:
            by_state = counts.setdefault(queue, {})
            by_state[State(state)] = by_state.get(State(state), 0) + count
        if after is None:
            return counts
