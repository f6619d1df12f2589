"""Cron, compared with an oracle that checks every minute and uses only zoneinfo.

The oracle lists which local minute each instant shows. An expression is a set of values a field,
from which both its text and its matches follow; so nothing of the code under test is used.
"""

from __future__ import annotations

import calendar
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from itertools import chain, islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schedo.core.cron import (
    Fold,
    Gap,
    count_fires,
    fires_after,
    next_fire,
    parse_cron,
    previous_fire,
)
from schedo.errors import Invalid

MINUTE = timedelta(minutes=1)

# A zone and a day on which its clock changes, or a quiet one; a window is the days around it.
WINDOWS = [
    ("UTC", "2025-03-30"),
    ("Europe/Berlin", "2025-03-30"),
    ("Europe/Berlin", "2025-10-26"),
    ("Europe/Berlin", "2060-10-31"),  # beyond the table of transitions, by the rule
    ("Europe/Dublin", "2026-03-29"),  # winter time is the negative one
    ("America/New_York", "2025-03-09"),
    ("America/New_York", "2025-11-02"),
    ("America/Havana", "2025-03-09"),  # 00:00 -> 01:00
    ("America/Havana", "2025-11-02"),  # 01:00 -> 00:00
    ("America/St_Johns", "2006-10-29"),  # at 00:01, back into the day before
    ("America/Asuncion", "2023-10-01"),
    ("Atlantic/Azores", "2025-03-30"),
    ("Africa/Cairo", "2025-04-25"),
    ("Africa/Cairo", "2025-10-31"),
    ("Africa/Casablanca", "2025-02-23"),
    ("Africa/Casablanca", "2025-04-06"),
    ("Antarctica/Troll", "2025-03-30"),
    ("Antarctica/Troll", "2025-10-26"),
    ("Asia/Gaza", "2023-04-29"),
    ("Asia/Kathmandu", "2025-01-01"),
    ("Asia/Pyongyang", "2018-05-04"),  # 23:30 -> 00:00
    ("Australia/Lord_Howe", "2025-04-06"),
    ("Australia/Lord_Howe", "2025-10-05"),
    ("Pacific/Apia", "2011-12-30"),
    ("Pacific/Kiritimati", "1994-12-31"),
    ("Pacific/Chatham", "2025-04-06"),
]


@dataclass(frozen=True)
class Expression:
    """An expression as text, and the values that it matches; None matches any value."""

    cron: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    weekdays: frozenset[int] | None  # as in date.isoweekday: 7 is Sunday
    follows_elapsed_time: bool

    def matches_day(self, local: datetime) -> bool:
        is_day = self.days is None or local.day in self.days
        is_weekday = self.weekdays is None or local.isoweekday() in self.weekdays
        if self.days is not None and self.weekdays is not None:
            return is_day or is_weekday
        return is_day and is_weekday

    def matches(self, local: datetime) -> bool:
        is_time = local.minute in self.minutes and local.hour in self.hours
        return is_time and self.matches_day(local)


def field(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    values = st.integers(low, high)
    every = frozenset(range(low, high + 1))
    return st.one_of(
        st.just(("*", every)),
        st.integers(1, high).map(lambda n: (f"*/{n}", frozenset(range(low, high + 1, n)))),
        values.map(lambda n: (str(n), frozenset({n}))),
        st.frozensets(values, min_size=1, max_size=5).map(
            lambda ns: (",".join(map(str, sorted(ns))), ns)
        ),
        st.tuples(values, values, st.integers(1, 7)).map(
            lambda t: (
                f"{min(t[:2])}-{max(t[:2])}/{t[2]}",
                frozenset(range(min(t[:2]), max(t[:2]) + 1, t[2])),
            )
        ),
        st.tuples(values, st.integers(1, 20)).map(
            lambda t: (f"{t[0]}/{t[1]}", frozenset(range(t[0], high + 1, t[1])))
        ),
    )


def plain_days(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int] | None]]:
    return st.one_of(
        st.just(("*", None)),
        st.just(("?", None)),
        st.frozensets(st.integers(low, high), min_size=1, max_size=12).map(
            lambda ns: (",".join(map(str, sorted(ns))), ns)
        ),
    )


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    minute_text, minutes = draw(field(0, 59))
    hour_text, hours = draw(field(0, 23))
    day_text, days = draw(plain_days(1, 31))
    weekday_text, weekdays = draw(plain_days(1, 7))
    second_text, seconds = "", frozenset({0})
    if draw(st.booleans()):
        second_text, seconds = draw(field(0, 59))
    return Expression(
        f"{second_text} {minute_text} {hour_text} {day_text} * {weekday_text}".strip(),
        seconds,
        minutes,
        hours,
        days,
        weekdays,
        "*" in minute_text or "*" in hour_text,
    )


class Window:
    """The local time of a zone at every minute of four days."""

    def __init__(self, tz: str, day: str) -> None:
        noon = datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC)
        self.start = round((noon - timedelta(days=2)).timestamp())
        self.end = self.start + 4 * 86_400
        zone = ZoneInfo(tz)
        self.shown: dict[datetime, list[int]] = {}
        walked: list[tuple[int, datetime]] = []
        for second in range(self.start, self.end, 60):
            local = datetime.fromtimestamp(second, zone).replace(tzinfo=None)
            self.shown.setdefault(local, []).append(second)
            walked.append((second, local))
        self.gaps = {  # a local minute that does not exist: the first instant after it
            missing: second
            for (_, before), (second, local) in pairwise(walked)
            for missing in _minutes_between(before, local)
        }

    def fires(self, expression: Expression, gap: Gap, fold: Fold) -> list[int]:
        """Return every instant that the expression fires at in the window, in seconds."""
        found: set[int] = set()
        for local, instants in self.shown.items():
            if not expression.matches(local):
                continue
            if not expression.follows_elapsed_time and fold != "both":
                instants = instants[:1] if fold == "first" else instants[-1:]
            found.update(i + s for i in instants for s in expression.seconds)
        if gap == "after" and not expression.follows_elapsed_time:
            found.update(i for local, i in self.gaps.items() if expression.matches(local))
        return sorted(found)


def _minutes_between(before: datetime, after: datetime) -> list[datetime]:
    size = (after - before) // MINUTE
    return [before + n * MINUTE for n in range(1, size)]


@cache
def window(tz: str, day: str) -> Window:
    return Window(tz, day)


gaps = st.sampled_from(["after", "skip"])
folds = st.sampled_from(["first", "last", "both"])


@settings(max_examples=200)
@given(expressions(), st.sampled_from(WINDOWS), gaps, folds, st.data())
def test_the_fires_of_an_expression_are_those_of_a_simple_reference(
    expression: Expression, place: tuple[str, str], gap: Gap, fold: Fold, data: st.DataObject
) -> None:
    tz, _ = place
    days = window(*place)
    cron = parse_cron(expression.cron, seed="").normalized
    assert cron is not None
    expected = days.fires(expression, gap, fold)
    # A day from the edges: what lies beyond is the oracle's no more. Mostly near the middle, where
    # the clock changes.
    second = data.draw(
        st.integers(-86_400, 86_400) | st.integers(-10_000, 10_000).map(lambda s: s - 36_000)
    )
    start = (days.start + days.end) // 2 + second

    following = expected[bisect_left(expected, start + 1) :][:40]
    listed = islice(fires_after(cron, tz, start * 1_000_000, gap, fold), len(following))
    assert [*listed] == [wanted * 1_000_000 for wanted in following]
    after = start
    for wanted in following:
        instant = next_fire(cron, tz, after * 1_000_000, gap, fold)
        assert instant == wanted * 1_000_000
        after = wanted
    before = start
    for wanted in reversed(expected[: bisect_left(expected, start)][-40:]):
        instant = previous_fire(cron, tz, before * 1_000_000, gap, fold)
        assert instant == wanted * 1_000_000
        before = wanted


@settings(max_examples=200)
@given(
    expressions(),
    st.sampled_from(WINDOWS),
    gaps,
    folds,
    st.integers(86_400, 3 * 86_400),
    st.integers(0, 2 * 86_400),
)
@example(
    Expression(
        "*/7 * * * * *",
        frozenset(range(0, 60, 7)),
        frozenset(range(60)),
        frozenset(range(24)),
        None,
        None,
        True,
    ),
    ("Pacific/Apia", "2011-12-30"),
    "after",
    "first",
    86_400,
    2 * 86_400,
)
def test_the_count_of_fires_agrees_with_their_list(
    expression: Expression, place: tuple[str, str], gap: Gap, fold: Fold, after: int, length: int
) -> None:
    tz, _ = place
    days = window(*place)
    cron = parse_cron(expression.cron, seed="").normalized
    assert cron is not None
    after += days.start
    through = min(after + length, days.start + 3 * 86_400)
    expected = [i for i in days.fires(expression, gap, fold) if after < i <= through]

    counted = count_fires(cron, tz, after * 1_000_000, through * 1_000_000, gap, fold)

    assert counted == len(expected)


@pytest.mark.parametrize("place", WINDOWS, ids=[f"{tz}-{day}" for tz, day in WINDOWS])
@pytest.mark.parametrize("cron", ["*/20 * * * *", "10/20 0-23 * * *"])
def test_a_walk_through_a_window_repeats_no_fire(place: tuple[str, str], cron: str) -> None:
    tz, _ = place
    days = window(*place)
    instant = (days.start + 86_400) * 1_000_000
    end = (days.end - 86_400) * 1_000_000
    listed = [instant]
    while instant < end:
        following = next_fire(cron, tz, instant)
        assert following is not None
        assert following > instant
        instant = following
        listed.append(instant)

    back = [instant]
    while back[-1] > listed[1]:
        previous = previous_fire(cron, tz, back[-1])
        assert previous is not None
        back.append(previous)

    assert back[::-1] == listed[1:]
    assert count_fires(cron, tz, listed[0], listed[-1]) == len(listed) - 1


# Days: the same kind of oracle over years of dates, with the items that only day fields have.

Item = tuple[str, frozenset[date]]
YEARS = {
    first: [date(first, 1, 1) + timedelta(days=n) for n in range(9 * 365)] for first in (2024, 2096)
}
EVERY_DATE = frozenset(chain.from_iterable(YEARS.values()))


def length_of(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def is_last_working_day(day: date) -> bool:
    rest = range(day.day + 1, length_of(day) + 1)
    return day.isoweekday() < 6 and all(day.replace(day=n).isoweekday() > 5 for n in rest)


def is_day(number: int, day: date) -> bool:
    return day.day == number


def is_weekday(number: int, day: date) -> bool:
    return day.isoweekday() % 7 == number % 7


def those(test: Callable[[date], bool]) -> frozenset[date]:
    return frozenset(filter(test, EVERY_DATE))


@cache
def day_items() -> list[Item]:
    items = [(str(n), those(partial(is_day, n))) for n in range(1, 32)]
    items.append(("L", those(lambda d: d.day == length_of(d))))
    items.append(("LW", those(is_last_working_day)))
    return items


@cache
def weekday_items() -> list[Item]:
    items = []
    for n, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "7")):
        of_name = those(partial(is_weekday, n))
        items += [(name, of_name), (str(n), of_name)]
        last = frozenset(d for d in of_name if d.day + 7 > length_of(d))
        items += [(f"{n}L", last), (f"{name}L", last), (f"{name}#L", last)]
        for nth in range(1, 6):
            dates = frozenset(d for d in of_name if (d.day - 1) // 7 + 1 == nth)
            items.append((f"{name}#{nth}", dates))
    return items


def union(items: Sequence[Item]) -> Item:
    return ",".join(text for text, _ in items), frozenset().union(*(dates for _, dates in items))


def day_field(items: Sequence[Item], starred: list[Item]) -> st.SearchStrategy[Item]:
    chosen = st.lists(st.sampled_from(items), min_size=1, max_size=3)
    return chosen.map(union) | st.sampled_from([("*", EVERY_DATE), ("?", EVERY_DATE), *starred])


even_days = ("*/2", those(lambda d: d.day % 2 == 1))
even_weekdays = ("*/2", those(lambda d: d.isoweekday() in (7, 2, 4, 6)))


@settings(max_examples=200)
@given(
    day_field(day_items(), [even_days]),
    day_field(weekday_items(), [even_weekdays]),
    st.frozensets(st.integers(1, 12), min_size=1, max_size=4) | st.just(frozenset(range(1, 13))),
    st.sampled_from(sorted(YEARS)),
    st.integers(0, 8 * 365),
)
def test_date_arithmetic_agrees_with_the_calendar(
    days: Item, weekdays: Item, months: frozenset[int], first_year: int, offset: int
) -> None:
    is_both = days[0][0] in "*?" or weekdays[0][0] in "*?"
    matching = days[1] & weekdays[1] if is_both else days[1] | weekdays[1]
    expected = [d for d in YEARS[first_year] if d in matching and d.month in months]
    text = f"0 0 {days[0]} {','.join(map(str, sorted(months)))} {weekdays[0]}"
    try:
        cron = parse_cron(text, seed="").normalized
    except Invalid:
        assert not expected
        return
    assert cron is not None
    after = YEARS[first_year][offset]
    later = [d for d in expected if d > after]

    found = next_fire(cron, "UTC", midnight(after))

    if later:
        assert found == midnight(later[0])
        assert previous_fire(cron, "UTC", midnight(later[-1]) + 1) == midnight(later[-1])
    else:
        assert found is None or found > midnight(YEARS[first_year][-1])
    assert count_fires(cron, "UTC", midnight(after), midnight(YEARS[first_year][-1])) == len(later)


def midnight(day: date) -> int:
    return (day - date(1970, 1, 1)).days * 86_400_000_000
