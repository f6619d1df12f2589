"""Runs the attempts of a remote worker: starts them, stops them, reports their results.

The text of its lease identifies an attempt. When the server has revoked a lease, the executor stops
the attempt and does not report its result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from schedo.core.leases import AttemptResult, Failed, Lease, Stopped, StopReason
from schedo.core.limits import SECOND
from schedo.core.model import Failure
from schedo.core.value_limits import fit_report
from schedo.tasks.progress import ReportProgress
from schedo.tasks.runner import AttemptContext, Runner, StopSignal
from schedo.worker.runner_faults import blame_runner, is_cancelled

# The server measures the timeout. If the worker cannot reach it, the executor stops the attempt
# this much later.
LATE_S = 2.0

log = logging.getLogger("schedo.worker")


class _Attempt:
    """A lease that this worker holds."""

    __slots__ = ("context", "task", "timer")

    def __init__(self, context: AttemptContext) -> None:
        self.context = context
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Executor:
    """Runs attempts with the runner of their task.

    `report_progress` gets their progress, `on_end` the lease's text and the result of each.
    """

    def __init__(
        self,
        runners: Mapping[str, Runner],
        slots: int,
        on_end: Callable[[str, AttemptResult], None],
        report_progress: ReportProgress,
    ) -> None:
        self._runners = dict(runners)
        self._slots = slots
        self._on_end = on_end
        self._report_progress = report_progress
        self._held: dict[str, _Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # also those of revoked attempts
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks that this worker can run."""
        return sorted(self._runners)

    @property
    def free(self) -> int:
        return max(0, self._slots - len(self._held))

    @property
    def leases(self) -> list[str]:
        """The texts of the leases that run."""
        return list(self._held)

    async def wait_idle(self) -> None:
        """Return when no attempt runs."""
        await self._idle.wait()

    def start(self, text: str, lease: Lease) -> bool:
        """Start the attempt; return False if it runs already."""
        if text in self._held:
            return False
        attempt = self._held[text] = _Attempt(
            AttemptContext(lease, StopSignal(), self._report_progress)
        )
        self._idle.clear()
        loop = asyncio.get_running_loop()
        timeout_us = lease.options.timeout_us
        if timeout_us is not None:
            delay_s = timeout_us / SECOND + LATE_S
            attempt.timer = loop.call_later(delay_s, attempt.context.stop.set, StopReason.TIMEOUT)
        attempt.task = loop.create_task(self._run(text, attempt))
        self._tasks.add(attempt.task)
        attempt.task.add_done_callback(self._tasks.discard)
        return True

    def stop(self, text: str, reason: StopReason) -> bool:
        """Ask the attempt to stop; return False if it does not run or is stopping already."""
        attempt = self._held.get(text)
        if attempt is None or attempt.context.stop.reason is not None:
            return False
        attempt.context.stop.set(reason)
        return True

    def stop_all(self) -> None:
        """Ask all attempts to stop."""
        for text in self.leases:
            self.stop(text, StopReason.CANCEL)

    def abandon(self, text: str) -> bool:
        """Stop the attempt without a report of its result; return whether it ran."""
        attempt = self._held.pop(text, None)
        if attempt is None:
            return False
        log.warning("the server has revoked lease %s; its attempt is stopped", text)
        attempt.context.stop.set(StopReason.CANCEL)
        self._check_idle()
        return True

    def abandon_all(self) -> None:
        """Stop all attempts without reports of their results."""
        for text in self.leases:
            self.abandon(text)

    async def close(self) -> None:
        """Report all running attempts as stopped, and cancel them."""
        for text, attempt in list(self._held.items()):
            self._finish_attempt(text, attempt, AttemptResult(attempt.context.lease.key, Stopped()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, text: str, attempt: _Attempt) -> None:
        lease = attempt.context.lease
        runner = self._runners.get(lease.task)
        try:
            if runner is None:
                failure = Failure("unknown-task", f"this worker does not run task {lease.task!r}")
                result = AttemptResult(lease.key, Failed(failure, retryable=False))
            else:
                result = fit_report(await runner(attempt.context))
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled():
                raise
            log.exception("a bug in the runner of task %s (lease %s)", lease.task, text)
            result = blame_runner(lease.key, error)
        self._finish_attempt(text, attempt, result)

    def _finish_attempt(self, text: str, attempt: _Attempt, result: AttemptResult) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        if self._held.get(text) is not attempt:  # revoked
            return
        del self._held[text]
        self._on_end(text, result)
        self._check_idle()

    def _check_idle(self) -> None:
        if not self._held:
            self._idle.set()
