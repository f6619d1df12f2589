"""The worker in the server's own event loop: a pool of coroutines, at most one for each slot.

The pool keeps all coroutines that it has started and reuses them; an idle coroutine costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from schedo.core.ids import render_id
from schedo.core.leases import AttemptResult, Lease, Lost, Released, StopReason, StopRequest
from schedo.core.model import LeaseKey, Options
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.engine import Engine
from schedo.tasks.progress import Progress
from schedo.tasks.runner import AttemptContext, Runner, StopSignal
from schedo.worker.progress_report import to_word
from schedo.worker.runner_faults import blame_runner, is_cancelled

log = logging.getLogger("schedo.worker")

STOP_GRACE_S = 3.0  # for a runner to end after its stop, when the grace time of a drain is over


class LocalWorker:
    """Runs the tasks of its runners; a worker and its transport to the engine."""

    def __init__(
        self,
        engine: Engine,
        worker_id: str,
        slots: int,
        runners: Mapping[str, Runner],
        *,
        task_defaults: Mapping[str, Options] | None = None,
        isolated: bool = False,
        isolated_tasks: frozenset[str] = frozenset(),
    ) -> None:
        self._engine = engine
        self._runners = dict(runners)
        self._spec = WorkerSpec(
            worker_id,
            slots,
            frozenset(runners),
            None,
            dict(task_defaults or {}),
            isolated=isolated,
            isolated_tasks=isolated_tasks & frozenset(runners),
        )
        self._pending: deque[AttemptContext] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._pool: set[asyncio.Task[None]] = set()
        self._running: dict[LeaseKey, AttemptContext] = {}
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._grace_ended = asyncio.Event()

    def attach(self, *, durable_starts: bool = False) -> None:
        """Register with the engine, which then sends leases.

        durable_starts: the engine sends a lease only when its start is on disk.
        """
        self._spec = replace(self._spec, durable_starts=durable_starts)
        self._progress = Progress(
            lambda key, update: self._engine.note_progress(to_word(key, update))
        )
        self._engine.attach(self._spec, self)

    async def drain(self, grace_s: float) -> None:
        """Take no new work, give running attempts the grace time to finish, release the rest."""
        self._engine.close_worker(self._spec.id)
        grace_ended = asyncio.create_task(self._grace_ended.wait())
        idle = asyncio.create_task(self._is_idle.wait())
        await asyncio.wait(
            (grace_ended, idle), timeout=grace_s, return_when=asyncio.FIRST_COMPLETED
        )
        grace_ended.cancel()
        for context in self._running.values():
            context.stop.set(StopReason.CANCEL)
        await asyncio.wait((idle,), timeout=STOP_GRACE_S)
        idle.cancel()
        unfinished, self._running = self._running, {}  # so that a second drain finds none
        self._is_idle.set()
        for context in unfinished.values():
            # An at_most_once job that has started must not start again.
            at_most_once = context.lease.options.at_most_once
            outcome = (
                Lost("the server ended before the attempt did") if at_most_once else Released()
            )
            self._engine.report(AttemptResult(context.lease.key, outcome))
        self._progress.close()
        for task in list(self._pool):
            task.cancel()
        await asyncio.gather(*self._pool, return_exceptions=True)

    def stop_now(self) -> None:
        """End the grace time of a drain now."""
        self._grace_ended.set()

    # Transport.

    def start(self, lease: Lease) -> None:
        """Run the attempt in an idle coroutine of the pool, or in a new one."""
        context = self._running[lease.key] = AttemptContext(
            lease, StopSignal(), self._progress.tell
        )
        self._is_idle.clear()
        self._pending.append(context)
        if len(self._pending) == 1:
            self._wake_one()

    def stop(self, stop: StopRequest) -> None:
        """Ask the attempt to stop."""
        context = self._running.get(stop.key)
        if context is not None:
            context.stop.set(stop.reason)

    # The pool.

    def _wake_one(self) -> None:
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        task = asyncio.get_running_loop().create_task(self._run_loop())
        self._pool.add(task)
        task.add_done_callback(self._pool.discard)

    async def _run_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # Each woken coroutine wakes two more while work is pending. If its runs never wait, it
            # does all the work before the others start; if they all wait, the last coroutine still
            # starts after a few rounds.
            for _ in range(min(2, len(self._pending) - 1)):
                self._wake_one()
            while self._pending:
                await self._run(self._pending.popleft())
            idle = loop.create_future()
            self._idle.append(idle)
            await idle

    async def _run(self, context: AttemptContext) -> None:
        lease = context.lease
        try:
            result = await self._runners[lease.task](context)
            if not isinstance(result, AttemptResult):
                raise TypeError(f"it returned {type(result).__name__}, not an AttemptResult")
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled():
                raise
            log.exception(
                "a bug in the runner of task %s (job %s)", lease.task, render_id(lease.key.job_id)
            )
            result = blame_runner(lease.key, error)
        if self._running.pop(lease.key, None) is None:
            return  # a drain has already reported the attempt
        self._progress.forget(lease.key)
        if not self._running:
            self._is_idle.set()
        self._engine.report(result)
