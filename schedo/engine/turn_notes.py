"""What the scheduler notes in a turn, for the parts of the engine that keep it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from schedo.core.failure_groups import FailureGroups
from schedo.core.ids import render_id
from schedo.core.outcomes import FailedAttempt
from schedo.core.scheduler import Scheduler
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.dispatch import Dispatcher
from schedo.engine.failure_log import FailureLog
from schedo.engine.known_tasks import KnownTasks
from schedo.engine.progress import ProgressLog
from schedo.engine.waiters import Decisions

log = logging.getLogger("schedo.engine")


class TurnNotes:
    """The progress of attempts, failed attempts, decided invocations, and the known tasks."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        """dispatcher: keeps the results until they are durable."""
        self._dispatcher = dispatcher
        self.progress = ProgressLog()
        self.failure_log = FailureLog()
        self.failures = FailureGroups()
        self.decisions = Decisions()
        self.tasks = KnownTasks()
        self.on_offer: Callable[[WorkerSpec], None] = _ignore  # called with the spec of each worker
        self._unlogged: list[tuple[Sequence[FailedAttempt], int]] = []
        # Failed attempts that are noted and not durable, by job and number: a recovery ends them
        # again. And those that are being committed.
        self._uncommitted: set[tuple[int, int]] = set()
        self._committing: set[tuple[int, int]] = set()

    def take(self, scheduler: Scheduler, now: int) -> None:
        """Take the scheduler's notes: results that are not stored yet, progress, what to log.

        The failed attempts are logged by `log_failed`.
        """
        notes = scheduler.take_notes()
        if not any(notes):
            return
        results, decided, progress, warnings, failed, adopted, offered = notes
        for spec in offered:
            self.tasks.note(spec.tasks)
            self.on_offer(spec)
        for lease in adopted:  # before their results
            self._dispatcher.expect(lease)
            log.info(
                "worker %s goes on with attempt %d of job %s, which the previous server began",
                *(lease.worker, lease.key.attempt, render_id(lease.key.job_id)),
            )
        self.decisions.note(decided)
        for message in progress:
            self.progress.note(message, now)
        self._dispatcher.record_results(results, now)
        self.progress.forget(results)
        for warning in warnings:
            log.warning("%s", warning)
        if failed:
            self._note_new(failed, now)

    def _note_new(self, failed: Sequence[FailedAttempt], now: int) -> None:
        """Note the failed attempts, but none that was noted before a commit has failed."""
        new = []
        for each in failed:
            key = each.job_id, each.attempt
            if key not in self._uncommitted and key not in self._committing:
                self._uncommitted.add(key)
                new.append(each)
        if new:
            self.note_failed(new, now)

    def begin_commit(self) -> None:
        """Note that the changes so far are being committed."""
        if self._uncommitted:
            self._committing |= self._uncommitted
            self._uncommitted.clear()

    def committed(self) -> None:
        """Note that the changes that were being committed are durable."""
        self._committing.clear()

    def note_failed(self, failed: Sequence[FailedAttempt], now: int) -> None:
        """Count the failed attempts; `log_failed` logs them."""
        self._unlogged.append((failed, now))
        for attempt in failed:
            self.failures.note(attempt, now)

    @property
    def has_unlogged(self) -> bool:
        """Whether there are failed attempts that are not logged yet."""
        return bool(self._unlogged)

    def log_failed(self) -> None:
        """Log the failed attempts that were taken; this takes about 0.1 ms for each."""
        unlogged, self._unlogged = self._unlogged, []
        for failed, at in unlogged:
            self.failure_log.note(failed, at)


def _ignore(spec: WorkerSpec) -> None:
    pass
