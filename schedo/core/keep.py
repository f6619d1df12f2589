"""How long an ended job is kept, where a job, schedule, task or queue says so itself.

For each state the most special answer counts: that of the job or its schedule, else of the task,
else of the queue. Without one, the general retention of the store applies when it prunes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from schedo.core.states import State

if TYPE_CHECKING:
    from schedo.core.model import Job

NOT_KEPT = 0  # the kept_until of a job that the store drops when it ends

_FIELDS = {
    State.COMPLETED: "completed_us",
    State.FAILED: "failed_us",
    State.CANCELLED: "cancelled_us",
    State.EXPIRED: "cancelled_us",
}


class KeepTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long jobs are kept after their end, by its kind; None: the next level decides."""

    completed_us: int | None = None
    failed_us: int | None = None
    cancelled_us: int | None = None  # also expired jobs

    def time_us(self, state: State) -> int | None:
        """Return how long a job that ends in this state is kept, or None."""
        time_us: int | None = getattr(self, _FIELDS[state])
        return time_us

    def or_else(self, other: KeepTimes | None) -> KeepTimes:
        """Return the times of this one, and of the other one where this has none."""
        if other is None:
            return self
        return KeepTimes(
            other.completed_us if self.completed_us is None else self.completed_us,
            other.failed_us if self.failed_us is None else self.failed_us,
            other.cancelled_us if self.cancelled_us is None else self.cancelled_us,
        )


def kept_until(job: Job, of_queue: KeepTimes | None, now: int, offset_us: int) -> int | None:
    """Return until when the job that ends now is kept; None: the general retention decides.

    A job that keeps its unique key for a period is kept for the period, or the key would be free.
    """
    own = job.options.keep
    kept_us = None if own is None else own.time_us(job.state)
    if kept_us is None and of_queue is not None:
        kept_us = of_queue.time_us(job.state)
    if kept_us is None:
        return None
    until = now + kept_us
    unique = job.options.unique
    if unique is not None and unique.for_us is not None and job.unique_key is not None:
        until = max(until, job.created_at - job.offset_us + offset_us + unique.for_us)
    return until if until > now else NOT_KEPT
