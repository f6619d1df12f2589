"""Runs the attempts of one worker: starts and stops them, reports their progress and how they end.

The same executor runs in all three kinds of workers. Their connection brings the leases and takes
the results: function calls into the engine (in_process.py), a socket (process/child.py) or HTTP
(remote/poller.py).

The attempts of an application's tasks have context variables of their own and can be cancelled; see
handler_tasks.py. The attempts of other runners share a pool of coroutines: it keeps all that it has
started and reuses them, and an idle coroutine costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Protocol

from schedo.core.ids import render_id
from schedo.core.leases import AttemptResult, Failed, Lease, Released, Stopped, StopReason
from schedo.core.limits import SECOND
from schedo.core.model import Failure, LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.tasks.progress import ProgressThrottle
from schedo.tasks.python import TaskRunner
from schedo.tasks.runner import AttemptContext, Runner, StopSignal, TakenBack
from schedo.worker.handler_tasks import HandlerTasks
from schedo.worker.shutdown import Grace

STOP_GRACE_S = 3.0  # for a runner to end after its stop, when the grace time of a drain is over
# The server measures the timeout. If a worker cannot reach it, the executor stops the attempt this
# much later.
LATE_S = 2.0

log = logging.getLogger("schedo.worker")


class Connection(Protocol):
    """The connection to the server."""

    def send_result(self, result: AttemptResult) -> None:
        """Deliver how an attempt ended; keep it as long as the server cannot be reached."""

    def send_progress(self, key: LeaseKey, update: ProgressUpdate) -> None:
        """Deliver the progress of a running attempt, at most one update per interval."""


class Executor:
    """Runs each attempt with the runner of its task.

    The connection starts no more attempts than the worker has slots.

    watches_timeouts: stop an attempt whose timeout is over and whose stop has not come.
    may_start: asked right before an attempt has an effect; False releases it. A TaskRunner has its
    own, see tasks.python.Watcher. None: always.
    """

    def __init__(
        self,
        runners: Mapping[str, Runner | TaskRunner],
        connection: Connection,
        *,
        watches_timeouts: bool = False,
        may_start: Callable[[], bool] | None = None,
    ) -> None:
        self._watches_timeouts = watches_timeouts
        self._may_start = may_start
        self._handlers = {n: each for n, each in runners.items() if isinstance(each, TaskRunner)}
        self._runners = {n: each for n, each in runners.items() if not isinstance(each, TaskRunner)}
        self._progress = ProgressThrottle(connection.send_progress)
        self._report_progress = self._progress.report
        self._running: dict[LeaseKey, AttemptContext] = {}
        self._timeouts: dict[LeaseKey, asyncio.TimerHandle] = {}
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._grace = Grace()
        self._begin = HandlerTasks(self.finish).begin
        self._send_result = connection.send_result
        # The pool of coroutines.
        self._pending: deque[AttemptContext] = deque()
        self._waiting: list[asyncio.Future[None]] = []  # of idle coroutines
        self._pool: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    @property
    def running(self) -> list[LeaseKey]:
        """The attempts that run."""
        return list(self._running)

    def start(self, lease: Lease) -> bool:
        """Start the attempt; return False if it runs already."""
        key = lease.key
        if key in self._running:
            return False
        if not self._running:
            self._is_idle.clear()
        context = self._running[key] = AttemptContext(
            lease, StopSignal(), self._report_progress, may_start=self._may_start
        )
        if self._watches_timeouts and lease.options.timeout_us is not None:
            self._timeouts[key] = asyncio.get_running_loop().call_later(
                lease.options.timeout_us / SECOND + LATE_S, context.stop.set, StopReason.TIMEOUT
            )
        handler = self._handlers.get(lease.task)
        if handler is not None:
            self._begin(handler, context)
        else:
            self._pending.append(context)
            if len(self._pending) == 1:
                self._wake_one()
        return True

    def stop(self, key: LeaseKey, reason: StopReason) -> bool:
        """Request the attempt to stop; return False if it does not run or is already stopping."""
        context = self._running.get(key)
        if context is None or context.stop.reason is not None:
            return False
        context.stop.set(reason)
        return True

    def abandon(self, key: LeaseKey) -> bool:
        """Stop the attempt without a report of its result; return whether it ran."""
        context = self._running.pop(key, None)
        if context is None:
            return False
        context.stop.set(StopReason.CANCEL)
        self._note_end(key)
        return True

    def finish(self, context: AttemptContext, result: AttemptResult) -> None:
        """Report the result, unless the attempt was abandoned or reported before."""
        key = result.key
        if self._running.get(key) is context:
            del self._running[key]
            if self._timeouts or self._progress.updates or not self._running:  # rare in a stream
                self._note_end(key)
            self._send_result(result)

    def _note_end(self, key: LeaseKey) -> None:
        if self._timeouts and (timer := self._timeouts.pop(key, None)) is not None:
            timer.cancel()
        self._progress.forget(key)
        if not self._running:
            self._is_idle.set()

    # Shutdown.

    async def wait_idle(self) -> None:
        """Return when no attempt runs."""
        await self._is_idle.wait()

    async def drain(self, grace_s: float | None) -> None:
        """Give the running attempts the grace time to end, then request them to stop.

        Attempts that ignore their stop may still run afterwards; close() ends those.
        """
        await self._grace.wait(self.wait_idle(), grace_s)
        for context in self._running.values():
            context.stop.set(StopReason.CANCEL)
        await Grace().wait(self.wait_idle(), STOP_GRACE_S)

    def stop_now(self) -> None:
        """End the grace time of a drain now."""
        self._grace.end()

    async def close(self) -> None:
        """Report the attempts that still run as stopped, and cancel them."""
        for context in list(self._running.values()):
            self.finish(context, AttemptResult(context.lease.key, Stopped()))
            if context.handler is not None:
                context.handler.cancel()
        self._progress.close()
        for coroutine in self._pool:
            coroutine.cancel()
        await asyncio.gather(*self._pool, return_exceptions=True)

    # The pool of coroutines.

    def _wake_one(self) -> None:
        while self._waiting:
            waiting = self._waiting.pop()
            if not waiting.done():
                waiting.set_result(None)
                return
        coroutine = asyncio.get_running_loop().create_task(self._run_loop())
        self._pool.add(coroutine)
        coroutine.add_done_callback(self._pool.discard)

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
            waiting = loop.create_future()
            self._waiting.append(waiting)
            await waiting

    async def _run(self, context: AttemptContext) -> None:
        lease = context.lease
        runner = self._runners.get(lease.task)
        try:
            if runner is None:
                result = _refuse_task(lease)
            else:
                context.confirm()
                began_ns = perf_counter_ns()
                result = await runner(context)
                ran_us = (perf_counter_ns() - began_ns) // 1_000
                if isinstance(result, AttemptResult):
                    result = AttemptResult(result.key, result.outcome, result.output, ran_us)
            if not isinstance(result, AttemptResult):
                raise TypeError(f"it returned {type(result).__name__}, not an AttemptResult")
        except TakenBack:
            result = AttemptResult(lease.key, Released())
        except (Exception, asyncio.CancelledError) as error:
            if _is_cancelled():
                raise
            log.exception(
                "a bug in the runner of task %s (job %s)", lease.task, render_id(lease.key.job_id)
            )
            failure = Failure("runner-error", f"{type(error).__name__}: {error}")
            result = AttemptResult(lease.key, Failed(failure))
        self.finish(context, result)


def _refuse_task(lease: Lease) -> AttemptResult:
    failure = Failure("unknown-task", f"this worker does not run task {lease.task!r}")
    return AttemptResult(lease.key, Failed(failure, retryable=False))


def _is_cancelled() -> bool:
    """Return whether the running asyncio task was cancelled from outside.

    A CancelledError alone does not prove it, because a runner may raise one, too.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
