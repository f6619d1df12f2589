"""The attempts that this worker runs: started, stopped, revoked, and heard of when they end.

An attempt is known by the text of its lease. One that the server has revoked is stopped, and
nobody hears how it ended.
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

# The server keeps the timeout. While it cannot be reached, the attempt ends here this much later.
LATE_S = 2.0

log = logging.getLogger("schedo.worker")


class _Attempt:
    """One lease that is held here."""

    __slots__ = ("call", "task", "timer")

    def __init__(self, call: AttemptContext) -> None:
        self.call = call
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Executor:
    """Runs attempts with the runner of their task.

    `tell` hears of the progress of each, `on_end` how it ended.
    """

    def __init__(
        self,
        runners: Mapping[str, Runner],
        slots: int,
        on_end: Callable[[str, AttemptResult], None],
        tell: ReportProgress,
    ) -> None:
        self._runners = dict(runners)
        self._slots = slots
        self._on_end = on_end
        self._tell = tell
        self._held: dict[str, _Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # those of revoked attempts, too
        self._quiet = asyncio.Event()
        self._quiet.set()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def tasks(self) -> list[str]:
        """The tasks that can be run."""
        return sorted(self._runners)

    @property
    def free(self) -> int:
        return max(0, self._slots - len(self._held))

    @property
    def leases(self) -> list[str]:
        """What runs."""
        return list(self._held)

    async def wait_idle(self) -> None:
        """Return when nothing runs."""
        await self._quiet.wait()

    def start(self, text: str, lease: Lease) -> bool:
        """Run the attempt; return False if it runs already."""
        if text in self._held:
            return False
        attempt = self._held[text] = _Attempt(AttemptContext(lease, StopSignal(), self._tell))
        self._quiet.clear()
        loop = asyncio.get_running_loop()
        timeout_us = lease.options.timeout_us
        if timeout_us is not None:
            delay_s = timeout_us / SECOND + LATE_S
            attempt.timer = loop.call_later(delay_s, attempt.call.stop.set, StopReason.TIMEOUT)
        attempt.task = loop.create_task(self._run(text, attempt))
        self._tasks.add(attempt.task)
        attempt.task.add_done_callback(self._tasks.discard)
        return True

    def stop(self, text: str, reason: StopReason) -> bool:
        """Ask the attempt to end; return whether that is news to it."""
        attempt = self._held.get(text)
        if attempt is None or attempt.call.stop.reason is not None:
            return False
        attempt.call.stop.set(reason)
        return True

    def stop_all(self) -> None:
        """Ask everything to end."""
        for text in self.leases:
            self.stop(text, StopReason.CANCEL)

    def abandon(self, text: str) -> bool:
        """End the attempt and do not report it; return whether it ran."""
        attempt = self._held.pop(text, None)
        if attempt is None:
            return False
        log.warning("the server has given up lease %s; its attempt is stopped", text)
        attempt.call.stop.set(StopReason.CANCEL)
        self._rest()
        return True

    def abandon_all(self) -> None:
        """End everything and report nothing."""
        for text in self.leases:
            self.abandon(text)

    async def close(self) -> None:
        """Report what has not ended as stopped, and cut it off."""
        for text, attempt in list(self._held.items()):
            self._end(text, attempt, AttemptResult(attempt.call.lease.key, Stopped()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, text: str, attempt: _Attempt) -> None:
        lease = attempt.call.lease
        runner = self._runners.get(lease.task)
        try:
            if runner is None:
                failure = Failure("unknown-task", f"this worker has no task {lease.task!r}")
                report = AttemptResult(lease.key, Failed(failure, retryable=False))
            else:
                report = fit_report(await runner(attempt.call))
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled():
                raise
            log.exception("the runner of task %s failed on lease %s", lease.task, text)
            report = blame_runner(lease.key, error)
        self._end(text, attempt, report)

    def _end(self, text: str, attempt: _Attempt, report: AttemptResult) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        if self._held.get(text) is not attempt:  # revoked
            return
        del self._held[text]
        self._on_end(text, report)
        self._rest()

    def _rest(self) -> None:
        if not self._held:
            self._quiet.set()
