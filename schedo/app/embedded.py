"""A whole schedo inside the program: store, engine and a worker for the application's tasks.

Only the application's own tasks run here; the built-in ones belong to `schedo serve`.

A handler can end this whole process. What ran then is suspect: one attempt alone is charged with a
loss; of several none is charged, and each runs again in a place for one at a time. So that the next
process knows what ran, starts of suspects are on disk before they begin, and after the death of a
process those of all others are, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

from schedo.clock import SystemClock
from schedo.engine.engine import Engine
from schedo.engine.worker_session import EMBEDDED, EMBEDDED_ALONE
from schedo.store import open_store
from schedo.tasks.backend import Backend
from schedo.tasks.python import TaskRunner
from schedo.tasks.registry import Registry
from schedo.worker.engine_backend import EngineBackend
from schedo.worker.in_process import LocalWorker


class EmbeddedServer:
    """Runs from start to stop, in the running event loop."""

    def __init__(self, store: str, registry: Registry, concurrency: int) -> None:
        self._registry = registry
        self._threads = ThreadPoolExecutor(concurrency + 1, thread_name_prefix="schedo")
        self.engine = Engine(open_store(store), SystemClock())
        runners = {n: TaskRunner(task, self._threads) for n, task in registry.tasks.items()}
        defaults = registry.task_defaults()
        self._worker = LocalWorker(
            self.engine, EMBEDDED, concurrency, runners, task_defaults=defaults
        )
        self._suspects = LocalWorker(
            self.engine, EMBEDDED_ALONE, 1, runners, task_defaults=defaults, isolated=True
        )
        self.desk: Backend = EngineBackend(self.engine)

    async def start(self) -> None:
        """Take the store, put the schedules, and begin; raise StoreLocked if another has it."""
        async with contextlib.AsyncExitStack() as undo:
            undo.callback(self._threads.shutdown, wait=False)
            await self.engine.start()
            undo.push_async_callback(self.engine.stop)
            self._worker.attach(durable_starts=self.engine.was_killed)
            self._suspects.attach(durable_starts=True)
            for schedule in self._registry.schedules.values():
                await self.engine.put_schedule(schedule)
            undo.pop_all()

    async def stop(self, grace_s: float) -> None:
        """Let running attempts finish within the grace time; hand back the rest, uncounted."""
        self.engine.note_leaving()
        try:
            await asyncio.gather(self._worker.drain(grace_s), self._suspects.drain(grace_s))
        finally:
            await self.engine.stop()
            self._threads.shutdown(wait=False, cancel_futures=True)
