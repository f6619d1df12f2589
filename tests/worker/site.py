"""An engine on a real file, example_app.py in real child processes, and talk with its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from schedo.clock import SystemClock
from schedo.core.model import JobSpec, Options
from schedo.engine.engine import Engine
from schedo.protocol.jobs import SubmittedJob
from schedo.store.sqlite.store import SqliteStore
from schedo.tasks.backend import Record
from schedo.worker.engine_backend import EngineBackend
from schedo.worker.process.pool import PoolSettings, ProcessPool
from schedo.worker.process.timeouts import ChildTimeouts

TARGET = "tests.worker.example_app:app"
BRISK = ChildTimeouts(grace_s=0.2)
HASTY = ChildTimeouts(pulse_s=0.05, stalled_s=0.5, grace_s=0.2)
LONG_S = 30.0


class Site:
    """An engine on a real file with an application's child processes."""

    def __init__(
        self,
        path: Path,
        target: str,
        settings: PoolSettings,
    ) -> None:
        self.engine = Engine(SqliteStore(path / "jobs.db"), SystemClock())
        self.children = ProcessPool(self.engine, target, settings)
        self.backend = EngineBackend(self.engine)

    async def submit(self, task: str, *, options: Options | None = None, **payload: Any) -> str:
        spec = JobSpec(task, msgspec.json.encode(payload), options=options or Options())
        (ticket,) = await self.backend.submit_specs([spec])
        assert isinstance(ticket, SubmittedJob), ticket
        return ticket.id

    async def submit_together(self, *jobs: tuple[str, dict[str, Any]]) -> list[str]:
        """Submit tasks with their payloads in one commit, so that they are leased together."""
        specs = [JobSpec(task, msgspec.json.encode(payload)) for task, payload in jobs]
        tickets = await self.backend.submit_specs(specs)
        return [ticket.id for ticket in tickets if isinstance(ticket, SubmittedJob)]

    async def end(self, job_id: str) -> Record:
        record = await self.backend.wait(job_id, LONG_S)
        assert "result" in record or "error" in record or record["state"] == "cancelled", record
        return record

    async def run(self, task: str, *, options: Options | None = None, **payload: Any) -> Record:
        return await self.end(await self.submit(task, options=options, **payload))


@asynccontextmanager
async def serving(
    path: Path,
    target: str = TARGET,
    *,
    processes: int = 1,
    slots: int = 4,
    async_slots: int = 0,
    timeouts: ChildTimeouts = BRISK,
) -> AsyncIterator[Site]:
    site = Site(path, target, PoolSettings(processes, slots, async_slots, timeouts))
    await site.engine.start()
    try:
        await site.children.start()
        try:
            yield site
        finally:
            await site.children.stop(0)
    finally:
        await site.engine.stop()


async def write_to(pipe: Path, text: str) -> None:
    """Write once a handler reads."""
    async with asyncio.timeout(LONG_S):
        await asyncio.to_thread(pipe.write_text, text)


async def read_from(pipe: Path) -> str:
    """Return what a handler writes."""
    async with asyncio.timeout(LONG_S):
        return await asyncio.to_thread(pipe.read_text)
