"""Loads: the reads that the core requests from the store, as plain values for the committer.

All loads of one turn are carried out after the same commit, and delivered together. So no change
becomes durable between a load and its delivery: every later change is still in the memory of the
scheduler, and memory wins. This rule makes both pages and single records safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from schedo.core.commands import JobFollowUp, ScheduleFollowUp
from schedo.core.limits import PAGE_ENTRIES_MAX, SCHEDULE_PAGE_PAYLOADS_BYTES_MAX
from schedo.core.model import ReadyKey, Schedule
from schedo.core.paged_index import Pair


@dataclass(frozen=True, slots=True)
class LoadTimers:
    """Load the next page of jobs that wait for an instant."""

    after: Pair
    limit: int


@dataclass(frozen=True, slots=True)
class PromoteDue:
    """Queue, in the store itself, the next jobs that are due up to an instant.

    The committer chooses the limit, because it measures how long the jobs take.
    """

    after: Pair
    until: int
    limit: int = PAGE_ENTRIES_MAX


class Promoted(NamedTuple):
    """The jobs that a PromoteDue has queued, and where the next one continues."""

    jobs: list[tuple[ReadyKey, Pair]]  # the ready key and (rank, id) of each
    last: Pair | None  # due time and id of the last one; None: no more are due


@dataclass(frozen=True, slots=True)
class LoadReady:
    """Load the next page of one ready key."""

    ready_key: ReadyKey
    after: Pair
    limit: int


@dataclass(frozen=True, slots=True)
class LoadSchedules:
    """Load the next page of schedules by next fire; with `until`, only those due up to it.

    The page ends with the schedule whose payload makes it large: see `is_full`.
    """

    after: Pair
    limit: int
    until: int | None = None

    def take_page(self, found: Iterable[Schedule]) -> list[Schedule]:
        """Return the first of the schedules that are found: one page."""
        page: list[Schedule] = []
        payload_bytes = 0
        for schedule in found:
            page.append(schedule)
            payload_bytes += len(schedule.spec.job.payload)
            if self._is_end(len(page), payload_bytes):
                break
        return page

    def is_full(self, page: Sequence[Schedule]) -> bool:
        """Whether the page has no room for another schedule, so that the store may have more."""
        return self._is_end(len(page), sum(len(each.spec.job.payload) for each in page))

    def _is_end(self, count: int, payload_bytes: int) -> bool:
        return count >= self.limit or payload_bytes >= SCHEDULE_PAGE_PAYLOADS_BYTES_MAX


@dataclass(frozen=True, slots=True)
class LoadJob:
    """Load one job, for a command, or for a follow-up that the core applies at the delivery."""

    job_id: int
    follow_up: JobFollowUp | None = None


@dataclass(frozen=True, slots=True)
class LoadUniqueHolder:
    """Load the job that holds a unique key, for a command."""

    key: str


@dataclass(frozen=True, slots=True)
class LoadSchedule:
    """Load one schedule by name or id; `follow_up` as for LoadJob."""

    which: str | int
    follow_up: ScheduleFollowUp | None = None


@dataclass(frozen=True, slots=True)
class LoadBlocked:
    """Load the next page of blocked runs, in order of their ids, with their schedules."""

    after: int
    limit: int


class BlockedRun(NamedTuple):
    """A blocked run, and its schedule with the active runs; None if that is deleted."""

    job_id: int
    schedule_id: int
    schedule: Schedule | None


@dataclass(frozen=True, slots=True)
class LoadExpired:
    """Load waiting jobs whose expiry has come."""

    now: int
    limit: int


RecordLoad = LoadJob | LoadUniqueHolder | LoadSchedule
Load = LoadTimers | PromoteDue | LoadReady | LoadSchedules | LoadBlocked | LoadExpired | RecordLoad


class Needs(NamedTuple):
    """The reply to a command whose records are not in memory: it has changed nothing yet.

    It is applied again, with what the loads have found, in the step that delivers them.
    """

    loads: tuple[RecordLoad, ...]


# What the loads of a command have found, None included. Where memory has a newer record, it wins.
Loaded = Mapping[RecordLoad, Any]
NOTHING_LOADED: Loaded = MappingProxyType({})

# What carries out the commands of each type.
Appliers = dict[type, Callable[[Any, int, Loaded], Any]]
