"""The fires of a rule in a range of time, with what shifts them: jitter and clock changes."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from schedo.core.cron import describe_clock_change
from schedo.core.model import Rule
from schedo.core.triggers import instants_after, jitter_before, latest_through

_FIRES_IN_A_STEP = 8  # a fire takes 0.02 ms, but one that comes every few years 1 ms


class ScheduleFire(NamedTuple):
    """One instant of a rule."""

    at: int
    jitter_us: int  # how much later its run is due
    clock_change: str | None  # how a change of the zone's clock affects it


def list_fires(
    rule: Rule, schedule_id: int, first: int, last: int, limit: int
) -> Generator[None, None, list[ScheduleFire]]:
    """Return the first fires of a schedule from one instant to another, in short steps."""
    found: list[ScheduleFire] = []
    instants = instants_after(rule, first - 1)
    at = next(instants, None)
    while at is not None and at <= last and len(found) < limit:
        following = next(instants, None)
        jitter_us = jitter_before(schedule_id, at, rule, following)
        change = None
        if rule.cron is not None:
            change = describe_clock_change(rule.cron, rule.tz, at, rule.gap)
        found.append(ScheduleFire(at, jitter_us, change))
        at = following
        if len(found) % _FIRES_IN_A_STEP == 0:
            yield
    return found


def count_fires(rule: Rule, first: int, last: int) -> int:
    """Return how many fires there are from one instant to another, up to MISSED_COUNT_MAX."""
    return latest_through(rule, first - 1, last, 0)[1]
