"""What the engine answers, beside jobs, schedules and queues themselves."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import msgspec

from schedo.core.model import Job, Queue

T = TypeVar("T")


class Accepted(msgspec.Struct, Generic[T], frozen=True):
    """The answer to one spec; conflict: the job is the one that holds the unique key already."""

    job: T
    conflict: bool


class Triggered(NamedTuple):
    """The answer to a manual trigger: the new job, or the id of the run that stood in its way."""

    job: Job | None
    skipped_by: int | None


class QueueStatus(NamedTuple):
    """A queue's limits and how much it holds: unfinished jobs by state."""

    queue: Queue
    running: int
    waiting: dict[str, int]
    counted_at: int  # the instant that the numbers of waiting jobs are of


class Health(NamedTuple):
    """Whether jobs would start in time, and why not."""

    ready: bool
    reasons: list[str]
    epoch: int
    lag_us: int
    clock_behind_us: int = 0  # how far the clock is behind the newest instant of the store
