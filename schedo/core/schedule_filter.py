"""The health of a schedule, and the conditions that select schedules for a list."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from schedo.core.model import Schedule
from schedo.core.run_history import RunHistory


class Health(StrEnum):
    """Whether a schedule needs attention: the first of these that applies to it."""

    OVERDUE = "overdue"  # its expectation is missed
    FAILING = "failing"  # its last completed or failed run has failed
    PAUSED = "paused"
    ENDED = "ended"  # it will not fire again
    OK = "ok"


class ScheduleFilter(NamedTuple):
    """The conditions that a schedule must meet, all of them.

    overdue: the schedules whose expectation is missed, which only memory knows.
    """

    words: tuple[str, ...] = ()  # each is in the name, the task or the queue
    paused: bool | None = None
    health: Health | None = None
    failing: bool = False  # also if it is overdue
    overdue: tuple[int, ...] = ()


ANY_SCHEDULE = ScheduleFilter()


class ScheduleCounts(NamedTuple):
    """How many schedules there are, and how many in each health but `ok`.

    None: more than SCHEDULES_COUNTED_MAX schedules may be in this health.
    """

    total: int
    overdue: int
    failing: int | None
    paused: int | None
    ended: int | None


def health_of(schedule: Schedule, history: RunHistory, *, is_overdue: bool) -> Health:
    """Return the health of the schedule."""
    if is_overdue:
        return Health.OVERDUE
    if history.failed_in_row:
        return Health.FAILING
    if schedule.paused:
        return Health.PAUSED
    return Health.ENDED if schedule.next_fire_at is None else Health.OK
