"""What runs beside the turns: expiring, pruning, and watching whether the loop is late and the
store where it was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from schedo.engine.failures import MUST_END
from schedo.engine.health import ReadinessLog
from schedo.engine.loop import EngineLoop
from schedo.errors import SchedoError, StoreBroken
from schedo.store.base import Retention

log = logging.getLogger("schedo.engine")

SWEEP_S = 1.0
CHECK_S = 0.5  # what becomes of the store's files is noticed within a second
PRUNE_S = 30.0
PRUNE_BATCH = 500


class Maintenance:
    """Small tasks; each goes on after an error, which is logged."""

    def __init__(
        self, turns: EngineLoop, check_store: Callable[[], Awaitable[None]], retention: Retention
    ) -> None:
        self._turns = turns
        self._check_store = check_store
        self._retention = retention
        self._tasks: list[asyncio.Task[None]] = []
        self._readiness = ReadinessLog()

    def start(self) -> None:
        """Begin in the running loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._sweep_always(), name="schedo sweeper"),
            loop.create_task(self._prune_always(), name="schedo pruner"),
            loop.create_task(self._check_always(), name="schedo store checker"),
        ]

    async def stop(self) -> None:
        """End the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _sweep_always(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SWEEP_S
            await asyncio.sleep(SWEEP_S)
            watch = self._turns.monitor
            watch.rotate()
            watch.note_lag(int((loop.time() - due) * 1_000_000), watch.clock.now())
            self._readiness.note(self._turns.not_ready_reasons())
            if self._turns.failure is None:
                self._turns.enqueue(lambda scheduler, now: scheduler.expire_and_trim(now))

    async def _check_always(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.check()
            except Exception:
                log.exception("the store could not be looked at")

    async def check(self) -> None:
        """End the turns if the store is not the one that was opened any more."""
        if isinstance(self._turns.failure, MUST_END):
            return
        try:
            await self._check_store()
        except StoreBroken as error:
            self._turns.break_off(error)
        except SchedoError as error:  # it fails in another way, which a commit reports
            log.debug("the store was not looked at: %s", error)

    async def _prune_always(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_S)
            try:
                await self.prune()
            except SchedoError as error:
                log.warning("pruning was put off: %s", error)
            except Exception:
                log.exception("pruning was put off by an internal error")

    async def prune(self) -> int:
        """Delete what is past its retention, in small batches that let commits through."""
        total = 0
        while True:
            count = await self._turns.prune(self._turns.clock.now(), self._retention, PRUNE_BATCH)
            total += count
            if count < PRUNE_BATCH:
                return total
