"""Computes when a schedule must fire in a slow and simple way, without schedo's own calendar.

Intervals are counted one by one, from where steps of the clock have moved them. A cron expression
is compared with every minute in its zone, as zoneinfo defines it. It may have numbers, lists,
ranges and steps, which is all that the simulation uses; a day of month and a weekday must both
match (AND).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from schedo.core.model import Rule

SECOND_US = 1_000_000
DAY_MINUTES = 1_440
RANGES = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def instants(rule: Rule, after: int, through: int) -> list[int]:
    """Return every instant of the rule in (after, through], oldest first."""
    if rule.start_at is not None:
        after = max(after, rule.start_at + rule.phase_us - 1)
    if rule.end_at is not None:
        through = min(through, rule.end_at)
    if through <= after:
        return []
    if rule.at is not None:
        return [rule.at] if after < rule.at <= through else []
    if rule.every_us is not None:
        return _interval((rule.start_at or 0) + rule.phase_us, rule.every_us, after, through)
    assert rule.cron is not None, "a rule is one of three"
    found = []
    for day in range(after // SECOND_US // 86_400, through // SECOND_US // 86_400 + 1):
        found += _cron_day(rule.cron, rule.tz, rule.gap, rule.fold, day)
    return [instant for instant in found if after < instant <= through]


def _interval(anchor: int, every_us: int, after: int, through: int) -> list[int]:
    instant = anchor
    if instant <= after:  # skip the multiples before `after`
        instant += (after - anchor) // every_us * every_us
    found = []
    while instant <= through:
        if instant > after:
            found.append(instant)
        instant += every_us
    return found


@lru_cache(maxsize=4_096)
def _cron_day(cron: str, tz: str, gap: str, fold: str, day: int) -> list[int]:
    """Return the instants within a UTC day, by walking its minutes."""
    parts = cron.split()
    seconds, minutes, hours, days, months, weekdays = (
        _values(text, low, high)
        for text, (low, high) in zip(["0", *parts][-6:], RANGES, strict=True)
    )
    is_fixed = not (parts[-5].startswith("*") or parts[-4].startswith("*"))
    zone = ZoneInfo(tz)
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
    before = (start - timedelta(minutes=1)).astimezone(zone)

    def matches(local: datetime) -> bool:
        return (
            local.minute in minutes
            and local.hour in hours
            and local.day in days
            and local.month in months
            and local.isoweekday() % 7 in weekdays
        )

    found = []
    for minute in range(DAY_MINUTES):
        utc = start + timedelta(minutes=minute)
        local = utc.astimezone(zone)
        runs = matches(local) and (not is_fixed or _is_wanted_pass(local, fold))
        if is_fixed and gap == "after" and not runs:
            runs = any(matches(lost) for lost in _lost_minutes(before, local))
        if runs:
            at = (day * DAY_MINUTES + minute) * 60
            found += [(at + second) * SECOND_US for second in sorted(seconds)]
        before = local
    return found


def _is_wanted_pass(local: datetime, fold: str) -> bool:
    """Return whether a local time that exists twice runs at this occurrence."""
    comes_twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    return not comes_twice or fold == "both" or local.fold == (1 if fold == "last" else 0)


def _lost_minutes(before: datetime, local: datetime) -> list[datetime]:
    """Return the local minutes that the clock skips between two consecutive minutes."""
    last, first = before.replace(tzinfo=None), local.replace(tzinfo=None)
    count = (first - last) // timedelta(minutes=1) - 1
    return [last + timedelta(minutes=number + 1) for number in range(max(0, count))]


def _values(text: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        start, dash, end = span.partition("-")
        if span == "*":
            numbers = range(low, high + 1)
        elif dash:
            numbers = range(int(start), int(end) + 1)
        else:
            numbers = range(int(start), (high if step else int(start)) + 1)
        found.update(numbers[:: int(step or 1)])
    return frozenset(found)
