"""The worker in the server's own loop: a pool of coroutines fed through a channel.

As many coroutines as ever ran at once, at most one a slot, are kept and reused; an idle one costs
nothing.
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

STOP_GRACE_S = 3.0  # beyond the grace, for a runner that was asked to stop


class LocalWorker:
    """Runs the tasks it was given runners for; a transport of the engine."""

    def __init__(
        self,
        engine: Engine,
        worker_id: str,
        slots: int,
        runners: Mapping[str, Runner],
        *,
        task_defaults: Mapping[str, Options] | None = None,
        alone: bool = False,
        isolated_tasks: frozenset[str] = frozenset(),
    ) -> None:
        self._engine = engine
        self._runners = dict(runners)
        self._offer = WorkerSpec(
            worker_id,
            slots,
            frozenset(runners),
            None,
            dict(task_defaults or {}),
            isolated=alone,
            isolated_tasks=isolated_tasks & frozenset(runners),
        )
        self._waiting: deque[AttemptContext] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._pool: set[asyncio.Task[None]] = set()
        self._running: dict[LeaseKey, AttemptContext] = {}
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._hurried = asyncio.Event()

    def attach(self, *, durable_starts: bool = False) -> None:
        """Let the engine give work, at once or when the start is on disk."""
        self._offer = replace(self._offer, durable_starts=durable_starts)
        self._progress = Progress(lambda key, said: self._engine.note_progress(to_word(key, said)))
        self._engine.attach(self._offer, self)

    async def drain(self, grace_s: float) -> None:
        """Take no more, let what runs end within the grace time, hand the rest back."""
        self._engine.close_worker(self._offer.id)
        hurry = asyncio.create_task(self._hurried.wait())
        quiet = asyncio.create_task(self._is_idle.wait())
        await asyncio.wait((hurry, quiet), timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        for call in self._running.values():
            call.stop.set(StopReason.CANCEL)
        await asyncio.wait((quiet,), timeout=STOP_GRACE_S)
        quiet.cancel()
        left, self._running = self._running, {}  # a second drain finds nothing
        self._is_idle.set()
        for call in left.values():
            # What has begun and runs at most once must not begin again.
            once = call.lease.options.at_most_once
            outcome = Lost("it did not end before the server did") if once else Released()
            self._engine.report(AttemptResult(call.lease.key, outcome))
        self._progress.close()
        for task in list(self._pool):
            task.cancel()
        await asyncio.gather(*self._pool, return_exceptions=True)

    def stop_now(self) -> None:
        """Cut the grace of a drain short."""
        self._hurried.set()

    # Transport.

    def start(self, lease: Lease) -> None:
        """Run the attempt in an idle coroutine of the pool, or in a new one."""
        call = self._running[lease.key] = AttemptContext(lease, StopSignal(), self._progress.tell)
        self._is_idle.clear()
        self._waiting.append(call)
        if len(self._waiting) == 1:
            self._wake_one()

    def stop(self, stop: StopRequest) -> None:
        """Ask the attempt to end."""
        call = self._running.get(stop.key)
        if call is not None:
            call.stop.set(stop.reason)

    # The pool.

    def _wake_one(self) -> None:
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        task = asyncio.get_running_loop().create_task(self._run_always())
        self._pool.add(task)
        task.add_done_callback(self._pool.discard)

    async def _run_always(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # Each that is woken wakes two more while there is work for them. One that never has to
            # wait does it all before they run; if each waits, the last starts after few rounds.
            for _ in range(min(2, len(self._waiting) - 1)):
                self._wake_one()
            while self._waiting:
                await self._run(self._waiting.popleft())
            idle = loop.create_future()
            self._idle.append(idle)
            await idle

    async def _run(self, call: AttemptContext) -> None:
        lease = call.lease
        try:
            report = await self._runners[lease.task](call)
            if not isinstance(report, AttemptResult):
                raise TypeError(f"it returned {type(report).__name__}, not a report")
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled():
                raise
            log.exception(
                "the runner of task %s failed on job %s", lease.task, render_id(lease.key.job_id)
            )
            report = blame_runner(lease.key, error)
        if self._running.pop(lease.key, None) is None:
            return  # a drain has reported it already
        self._progress.forget(lease.key)
        if not self._running:
            self._is_idle.set()
        self._engine.report(report)
