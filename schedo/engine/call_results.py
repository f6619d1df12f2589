"""The results of engine calls that are not plain jobs, schedules or queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from schedo.core.commands import Triggered
from schedo.core.model import Pause, Queue
from schedo.core.pauses import describe_pause

T = TypeVar("T")


class Accepted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The result for one spec; conflict: `job` is the earlier job that holds the unique key."""

    job: T
    conflict: bool


class QueueStatus(NamedTuple):
    """The limits of a queue and the number of its unfinished jobs by state."""

    queue: Queue
    running: int
    waiting: dict[str, int]
    counted_at: int  # when the waiting jobs were counted
    oldest_due_at: int | None = None  # of its first due jobs; None: memory has none


class Health(NamedTuple):
    """Whether jobs would start in time, and the reasons against it."""

    ready: bool
    reasons: list[str]
    epoch: int
    lag_us: int
    clock_behind_us: int = 0  # how far the clock is behind the newest instant of the store


def copy_triggered(reply: Triggered) -> Triggered:
    """Return what a trigger did, with a copy of its run."""
    return reply._replace(job=reply.job.copy()) if reply.job is not None else reply


def describe_pauses(pauses: Sequence[Pause]) -> str:
    """Return what is paused, with the notes and the ends, as a text."""
    alike: dict[str, list[str]] = {}
    for pause in pauses:
        alike.setdefault(describe_pause(pause.note, pause.until), []).append(pause.scope.value)
    return "; ".join(", ".join(scopes) + how for how, scopes in alike.items())
