"""The fires of a rule in a range: which ones, how many, and what shifts them."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from schedo.core.fires import ScheduleFire, count_fires, list_fires
from schedo.core.limits import DAY, HOUR, MINUTE, SECOND
from schedo.core.model import Rule
from schedo.core.triggers import _next_after, jitter_for, next_after

T = TypeVar("T")


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def run(steps: Generator[None, None, T]) -> tuple[T, int]:
    """The result, and in how many steps it was made."""
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            return end.value, count


def fires(rule: Rule, first: str, last: str, limit: int = 500) -> list[ScheduleFire]:
    return run(list_fires(rule, 7, at(first), at(last), limit))[0]


def test_both_ends_of_the_range_belong_to_it() -> None:
    rule = Rule(cron="0 * * * *")

    found = fires(rule, "2027-01-15T08:00:00", "2027-01-15T10:00:00")

    assert [fire.at for fire in found] == [at(f"2027-01-15T{hour:02}:00:00") for hour in (8, 9, 10)]
    assert count_fires(rule, found[0].at, found[-1].at) == 3
    assert {fire.jitter_us for fire in found} == {0}
    assert {fire.clock_change for fire in found} == {None}


def test_a_rule_may_end_or_have_no_fire_in_the_range() -> None:
    once = Rule(at=at("2027-01-15T08:00:00"))

    assert len(fires(once, "2027-01-15T00:00:00", "2027-01-16T00:00:00")) == 1
    assert fires(once, "2027-01-16T00:00:00", "2027-01-17T00:00:00") == []
    assert count_fires(once, at("2027-01-16T00:00:00"), at("2027-01-17T00:00:00")) == 0


def test_a_dense_rule_is_listed_up_to_the_limit_in_short_steps_and_counted_whole() -> None:
    rule = Rule(every_us=SECOND)

    found, steps = run(list_fires(rule, 7, 0, DAY, 100))

    assert len(found) == 100
    assert steps >= 100 // 8
    assert count_fires(rule, 1, HOUR) == 3_600


def test_the_jitter_is_that_of_the_runs() -> None:
    rule = Rule(cron="*/5 * * * *", jitter_us=2 * MINUTE)

    found = fires(rule, "2027-01-15T08:00:00", "2027-01-15T09:00:00")

    assert [fire.jitter_us for fire in found] == [jitter_for(7, fire.at, rule) for fire in found]
    assert any(fire.jitter_us for fire in found)


def test_a_fire_that_a_clock_change_moves_or_repeats_is_marked() -> None:
    moved = Rule(cron="30 2 * * *", tz="Europe/Berlin")
    twice = Rule(cron="30 2 * * *", tz="Europe/Berlin", fold="both")

    spring = fires(moved, "2027-03-27T12:00:00", "2027-03-29T12:00:00")
    autumn = fires(twice, "2027-10-31T00:00:00", "2027-10-31T12:00:00")

    first, second = spring
    assert first.at == at("2027-03-28T01:00:00")
    assert first.clock_change is not None
    assert "there is no 02:00 to 03:00 that day" in first.clock_change
    assert second.clock_change is None
    assert [fire.clock_change for fire in autumn] == [
        "clocks go back: this is the first time of two",
        "clocks go back: this is the second time of two",
    ]


@pytest.mark.parametrize("start_at", [None, 10 * SECOND + 400_000])
def test_a_cron_instant_is_found_from_each_moment_before_it(
    start_at: int | None,
) -> None:
    rule = Rule(cron="* * * * * *", start_at=start_at)

    assert [next_after(rule, 10 * SECOND + rest) for rest in (0, 1, 500_000, SECOND - 1)] == [
        11 * SECOND
    ] * 4
    assert next_after(rule, 11 * SECOND) == 12 * SECOND


def test_listing_leaves_the_cache_of_the_timers_alone() -> None:
    before = _next_after.cache_info()

    fires(Rule(cron="7 * * * *", jitter_us=SECOND), "2027-01-15T08:00:00", "2027-01-15T20:00:00")

    assert _next_after.cache_info() == before
