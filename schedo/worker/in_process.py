"""The worker in the server's own process; its connection to the engine is function calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from schedo.core.built_in import find_isolated
from schedo.core.leases import AttemptResult, Lease, StopRequest
from schedo.core.model import LeaseKey, Options
from schedo.core.progress import ProgressUpdate
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.engine import Engine
from schedo.tasks.python import TaskRunner
from schedo.tasks.runner import Runner
from schedo.worker.engine_backend import note_progress
from schedo.worker.executor import Executor


class LocalWorker:
    """Runs the tasks of its runners; a worker and its transport to the engine."""

    def __init__(
        self,
        engine: Engine,
        worker_id: str,
        slots: int,
        runners: Mapping[str, Runner | TaskRunner],
        *,
        task_defaults: Mapping[str, Options] | None = None,
        isolated: bool = False,
    ) -> None:
        self._engine = engine
        # Reports how an attempt ended.
        self.send_result: Callable[[AttemptResult], None] = engine.report
        # A process may have been stopped since the engine sent the lease.
        self._executor = Executor(runners, self, may_start=engine.sessions.may_start)
        # Runs the attempt; a call of the engine, see engine.dispatch.Transport.
        self.start: Callable[[Lease], object] = self._executor.start
        self._spec = WorkerSpec(
            worker_id,
            slots,
            frozenset(runners),
            None,
            dict(task_defaults or {}),
            isolated=isolated,
            isolated_tasks=find_isolated(runners),
        )

    def attach(self, *, durable_starts: bool = False) -> None:
        """Register with the engine, which then sends leases.

        durable_starts: the engine sends a lease only when its start is on disk.
        """
        self._spec = replace(self._spec, durable_starts=durable_starts)
        self._engine.attach(self._spec, self)

    def hold(self) -> None:
        """Take no new work until the next attach(); running attempts continue."""
        self._engine.attach(replace(self._spec, slots=0), self)

    async def drain(self, grace_s: float | None) -> None:
        """Take no new work, give running attempts the grace time to finish, stop the rest."""
        self._engine.close_worker(self._spec.id)
        await self._executor.drain(grace_s)
        await self._executor.close()

    async def close(self) -> None:
        """Take no new work, and stop at once what still runs, after a drain that was cancelled."""
        self._engine.close_worker(self._spec.id)
        await self._executor.close()

    def stop_now(self) -> None:
        """End the grace time of a drain now."""
        self._executor.stop_now()

    # The calls of the engine (engine.dispatch.Transport).

    def stop(self, stop: StopRequest) -> None:
        """Request the attempt to stop."""
        self._executor.stop(stop.key, stop.reason)

    # The executor's side.

    def send_progress(self, key: LeaseKey, update: ProgressUpdate) -> None:
        """Report the progress of a running attempt."""
        note_progress(self._engine, key, update)
