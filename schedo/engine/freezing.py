"""The freeze of an engine: another process opens the store next, and this one only ends attempts.

    serving -- freeze --> frozen -- the other process serves --> this engine drains, and stops
                            |
                            +------ the other process has died -- reopen --> serving

A frozen engine answers nothing and starts nothing. Its workers go on with their attempts. What they
report waits: `reopen` applies it, or the process that drains takes it (`take_late`) and sends it to
the new server, which has these attempts as those of a remote worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from schedo.core.commands import CompletePolls
from schedo.core.leases import Lease
from schedo.engine.bulk_runner import BulkRunner
from schedo.engine.dispatch import Transport
from schedo.engine.loop import EngineLoop
from schedo.engine.maintenance import Maintenance


class Frozen(NamedTuple):
    """What a frozen engine leaves: its last epoch, and the attempts that its workers run."""

    epoch: int
    held: list[tuple[Lease, Transport]]


class Freezing:
    """Freezes an engine and opens it again."""

    def __init__(self, loop: EngineLoop, maintenance: Maintenance, bulk: BulkRunner) -> None:
        self._loop = loop
        # Waits for the commands, results and progress that come after the freeze.
        self.take_late = loop.take_late
        self._maintenance = maintenance
        self._bulk = bulk

    @property
    def is_frozen(self) -> bool:
        """Whether the engine is frozen, or was replaced after that."""
        return self._loop.is_frozen

    def end_waits(self) -> None:
        """Let all polls and all waits for the ends of jobs respond with what there is now."""
        self._loop.enqueue(CompletePolls())
        self._loop.waiters.end_all()

    async def flush(self) -> None:
        """Return once all changes are durable, as those of a frozen engine are."""
        if not self._loop.is_frozen:
            await self._loop.flush()

    async def freeze(self, worker: str, *holds: Awaitable[object]) -> Frozen:
        """Make everything durable, release the replies, and close the store with its log and lock.

        The next server expects the running attempts from a remote worker of this name. holds: end
        when the caller takes no new requests; meanwhile the figures of the last minute are saved.
        If this raises, the engine serves on.
        """
        try:
            await asyncio.gather(self._bulk.stop(), self._maintenance.stop(), *holds)
            await self._loop.freeze(worker)
        except Exception:
            self._resume()
            raise
        self._loop.waiters.end_all()  # those that have come since; no end reaches them any more
        return Frozen(self._loop.scheduler.epoch, self._loop.dispatcher.held_here())

    async def reopen(self) -> None:
        """Open the store again under a new epoch, and serve on; an error of the store is fatal."""
        await self._loop.reopen()
        self._resume()

    def _resume(self) -> None:
        self._maintenance.start()
        self._bulk.start()
