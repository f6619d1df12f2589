"""What the scheduler needs from the store, as plain values for the engine to fetch.

Everything wanted in one turn is loaded after the same commit and delivered in one step, so between
the load and its use nothing can have become durable: what changed meanwhile is still in the
scheduler's memory, and memory wins. That one rule makes windows and single look-ups safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from schedo.core.model import Job, ReadyKey, Schedule
from schedo.core.paged_index import Pair


@dataclass(frozen=True, slots=True)
class LoadTimers:
    """The next page of jobs that wait for an instant."""

    after: Pair
    limit: int


@dataclass(frozen=True, slots=True)
class PromoteDue:
    """Queue, in the store itself, the next jobs that were due up to an instant.

    It is carried out before anything that is loaded for the same turn; how many at a time is left
    to whoever knows how long it takes.
    """

    after: Pair
    until: int


class Promoted(NamedTuple):
    """The jobs that a PromoteDue has queued, and where to go on."""

    jobs: list[tuple[ReadyKey, Pair]]  # (rank, id) of each with its lane
    last: Pair | None  # the last one's due time and id; None: there are no more of them


@dataclass(frozen=True, slots=True)
class LoadReady:
    """The next page of one lane."""

    ready_key: ReadyKey
    after: Pair
    limit: int


@dataclass(frozen=True, slots=True)
class LoadSchedules:
    """The next page of schedules by their next fire; until: of those overdue up to the instant."""

    after: Pair
    limit: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One job; `then` is called with it, or with None, and the present instant."""

    job_id: int
    then: Callable[[Job | None, int], None]


@dataclass(frozen=True, slots=True)
class LoadUniqueHolder:
    """The job that holds a unique key; `then` as for JobWanted."""

    key: str
    then: Callable[[Job | None, int], None]


@dataclass(frozen=True, slots=True)
class LoadSchedule:
    """One schedule by name or id; `then` as for JobWanted."""

    which: str | int
    then: Callable[[Schedule | None, int], None]


@dataclass(frozen=True, slots=True)
class LoadExpired:
    """Waiting jobs whose expiry has come."""

    now: int
    limit: int


Load = (
    LoadTimers
    | PromoteDue
    | LoadReady
    | LoadSchedules
    | LoadJob
    | LoadUniqueHolder
    | LoadSchedule
    | LoadExpired
)
