"""The seconds in which rules fire, as bits, and how many rules share a second."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from itertools import accumulate
from random import Random
from typing import TypeVar

import pytest

from schedo.core.fire_masks import Span, Tally, mask_of, seconds_of, split
from schedo.core.limits import SECOND
from schedo.core.model import Rule
from schedo.core.triggers import next_after

T = TypeVar("T")
DAY = 86_400


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def run(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def masked(rule: Rule, span: Span) -> list[int]:
    """The seconds of the mask, in parts as the map reads them."""
    parts = split(run(mask_of(rule, span)), span, 300)
    return [place * 300 + second for place, part in enumerate(parts) for second in seconds_of(part)]


def fired(rule: Rule, span: Span) -> list[int]:
    """The same, by the instants that the timers would use."""
    seconds: dict[int, None] = {}
    instant = next_after(rule, span.first * SECOND - 1)
    while instant is not None and instant < span.end * SECOND:
        seconds[instant // SECOND - span.first] = None
        instant = next_after(rule, instant)
    return [*seconds]


SPRING, AUTUMN = Span(at("2027-03-27T20:00:00"), DAY), Span(at("2027-10-30T20:00:00"), DAY)
FIRST, S = SPRING.first, SECOND
RULES = [
    Rule(cron="30 2 * * *", tz="Europe/Berlin"),
    Rule(cron="30 2,3 * * *", tz="Europe/Berlin", gap="skip"),
    Rule(cron="0,30 2,3 * * *", tz="Europe/Berlin", gap="after"),
    Rule(cron="30 2 * * *", tz="Europe/Berlin", fold="last"),
    Rule(cron="30 2 * * *", tz="Europe/Berlin", fold="both"),
    Rule(cron="*/20 * * * *", tz="Europe/Berlin"),
    Rule(cron="15 * * * 0", tz="Australia/Lord_Howe"),
    Rule(cron="45 2 * * *", tz="Pacific/Chatham"),
    Rule(cron="*/7 3 4 * * *", start_at=(FIRST + 4_000) * S + 1, end_at=(FIRST + 40_000) * S),
    Rule(cron="0 0 1 6 *"),
    Rule(every_us=7 * S, phase_us=123_456),
    Rule(every_us=1_500_000, start_at=(FIRST + 10) * S + 1),
    Rule(every_us=90_000_017),
    Rule(every_us=60 * S, start_at=(FIRST - 100) * S, end_at=(FIRST + 200) * S),
    Rule(every_us=60 * S, start_at=(FIRST + 2 * DAY) * S),
    Rule(every_us=100_000, start_at=(FIRST + 5) * S, end_at=(FIRST + 9) * S),
    Rule(at=(FIRST + 77) * S + 5),
    Rule(at=(FIRST - 1) * S),
]


@pytest.mark.parametrize("span", [SPRING, AUTUMN], ids=["spring", "autumn"])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_mask_has_the_seconds_in_which_the_rule_fires(rule: Rule, span: Span) -> None:
    assert masked(rule, span) == fired(rule, span)


@pytest.mark.parametrize("seed", range(5))
def test_a_range_may_begin_and_end_anywhere_near_a_change_of_the_clock(seed: int) -> None:
    random = Random(seed)
    for rule in RULES[:8]:
        change = random.choice([at("2027-03-28T01:00:00"), at("2027-10-31T01:00:00")])
        span = Span(change + random.randint(-9_000, 4_000), random.randint(300, 9_000))

        assert masked(rule, span) == fired(rule, span), (rule, span)


def test_an_interval_with_any_fraction_is_masked_in_short_steps() -> None:
    rule = Rule(every_us=10_000_001)

    steps = sum(1 for _ in mask_of(rule, Span(0, DAY)))

    assert masked(rule, Span(0, DAY)) == fired(rule, Span(0, DAY))
    assert steps == DAY // 10 // 2_048


def test_the_largest_count_of_each_part_is_that_of_a_list() -> None:
    random, span, tally = Random(1), Span(0, 1_000), Tally()
    counts = [0] * span.seconds
    for _ in range(50):
        mask, times = (
            random.getrandbits(span.seconds) & random.getrandbits(900),
            random.randint(1, 9),
        )
        tally.add(mask, times)
        for second in seconds_of(mask):
            counts[second] += times

    found = tally.largest(span, 300)

    for (count, second), part in zip(found, (0, 300, 600, 900), strict=True):
        expected = counts[part : part + 300]
        assert count == max(expected)
        assert second == (part + expected.index(count) if count else 0)
    assert [*accumulate(count for count, _ in found)][-1] > 0


def test_nothing_fires_together_where_nothing_fires() -> None:
    assert Tally().largest(Span(0, 700), 300) == [(0, 0)] * 3
