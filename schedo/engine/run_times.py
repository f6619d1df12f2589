"""How long attempts run, by task.

They are counted from the first request for the metrics on, so that a server without monitoring does
not spend time on them. The first TASKS_NAMED_MAX tasks are measured by name, all others together as
"other", so that clients cannot grow this by inventing names.
"""

from __future__ import annotations

from schedo.core.changes import Changes
from schedo.core.limits import MILLISECOND, SECOND
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
        for task, _, _, _, _, run_us, _ in changes.ends:
            if run_us is not None:
                self._observe(task, run_us)

    def _observe(self, task: str, run_us: int) -> None:
        times = self.by_task.get(task)
        if times is None:
            name = task if len(self.by_task) < TASKS_NAMED_MAX else OTHER_TASKS
            times = self.by_task.setdefault(name, Histogram(RUN_BOUNDS_US))
        times.observe(run_us)
