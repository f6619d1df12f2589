"""What has ended since it was added to the tallies.

An end counts once its commit is durable. If the outcome of the commit is unknown, one of its jobs
tells it after the recovery; without one, its ends do not count.

Here the times of an end enter a list. After some thousands, and once a minute, the lists are added
to the tallies (engine/tallies.py), which are imported then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from schedo.core.ends import Alike, Kind
from schedo.core.keep import NOT_KEPT
from schedo.core.limits import HOUR
from schedo.core.loads import LoadJob
from schedo.core.model import Job

if TYPE_CHECKING:
    from schedo.core.changes import Changes
    from schedo.core.outcomes import FailedAttempt
    from schedo.core.tallies import Tallies, TallyFilter
    from schedo.engine.tallies import TallyBook
    from schedo.store.base import Store

_NOTED_MAX = 2_048


def _ignore(_: Sequence[FailedAttempt]) -> None:
    """Log none."""


class Ends:
    """The ends that are not in the tallies yet, and the tallies that are not saved yet."""

    def __init__(self, jobs: dict[str, int] | None = None) -> None:
        """jobs: counters of the jobs that have ended, by their final state."""
        self._jobs = {} if jobs is None else jobs
        self._kinds: dict[Kind, Alike] = {}
        self._count = 0
        self._book: TallyBook | None = None
        # Of a commit whose outcome is unknown, with a job that has ended in it, and when.
        self._doubted: tuple[Changes, int, int | None] | None = None
        # Called with the jobs of SQL clients that were refused in a commit that is durable.
        self.on_refused: Callable[[Sequence[FailedAttempt]], None] = _ignore

    def note(self, changes: Changes) -> None:
        """Count the ends of a commit that is durable; this is hot."""
        kinds, jobs, ends = self._kinds, self._jobs, changes.ends
        if changes.refused:
            self.on_refused(changes.refused)
        for task, queue, schedule, outcome, ended_at, run_us, late_us in ends:
            kind = ended_at // HOUR, task, queue, schedule, outcome
            alike = kinds.get(kind)
            if alike is None:
                alike = kinds[kind] = Alike()
            alike.count += 1
            if outcome in jobs:
                jobs[outcome] += 1
            if run_us is not None:
                alike.run_us.append(run_us)
            if late_us is not None:
                alike.late_us.append(late_us)
        self._count += len(ends)
        if self._count > _NOTED_MAX:
            self._add_up()

    def doubt(self, changes: Changes) -> None:
        """Note that it is unknown whether these changes are durable; the engine recovers."""
        for job in changes.jobs.values():
            if job.is_final and job.kept_until != NOT_KEPT:
                self._doubted = changes, job.id, job.ended_at
                return

    async def end_doubt(self, store: Store) -> None:
        """Count the ends of the commit in doubt if it is durable, which is certain by now."""
        if self._doubted is not None:
            changes, job_id, ended_at = self._doubted
            job: Job | None = await store.load(LoadJob(job_id))
            self._doubted = None
            if job is not None and job.is_final and job.ended_at == ended_at:
                self.note(changes)

    async def save(self, store: Store, now: int) -> None:
        """Add all of it to the tallies in the store, if it takes them; else it stays."""
        if self._kinds or self._book is not None:
            await self._add_up().save(store, now)

    async def read(self, store: Store, wanted: TallyFilter) -> dict[int, Tallies]:
        """Return the tallies of all ends whose commit is durable, by when each part begins.

        Raise the errors of the store.
        """
        return await self._add_up().read(store, wanted)

    def _add_up(self) -> TallyBook:
        from schedo.engine.tallies import TallyBook

        book = self._book = self._book or TallyBook()
        book.add(self._kinds)
        self._kinds.clear()
        self._count = 0
        return book
