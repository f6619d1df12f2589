"""The instants of a cron expression in a time zone, across changes of the zone's clock.

cronsim yields local times, and this module converts each to its instant. Both steps keep the order
of time, so instants only grow. A local time in a gap means the first instant after the gap, or no
instant. A local time in a fold means its first instant, its last one, or both. An expression whose
minute or hour starts with `*` follows elapsed time: it skips the gap and fires in both passes of
the fold. All expressions are normalized (see cron_syntax).

A CronSim object takes kilobytes and 20 us, so each call creates one and keeps none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim

from schedo.core import limits
from schedo.core.cron_syntax import ParsedCron, is_fixed_time, parse_cron
from schedo.core.timezones import (
    Change,
    check_zone,
    instant_of,
    list_changes,
    load_zone,
    local_time,
    locate,
)

__all__ = [
    "ParsedCron",
    "check_zone",
    "count_fires",
    "describe_clock_change",
    "explain",
    "fires_after",
    "local_pattern",
    "next_fire",
    "parse_cron",
    "previous_fire",
]

Gap = Literal["after", "skip"]
Fold = Literal["first", "last", "both"]

_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - local times are naive on purpose
_EPOCH_DAY = date(1970, 1, 1)
_SECOND = timedelta(seconds=1)
_DAY_SECONDS = 86_400
_YEARS_SEARCHED = 50  # 29 February on a given weekday comes at the latest after 40 years


def next_fire(
    cron: str, tz: str, after_us: int, gap: Gap = "after", fold: Fold = "first"
) -> int | None:
    """Return the first instant strictly after after_us, or None if 50 years have none."""
    second = after_us // limits.SECOND
    instant = _search(cron, load_zone(tz), second, gap, fold, is_reverse=False)
    return instant if instant is not None and instant <= limits.INSTANT_MAX else None


def fires_after(
    cron: str, tz: str, after_us: int, gap: Gap = "after", fold: Fold = "first"
) -> Iterator[int]:
    """Yield the instants strictly after after_us, oldest first, as calls of next_fire find them.

    Away from changes of the clock one CronSim finds them all, at a tenth of the cost of a call.
    """
    zone = load_zone(tz)
    at: int | None = after_us
    sim: CronSim | None = None
    while at is not None:
        if sim is None:
            here = local_time(zone, at // limits.SECOND)
            sim = None if isinstance(locate(zone, here), Change) else CronSim(cron, here)
        place = None if sim is None else _next_place(sim, zone)
        if isinstance(place, int) and place * limits.SECOND <= limits.INSTANT_MAX:
            at = place * limits.SECOND
        else:
            at, sim = next_fire(cron, tz, at, gap, fold), None
        if at is not None:
            yield at


def _next_place(sim: CronSim, zone: ZoneInfo) -> int | Change | None:
    """Return where the next local time lies; None: there is none before the year 9999 ends."""
    try:
        local = next(sim, None)
        return None if local is None else locate(zone, local)
    except OverflowError:
        return None


def previous_fire(
    cron: str, tz: str, before_us: int, gap: Gap = "after", fold: Fold = "first"
) -> int | None:
    """Return the last instant strictly before before_us, or None if 50 years have none."""
    second = (before_us - 1) // limits.SECOND
    instant = _search(cron, load_zone(tz), second, gap, fold, is_reverse=True)
    return instant if instant is not None and instant >= limits.INSTANT_MIN else None


def count_fires(
    cron: str, tz: str, after_us: int, through_us: int, gap: Gap = "after", fold: Fold = "first"
) -> int:
    """Return how many instants lie in (after_us, through_us]. It takes 1 us per day."""
    zone = load_zone(tz)
    gap, fold = _effective(cron, gap, fold)
    after, through = after_us // limits.SECOND, through_us // limits.SECOND
    if through <= after:
        return 0
    sim = CronSim(cron, _ANY_DAY)
    which = 1 if fold == "last" else 0
    start, end = (_edges(zone, second)[which] + _SECOND for second in (after, through))
    count = _count_local(sim, start, end)
    # The second pass of a fold may have begun before the range does, so look one day back.
    for change in list_changes(zone, after - _DAY_SECONDS, through):
        low, high = change.window
        if change.is_gap and change.at > after:
            lost = _count_local(sim, low, high)
            is_moved = lost and gap == "after" and not _count_local(sim, high, high + _SECOND)
            count += bool(is_moved) - lost
        elif not change.is_gap and fold == "both":
            if after >= change.at:
                low = max(low, local_time(zone, after) + _SECOND)
            count += _count_local(sim, low, min(high, local_time(zone, through) + _SECOND))
    return count


def explain(cron: str) -> str:
    """Return the expression in English."""
    return CronSim(cron, _ANY_DAY).explain()


def describe_clock_change(cron: str, tz: str, fire_us: int, gap: Gap = "after") -> str | None:
    """Return in words how a change of the zone's clock affects this fire; None if it does not."""
    zone, second = load_zone(tz), fire_us // limits.SECOND
    place = locate(zone, local_time(zone, second))
    if isinstance(place, Change):
        which = "first" if second < place.at else "second"
        return f"clocks go back: this is the {which} time of two"
    if _effective(cron, gap, "first")[0] == "after":
        for change in list_changes(zone, second - 1, second):
            low, high = change.window
            if change.is_gap and _count_local(CronSim(cron, _ANY_DAY), low, high):
                return f"clocks go forward: moved, there is no {low:%H:%M} to {high:%H:%M} that day"
    return None


class LocalPattern(NamedTuple):
    """The local times of an expression, and what becomes of them in a gap and in a fold."""

    sim: CronSim
    day: int  # a bit for each second of a day
    gap: Gap
    fold: Fold

    def mask(self, start: int, count: int) -> int:
        """Return a bit for each second from a local time, in seconds since 1970, that matches."""
        mask = 0
        for day in range(start // _DAY_SECONDS, -(-(start + count) // _DAY_SECONDS)):
            if _is_match(self.sim, _EPOCH_DAY + timedelta(days=day)):
                shift = day * _DAY_SECONDS - start
                mask |= self.day << shift if shift >= 0 else self.day >> -shift
        return mask & ((1 << count) - 1)


def local_pattern(cron: str, gap: Gap, fold: Fold) -> LocalPattern:
    """Return the local times of an expression; gap, fold: as in its rule."""
    sim = CronSim(cron, _ANY_DAY)
    minute = sum(1 << second for second in sim.seconds)
    hour = sum(minute << 60 * number for number in sim.minutes)
    day = sum(hour << 3_600 * number for number in sim.hours)
    return LocalPattern(sim, day, *_effective(cron, gap, fold))


def _effective(cron: str, gap: Gap, fold: Fold) -> tuple[Gap, Fold]:
    return (gap, fold) if is_fixed_time(cron) else ("skip", "both")


def _search(
    cron: str, zone: ZoneInfo, second: int, gap: Gap, fold: Fold, *, is_reverse: bool
) -> int | None:
    """Return the first instant after the second or, in reverse, the last one up to it."""
    gap, fold = _effective(cron, gap, fold)
    try:
        first, last = _edges(zone, second)
        if fold != "both":
            passes = [fold]
        elif first != last:
            passes = ["first", "last"]
        else:  # outside of folds, one pass is enough
            passes = ["last" if is_reverse else "first"]
        found = [
            _nearest(cron, zone, first if each == "first" else last, gap, each, is_reverse)
            for each in passes
        ]
    except OverflowError:  # beyond the year 9999, or before the year 1
        return None
    seconds = [each for each in found if each is not None]
    if not seconds:
        return None
    return (max(seconds) if is_reverse else min(seconds)) * limits.SECOND


def _edges(zone: ZoneInfo, second: int) -> tuple[datetime, datetime]:
    """Return the last local times up to the second, by the first and the last pass of folds."""
    here = local_time(zone, second)
    place = locate(zone, here)
    if not isinstance(place, Change):
        return here, here
    low, high = place.window
    return (here, low - _SECOND) if second < place.at else (high - _SECOND, here)


def _nearest(
    cron: str, zone: ZoneInfo, edge: datetime, gap: Gap, fold: Fold, is_reverse: bool
) -> int | None:
    """Return the first match after the edge or, in reverse, the last one up to it."""
    start = edge + _SECOND if is_reverse else edge
    while abs(start.year - edge.year) <= _YEARS_SEARCHED:
        local = next(CronSim(cron, start, is_reverse), None)
        if local is None:
            return None
        place = locate(zone, local)
        if not isinstance(place, Change):
            return place
        if not place.is_gap:
            return instant_of(local, place.before if fold == "first" else place.after)
        if gap == "after":
            return place.at
        low, high = place.window
        start = low if is_reverse else high - _SECOND
    return None


def _count_local(sim: CronSim, start: datetime, end: datetime) -> int:
    """Return how many local times from start to before end match."""
    if start >= end:
        return 0
    per_day = len(sim.hours) * len(sim.minutes) * len(sim.seconds)
    first, last = start.date(), end.date()
    days = sum(_is_match(sim, first + timedelta(days=n)) for n in range((last - first).days))
    count = days * per_day
    if _is_match(sim, first):
        count -= _count_before(sim, start)
    if _is_match(sim, last):
        count += _count_before(sim, end)
    return count


def _is_match(sim: CronSim, day: date) -> bool:
    return day.month in sim.months and sim.match_day(day)


def _count_before(sim: CronSim, local: datetime) -> int:
    """Return how many matches a matching day has before the time of day."""
    count = sum(hour < local.hour for hour in sim.hours) * len(sim.minutes) * len(sim.seconds)
    if local.hour in sim.hours:
        count += sum(minute < local.minute for minute in sim.minutes) * len(sim.seconds)
        if local.minute in sim.minutes:
            count += sum(second < local.second for second in sim.seconds)
    return count
