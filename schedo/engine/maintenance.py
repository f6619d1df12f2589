"""The engine's periodic tasks: expiring and pruning jobs, and checks of the loop and the store."""

from __future__ import annotations

import asyncio
import logging

from schedo.core.commands import ExpireAndTrim
from schedo.engine.failures import MUST_END
from schedo.engine.health import ReadinessLog
from schedo.engine.loop import EngineLoop
from schedo.engine.series import Recorder
from schedo.engine.unserved_log import UnservedLog
from schedo.errors import SchedoError, StoreBroken
from schedo.store.base import Retention, Store

log = logging.getLogger("schedo.engine")

SWEEP_S = 1.0
CHECK_S = 0.5  # a change of the store's files is noticed within a second
PRUNE_S = 30.0


class Maintenance:
    """Periodic tasks; each of them logs an error and continues."""

    def __init__(self, loop: EngineLoop, store: Store, retention: Retention) -> None:
        self._loop = loop
        self._check_store = store.check
        self.recorder = Recorder(loop, store)
        self.retention = retention
        self._tasks: list[asyncio.Task[None]] = []
        self._readiness = ReadinessLog()
        self._unserved = UnservedLog()

    def start(self) -> None:
        """Start the tasks in the running event loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._sweep_loop(), name="schedo sweeper"),
            loop.create_task(self._prune_loop(), name="schedo pruner"),
            loop.create_task(self._check_loop(), name="schedo store checker"),
            loop.create_task(self.recorder.run(), name="schedo recorder"),
        ]

    async def stop(self) -> None:
        """Cancel the tasks, and save the last part of the series."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.recorder.stop()

    async def _sweep_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SWEEP_S
            await asyncio.sleep(SWEEP_S)
            try:
                self._sweep(loop.time(), late_s=loop.time() - due)
            except Exception:
                log.exception("a sweep failed")

    def _sweep(self, now_s: float, late_s: float) -> None:
        monitor = self._loop.monitor
        monitor.swept(int(late_s * 1_000_000))
        self._readiness.note(self._loop.not_ready_reasons())
        self._loop.notes.failure_log.end_windows(monitor.clock.now())
        self._loop.waiters.dropped.evict(now_s)
        if self._loop.failure is None:
            self._unserved.note(self._loop.unserved, now_s)
            self._loop.enqueue(ExpireAndTrim())

    async def _check_loop(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.check()
            except Exception:
                log.exception("the check of the store failed")

    async def check(self) -> None:
        """Stop the engine if its store was moved, replaced or removed."""
        if isinstance(self._loop.failure, MUST_END):
            return
        try:
            await self._check_store()
        except StoreBroken as error:
            self._loop.fail_and_recover(error)
        except SchedoError as error:  # the next commit reports it
            log.debug("the check of the store failed: %s", error)

    async def _prune_loop(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_S)
            try:
                await self.prune()
            except SchedoError as error:
                log.warning("pruning is postponed: %s", error)
            except Exception:
                log.exception("pruning is postponed after an internal error")

    async def prune(self) -> int:
        """Delete jobs past their retention, and give free pages back; see Committer.prune."""
        return await self._loop.prune(self.retention)
