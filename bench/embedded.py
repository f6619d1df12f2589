"""An embedded engine on a real SQLite file, with a task that notes when it starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from schedo.clock import SystemClock
from schedo.core.leases import Completed, Report
from schedo.core.model import JobSpec
from schedo.engine.engine import Engine
from schedo.store.sqlite import SqliteStore
from schedo.workers.contract import Call
from schedo.workers.local import LocalWorker


class Probe:
    """A local async task: notes its lateness in microseconds, and that it ran."""

    def __init__(self) -> None:
        self.lateness_us: list[int] = []
        self._wanted = 0
        self._done = asyncio.Event()

    async def __call__(self, call: Call) -> Report:
        self.lateness_us.append(time.time_ns() // 1000 - call.lease.scheduled_for)
        if len(self.lateness_us) == self._wanted:
            self._done.set()
        return Report(call.lease.key, Completed(b"null"))

    async def ran(self, count: int) -> None:
        """Return once it has run so often."""
        self._wanted = count
        if len(self.lateness_us) < count:
            await self._done.wait()


@asynccontextmanager
async def embedded(directory: Path, slots: int = 100) -> AsyncIterator[tuple[Engine, Probe]]:
    """A running engine whose task `probe` is run in this loop."""
    engine = Engine(SqliteStore(directory / "bench.db"), SystemClock())
    await engine.start()
    probe = Probe()
    worker = LocalWorker(engine, "bench", slots, {"probe": probe})
    worker.attach()
    try:
        yield engine, probe
    finally:
        await worker.drain(5.0)
        await engine.stop()


def probe_job(delay_us: int = 0) -> JobSpec:
    """Return a job that the probe runs."""
    return JobSpec("probe", b"{}", delay_us=delay_us)


def percentile(sorted_values: list[int], share: float) -> int:
    """Return the value below which that share of the values lies."""
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]
