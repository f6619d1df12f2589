"""The conditions that select schedules: the parameters of a list, and how many there are."""

from __future__ import annotations

from typing import Self

from msgspec import Struct

from schedo.core.schedule_filter import Health, ScheduleCounts, ScheduleFilter
from schedo.protocol.job_filters import TEXT_CHARACTERS_MAX
from schedo.protocol.query import Values, read_choice, read_text

SCHEDULE_FILTERS = ("q", "paused", "health", "failing")
_BOOLEANS = {"true": True, "false": False}


class ScheduleCountsResponse(Struct, forbid_unknown_fields=True):
    """How many schedules there are, and how many in each health but `ok`.

    A number above 1,000 is null, apart from the total.
    """

    total: int
    overdue: int
    failing: int | None
    paused: int | None
    ended: int | None

    @classmethod
    def of(cls, counts: ScheduleCounts) -> Self:
        return cls(*counts)


def read_schedule_filter(values: Values) -> ScheduleFilter:
    """Return the checked filter; raise BadRequest."""
    paused = read_choice(values, "paused", _BOOLEANS)
    health = read_choice(values, "health", [each.value for each in Health])
    failing = read_choice(values, "failing", _BOOLEANS)
    return ScheduleFilter(
        words=tuple(dict.fromkeys((read_text(values, "q", TEXT_CHARACTERS_MAX) or "").split())),
        paused=None if paused is None else _BOOLEANS[paused],
        health=None if health is None else Health(health),
        failing=failing == "true",
    )
