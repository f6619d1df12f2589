"""How long attempts run, by task.

They are counted from the first request for the metrics on, so that a server without monitoring does
not spend time on them. The first TASKS_NAMED_MAX tasks are measured by name, all others together as
"other", so that clients cannot grow this by inventing names.
"""

from __future__ import annotations

from schedo.core.changes import Changes
from schedo.core.limits import MILLISECOND, SECOND
from schedo.core.states import State
from schedo.engine.metrics import Histogram

TASKS_NAMED_MAX = 32
OTHER_TASKS = "other"
# Handlers take a millisecond, backups hours.
RUN_BOUNDS_US = (
    *(ms * MILLISECOND for ms in (1, 5, 10, 50, 100, 500)),
    *(s * SECOND for s in (1, 5, 10, 30, 60, 300, 900, 3_600, 10_800)),
)


class RunTimes:
    """Histograms of the time from the start of an attempt to its result, in microseconds."""

    def __init__(self) -> None:
        self.by_task: dict[str, Histogram] = {}

    def note(self, changes: Changes) -> None:
        """Note the attempts that have ended in a commit."""
        jobs = changes.jobs
        for job in jobs.values():
            if job.state is State.COMPLETED:
                self._observe(job.task, job.started_at, job.ended_at)
        for attempt in changes.attempts:
            job_of = jobs.get(attempt.job_id)
            if job_of is not None:  # it may have been deleted in the same commit
                self._observe(job_of.task, attempt.started_at, attempt.ended_at)

    def _observe(self, task: str, started_at: int | None, ended_at: int | None) -> None:
        if started_at is None or ended_at is None:
            return
        times = self.by_task.get(task)
        if times is None:
            name = task if len(self.by_task) < TASKS_NAMED_MAX else OTHER_TASKS
            times = self.by_task.setdefault(name, Histogram(RUN_BOUNDS_US))
        times.observe(ended_at - started_at)
