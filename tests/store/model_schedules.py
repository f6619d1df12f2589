"""The lists of schedules of the naive store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from schedo.core.job_filter import lower
from schedo.core.model import Schedule
from schedo.core.run_history import NO_RUNS, RunHistory
from schedo.core.schedule_filter import Health, ScheduleCounts, ScheduleFilter, health_of
from schedo.store.base import SchedulePage

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


def _health_of(schedule: Schedule, histories: Histories, overdue: Collection[int]) -> Health:
    history = histories.get(schedule.id, NO_RUNS)
    return health_of(schedule, history, is_overdue=schedule.id in overdue)
