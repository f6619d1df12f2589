"""What delays commits beside commits: the sizes of long steps, and the pace of two kinds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from schedo.core.limits import (
    BULK_STEP_JOBS,
    BULK_STEP_JOBS_MAX,
    PRUNED_MAX,
    PRUNED_MIN,
    PRUNING_US,
)
from schedo.store.base import Retention

# A store without commits for this time is idle: steps of pruning follow each other with a pause.
IDLE_S = 1.0
PRUNE_PAUSE_S = 0.02
# Beside commits, pruning deletes this number of rows for each job that ends, so that a busy server
# deletes more jobs than it adds, and this number in a second, so that it ends under any load.
ROWS_PER_END = 1.25
ROWS_PER_S = 1_000
# Operations on many jobs pause after each step. Beside commits their jobs are earned by time.
BULK_PAUSE_S = 0.002
BULK_JOBS_PER_S = 5_000


@dataclass(slots=True)
class StepSize:
    """How many rows one step writes, such that it takes about `target_us`: commits wait for it."""

    rows: int
    least: int
    most: int
    target_us: int

    def adapt(self, took_us: int) -> None:
        """Halve the next step after a long one; let it grow after a short one."""
        if took_us > self.target_us:
            self.rows = max(self.least, self.rows // 2)
        else:
            self.rows = min(self.most, self.rows * 3 // 2)


@dataclass(slots=True, eq=False)
class Pruning:
    """A request to prune until nothing is left; `done` gets the final `count`."""

    retention: Retention
    done: asyncio.Future[int]
    count: int = 0  # of deleted records and of pages that went back to the file system


@dataclass(slots=True)
class PrunePace:
    """When pruning takes a step, such that few commits wait for one.

    Beside commits a step must be earned, by jobs that ended and by time. Instants are those of the
    event loop, in seconds.
    """

    size: StepSize = field(
        default_factory=lambda: StepSize(PRUNED_MIN, PRUNED_MIN, PRUNED_MAX, PRUNING_US)
    )
    _earned: float = 0.0  # rows, by jobs that ended
    _stepped_at: float = -IDLE_S
    _committed_at: float = -IDLE_S

    def committed(self, ended: int, now: float) -> None:
        """Note a commit, and how many jobs ended in it while a pruning is under way."""
        self._committed_at = now
        self._earned += ended * ROWS_PER_END

    def is_due(self, now: float) -> bool:
        """Whether the next step should be taken now."""
        if now - self._committed_at >= IDLE_S:
            return now - self._stepped_at >= PRUNE_PAUSE_S
        return self._earned + (now - self._stepped_at) * ROWS_PER_S >= self.size.rows

    def stepped(self, took_us: int, now: float) -> None:
        """Note a step: it costs the same whether it deleted records or gave pages back."""
        self._earned = max(0.0, self._earned - self.size.rows)
        self._stepped_at = now
        self.size.adapt(took_us)


@dataclass(slots=True)
class BulkPace:
    """How many jobs a step of an operation changes, and how long the pause behind it is.

    Beside other work, steps are a period apart, so that few commits meet one. If the machine is so
    busy that they take longer, they have more jobs. Instants are those of the event loop.
    """

    _began_s: float = 0.0  # the last step
    _committed: int = 0  # jobs of all commits up to it
    _has_others: bool = False  # some of them were of other work

    def find_jobs(self, now_s: float) -> int:
        """Return how many jobs a step that begins now may change."""
        if not self._has_others:
            return BULK_STEP_JOBS
        earned = int((now_s - self._began_s) * BULK_JOBS_PER_S)
        return min(max(earned, BULK_STEP_JOBS), BULK_STEP_JOBS_MAX)

    def stepped(self, began_s: float, own: int, committed: int) -> None:
        """Note a step; own: its jobs, committed: those of all commits since the start."""
        self._has_others = committed - self._committed > own
        self._began_s, self._committed = began_s, committed

    def find_pause_s(self, now_s: float) -> float:
        """Return the pause until the next step, after one that has just ended."""
        if not self._has_others:
            return BULK_PAUSE_S
        return max(BULK_PAUSE_S, self._began_s + BULK_STEP_JOBS / BULK_JOBS_PER_S - now_s)
