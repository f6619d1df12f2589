"""The results of engine calls that are not plain jobs, schedules or queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from schedo.core.model import Pause, Queue

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


class Health(NamedTuple):
    """Whether jobs would start in time, and the reasons against it."""

    ready: bool
    reasons: list[str]
    epoch: int
    lag_us: int
    clock_behind_us: int = 0  # how far the clock is behind the newest instant of the store


def describe_pauses(pauses: Sequence[Pause]) -> str:
    """Return what is paused, and the notes, as a text."""
    by_note: dict[str | None, list[str]] = {}
    for pause in pauses:
        by_note.setdefault(pause.note, []).append(pause.scope.value)
    return "; ".join(
        ", ".join(scopes) + (f" ({note})" if note else "") for note, scopes in by_note.items()
    )
