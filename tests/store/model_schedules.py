"""The lists of schedules of the naive store, and their decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from schedo.core import limits
from schedo.core.changes import Changes
from schedo.core.job_filter import lower
from schedo.core.model import DecisionRecord, Schedule
from schedo.core.run_history import NO_RUNS, RunHistory, ScheduleStatus
from schedo.core.schedule_filter import Health, ScheduleCounts, ScheduleFilter, health_of
from schedo.store.pages import DecisionPage, SchedulePage

Schedules = Mapping[int, Schedule]
Histories = Mapping[int, RunHistory]


def list_schedules(
    schedules: Schedules, histories: Histories, after: str | None, limit: int, which: ScheduleFilter
) -> SchedulePage:
    """Return the first schedules of the filter, by name."""

    def matches(schedule: Schedule) -> bool:
        text = lower(f"{schedule.name} {schedule.spec.job.task} {schedule.spec.job.queue}")
        history = histories.get(schedule.id, NO_RUNS)
        return (
            schedule.name > (after or "")
            and all(lower(word) in text for word in which.words)
            and which.paused in (None, schedule.paused)
            and which.health in (None, _health_of(schedule, histories, which.overdue))
            and (not which.failing or history.failed_in_row > 0)
        )

    found = sorted(filter(matches, schedules.values()), key=lambda schedule: schedule.name)
    page = [schedule.copy() for schedule in found[:limit]]
    return SchedulePage(page, page[-1].name if len(page) == limit else None)


def count_schedules(
    schedules: Schedules, histories: Histories, overdue: Collection[int]
) -> ScheduleCounts:
    """Return how many schedules there are in each health."""
    counts = Counter(_health_of(each, histories, overdue) for each in schedules.values())
    shown = (Health.OVERDUE, Health.FAILING, Health.PAUSED, Health.ENDED)
    return ScheduleCounts(len(schedules), *(counts[each] for each in shown))


def list_statuses(
    schedules: Schedules, histories: Histories, after: int, limit: int
) -> list[ScheduleStatus]:
    """Return what monitoring shows of schedules, in order of id."""
    found = [schedule for ident, schedule in sorted(schedules.items()) if ident > after]
    return [
        ScheduleStatus(
            *(each.id, each.name, each.created_at, each.paused), histories.get(each.id, NO_RUNS)
        )
        for each in found[:limit]
    ]


def _health_of(schedule: Schedule, histories: Histories, overdue: Collection[int]) -> Health:
    history = histories.get(schedule.id, NO_RUNS)
    return health_of(schedule, history, is_overdue=schedule.id in overdue)


class Decisions:
    """The decisions of a schedule, oldest first, each with its number."""

    def __init__(self) -> None:
        self._items: list[tuple[int, DecisionRecord]] = []

    def add(self, decision: DecisionRecord) -> None:
        last = self._items[-1][0] if self._items else 0
        self._items.append((last + 1, decision))

    def trim(self) -> None:
        """Drop what is too much, and two old ones at most."""
        items = self._items
        oldest = items[-1][1].decided_at - limits.DECISIONS_KEPT_US
        if len(items) > 1 and items[1][1].decided_at < oldest:
            del items[: max(0, min(2, len(items) - limits.DECISIONS_KEPT_MIN))]
        del items[: -limits.DECISIONS_KEPT]

    def list(self, limit: int, before: int | None) -> DecisionPage:
        found = [item for item in reversed(self._items) if before is None or item[0] < before]
        page = found[:limit]
        return DecisionPage([each for _, each in page], page[-1][0] if len(found) > limit else None)


def put_decisions(known: dict[int, Decisions], changes: Changes, deleted: Collection[int]) -> int:
    """Add the decisions of the changes; return the instant of the newest, or 0."""
    added = [each for each in changes.decisions if each.schedule_id not in deleted]
    for decision in added:
        known.setdefault(decision.schedule_id, Decisions()).add(decision)
    for schedule_id in {each.schedule_id for each in added}:
        known[schedule_id].trim()
    return max((each.decided_at for each in added), default=0)
