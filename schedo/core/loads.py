"""Loads: the reads that the core requests from the store, as plain values for the committer.

All loads of one turn are carried out after the same commit, and delivered together. So no change
becomes durable between a load and its delivery: every later change is still in the memory of the
scheduler, and memory wins. This rule makes both pages and single records safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from schedo.core.commands import JobFollowUp, ScheduleFollowUp
from schedo.core.limits import PAGE_ENTRIES_MAX, SCHEDULE_PAGE_PAYLOADS_BYTES_MAX
from schedo.core.model import ReadyKey, Schedule
from schedo.core.paged_index import Pair

T = TypeVar("T")


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
    retrying: frozenset[int] = frozenset()  # the ids of those that were; the others were scheduled


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
        return _take_page(found, self.limit, _payload_bytes)

    def is_full(self, page: Sequence[Schedule]) -> bool:
        """Whether the page has no room for another schedule, so that the store may have more."""
        return _is_full(len(page), sum(map(_payload_bytes, page)), self.limit)


@dataclass(frozen=True, slots=True)
class LoadJob:
    """Load one job, for a command, or for a follow-up that the core applies at the delivery."""

    job_id: int
    follow_up: JobFollowUp | None = None


@dataclass(frozen=True, slots=True)
class LoadJobs:
    """Load the jobs with these ids, for a command."""

    job_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoadUniqueHolders:
    """Load the jobs that hold unique keys, for a command."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadSchedule:
    """Load one schedule by name or id; `follow_up` as for LoadJob."""

    which: str | int
    follow_up: ScheduleFollowUp | None = None


@dataclass(frozen=True, slots=True)
class LoadBlocked:
    """Load the next page of blocked runs, in order of their ids, with their schedules.

    The page ends with the run whose schedule's payload makes it large: see `is_full`.
    """

    after: int
    limit: int

    def take_page(self, found: Iterable[BlockedRun]) -> list[BlockedRun]:
        """Return the first of the blocked runs that are found: one page."""
        return _take_page(found, self.limit, lambda run: _payload_bytes(run.schedule))

    def is_full(self, page: Sequence[BlockedRun]) -> bool:
        """Whether the page has no room for another run, so that the store may have more."""
        payload_bytes = sum(_payload_bytes(run.schedule) for run in page)
        return _is_full(len(page), payload_bytes, self.limit)


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


RecordLoad = LoadJob | LoadJobs | LoadUniqueHolders | LoadSchedule
Load = LoadTimers | PromoteDue | LoadReady | LoadSchedules | LoadBlocked | LoadExpired | RecordLoad


class Needs(NamedTuple):
    """The reply to a command whose records are not in memory: it has changed nothing yet.

    It is applied again, with what the loads have found, in the step that delivers them.
    """

    loads: tuple[RecordLoad, ...]


# What the loads of a command have found, None included. Where memory has a newer record, it wins.
Loaded = Mapping[RecordLoad, Any]
NOTHING_LOADED: Loaded = MappingProxyType({})

# The functions that carry out the commands of each type.
Appliers = dict[type, Callable[[Any, int, Loaded], Any]]


def _take_page(found: Iterable[T], limit: int, payload_bytes: Callable[[T], int]) -> list[T]:
    page: list[T] = []
    total = 0
    for each in found:
        page.append(each)
        total += payload_bytes(each)
        if _is_full(len(page), total, limit):
            break
    return page


def _is_full(count: int, payload_bytes: int, limit: int) -> bool:
    return count >= limit or payload_bytes >= SCHEDULE_PAGE_PAYLOADS_BYTES_MAX


def _payload_bytes(schedule: Schedule | None) -> int:
    return 0 if schedule is None else len(schedule.spec.job.payload)
