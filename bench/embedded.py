"""An embedded engine on a real SQLite file, with a task that records when it starts."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from schedo.clock import SystemClock
from schedo.core.leases import AttemptResult, Completed
from schedo.core.model import JobSpec
from schedo.engine.engine import Engine
from schedo.store.sqlite.store import SqliteStore
from schedo.tasks.runner import AttemptContext, Runner
from schedo.worker.in_process import LocalWorker

BATCH = 1_000
HEAD_START_US = 500_000


class Probe:
    """A local async task that records its lateness in microseconds and the runs of each job."""

    def __init__(self) -> None:
        self.lateness_us: list[int] = []
        self.started_at = 0  # of the last run
        self.runs: Counter[int] = Counter()
        self._wanted = 0
        self._done = asyncio.Event()

    async def __call__(self, context: AttemptContext) -> AttemptResult:
        self.started_at = time.time_ns() // 1000
        self.lateness_us.append(self.started_at - context.lease.scheduled_for)
        self.runs[context.lease.key.job_id] += 1
        if len(self.lateness_us) == self._wanted:
            self._done.set()
        return AttemptResult(context.lease.key, Completed(b"null"))

    async def ran(self, count: int) -> None:
        """Return once the task has run `count` times."""
        self._done.clear()
        self._wanted = count
        if len(self.lateness_us) < count:
            await self._done.wait()


@asynccontextmanager
async def embedded(
    path: Path, slots: int = 100, runners: Mapping[str, Runner] | None = None
) -> AsyncIterator[tuple[Engine, Probe]]:
    """Run an engine on the file; it runs the task `probe` and the given tasks in this loop."""
    engine = Engine(SqliteStore(path), SystemClock())
    await engine.start()
    probe = Probe()
    worker = LocalWorker(engine, "bench", slots, {"probe": probe, **(runners or {})})
    worker.attach()
    try:
        yield engine, probe
    finally:
        await worker.drain(5.0)
        await engine.stop()


def probe_job(run_at: int | None = None) -> JobSpec:
    """Return the spec of a job for the probe."""
    return JobSpec("probe", b"{}", run_at=run_at)


async def fire(path: Path, offsets_us: Sequence[int]) -> list[int]:
    """Run a job at each offset from a common start; return the lateness of each in microseconds.

    All are submitted before the first is due, as durable jobs; the commits of starts and ends go
    on beside the firing.
    """
    async with embedded(path) as (engine, probe):
        start = engine.clock.now() + HEAD_START_US + 100 * len(offsets_us)
        for first in range(0, len(offsets_us), BATCH):
            part = offsets_us[first : first + BATCH]
            await engine.submit([probe_job(start + at) for at in part], view=lambda job: job.id)
        assert engine.clock.now() < start, "all jobs are submitted ahead"
        await probe.ran(len(offsets_us))
        assert len(probe.runs) == len(offsets_us), "every job ran once"
        return probe.lateness_us


async def complete(path: Path, count: int, batch: int, in_flight: int) -> float:
    """Submit jobs in batches; once all ends are durable, return the number of jobs a second."""
    async with embedded(path) as (engine, probe):
        specs = [probe_job()] * batch
        left = iter(range(0, count, batch))

        async def submit() -> None:
            for at in left:
                await engine.submit(specs[: count - at], view=lambda job: job.id)

        began = time.perf_counter()
        await asyncio.gather(*(submit() for _ in range(in_flight)))
        await probe.ran(count)
        await engine.flush()
        elapsed = time.perf_counter() - began
        assert len(probe.runs) == count, "every job ran once"
        return count / elapsed
