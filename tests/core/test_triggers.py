"""The instants of rules: cron, intervals and single ones."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedo.core import limits
from schedo.core.model import Rule
from schedo.core.triggers import (
    check_rule,
    instants_after,
    jitter_for,
    latest_through,
    next_after,
)
from schedo.errors import Invalid

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
T0 = 20_000 * DAY  # 2024-10-04T00:00Z


def test_an_interval_is_aligned_to_1970() -> None:
    rule = Rule(every_us=7 * SECOND)

    first = next_after(rule, T0)

    assert first is not None
    assert first % (7 * SECOND) == 0
    assert 0 < first - T0 <= 7 * SECOND
    assert next_after(rule, first) == first + 7 * SECOND


def test_an_interval_is_anchored_at_its_start() -> None:
    rule = Rule(every_us=HOUR, start_at=T0 + 5)

    assert next_after(rule, 0) == T0 + 5
    assert next_after(rule, T0 + 4) == T0 + 5
    assert next_after(rule, T0 + 5) == T0 + 5 + HOUR
    assert next_after(rule, T0 + 5 + HOUR - 1) == T0 + 5 + HOUR


def test_an_interval_in_milliseconds_is_not_rounded() -> None:
    rule = Rule(every_us=250_000)

    assert next_after(rule, T0) == T0 + 250_000
    assert next_after(rule, T0 + 249_999) == T0 + 250_000


def test_a_rule_of_one_instant_fires_once() -> None:
    rule = Rule(at=T0)

    assert next_after(rule, T0 - 1) == T0
    assert next_after(rule, T0) is None


def test_a_rule_without_a_time_never_fires() -> None:
    assert next_after(Rule(), T0) is None
    assert latest_through(Rule(), T0, T0 + DAY, 5) == ([], 0)


def test_the_start_and_the_end_of_a_rule_are_inclusive() -> None:
    rule = Rule(cron="0 * * * *", start_at=T0 + HOUR, end_at=T0 + 3 * HOUR)

    assert next_after(rule, 0) == T0 + HOUR
    assert next_after(rule, T0 + 2 * HOUR) == T0 + 3 * HOUR
    assert next_after(rule, T0 + 3 * HOUR) is None
    assert latest_through(rule, 0, T0 + DAY, 10) == (
        [T0 + 3 * HOUR, T0 + 2 * HOUR, T0 + HOUR],
        3,
    )


def test_an_interval_does_not_pass_the_last_year() -> None:
    assert next_after(Rule(every_us=DAY), limits.INSTANT_MAX) is None


@pytest.mark.parametrize(
    "rule",
    [Rule(cron="* * * * * *"), Rule(every_us=SECOND), Rule(cron="0-59 0-59 0-23 * * *")],
    ids=["cron", "interval", "fixed-time-cron"],
)
def test_the_fires_of_a_year_of_downtime_are_counted_without_listing_them(rule: Rule) -> None:
    instants, counted = latest_through(rule, T0, T0 + 365 * DAY, 3)

    end = T0 + 365 * DAY
    assert instants == [end, end - SECOND, end - 2 * SECOND]
    assert counted == limits.MISSED_COUNT_MAX


@pytest.mark.parametrize(
    ("rule", "counted"),
    [
        (Rule(cron="0 * * * *"), 48),
        (Rule(cron="0 6 * * *", tz="Asia/Tokyo"), 2),
        (Rule(every_us=7 * HOUR), 7),  # T0 is 3 h after a multiple, so the first is 4 h later
        (Rule(every_us=7 * HOUR, start_at=T0 - HOUR), 7),
        (Rule(every_us=7 * HOUR, start_at=T0 + HOUR), 7),
        (Rule(at=T0 + 1), 1),
        (Rule(at=T0), 0),
        (Rule(at=T0 + 2 * DAY), 1),
        (Rule(at=T0 + 2 * DAY + 1), 0),
    ],
)
@pytest.mark.parametrize("count_max", [0, 1, 3, 1_000])
def test_the_count_of_fires_does_not_depend_on_how_many_are_listed(
    rule: Rule, counted: int, count_max: int
) -> None:
    instants, found = latest_through(rule, T0, T0 + 2 * DAY, count_max)

    assert found == counted
    assert len(instants) == min(counted, count_max)
    assert all(later > earlier for later, earlier in pairwise(instants))


def test_an_empty_range_has_no_fires() -> None:
    rule = Rule(cron="* * * * *")

    assert latest_through(rule, T0, T0, 5) == ([], 0)
    assert latest_through(rule, T0, T0 - HOUR, 0) == ([], 0)
    assert latest_through(Rule(every_us=MINUTE, end_at=T0), T0 + HOUR, T0 + DAY, 0) == ([], 0)


RULES = [
    Rule(cron="*/20 * * * *", tz="Australia/Lord_Howe"),
    Rule(cron="30 2 * * *", tz="Europe/Berlin", gap="skip", fold="both"),
    Rule(cron="*/7 * * * * *"),
    Rule(every_us=700_001, start_at=T0 + 12_345),
    Rule(every_us=13 * MINUTE, end_at=T0 + 5 * HOUR),
    Rule(at=T0 + HOUR),
    Rule(cron="15 14 * * *", start_at=T0 + 2 * DAY, end_at=T0 + 4 * DAY),
]


@given(st.sampled_from(RULES), st.integers(0, DAY), st.integers(0, 10 * MINUTE))
def test_a_search_backward_finds_the_same_fires_as_a_search_forward(
    rule: Rule, offset: int, length: int
) -> None:
    after = T0 + offset
    forward = []
    instant = next_after(rule, after)
    while instant is not None and instant <= after + length:
        forward.append(instant)
        instant = next_after(rule, instant)

    instants, counted = latest_through(rule, after, after + length, 10_000)

    assert instants == forward[::-1]
    assert counted == len(forward)


@given(st.sampled_from(RULES), st.integers(-DAY, 3 * DAY))
def test_the_instants_of_a_list_are_found_one_by_one_as_well(rule: Rule, offset: int) -> None:
    found: list[int] = []
    instant = next_after(rule, T0 + offset)
    while instant is not None and len(found) < 10:
        found.append(instant)
        instant = next_after(rule, instant)

    assert [*islice(instants_after(rule, T0 + offset), 10)] == found


@pytest.mark.parametrize(
    "rule", [Rule(cron="0 0 1 1 *"), Rule(cron="0 0 1 1 *", tz="Asia/Tokyo"), Rule(every_us=DAY)]
)
def test_a_list_ends_with_the_last_year(rule: Rule) -> None:
    listed = [*instants_after(rule, limits.INSTANT_MAX - 3 * 366 * DAY)]

    assert listed
    assert next_after(rule, listed[-1]) is None


def test_jitter_is_the_same_each_time_and_differs_between_schedules() -> None:
    rule = Rule(cron="0 0 * * *", jitter_us=HOUR)

    chosen = {jitter_for(number, T0, rule) for number in range(100)}

    assert jitter_for(7, T0, rule) == jitter_for(7, T0, rule)
    assert len(chosen) == 100
    assert min(chosen) >= 0
    assert max(chosen) <= HOUR
    assert max(chosen) > 50 * MINUTE  # they use the whole hour
    assert min(chosen) < 10 * MINUTE


def test_jitter_stays_before_the_next_instant() -> None:
    rule = Rule(every_us=MINUTE, jitter_us=HOUR)

    assert all(jitter_for(number, T0, rule) < MINUTE for number in range(200))


def test_jitter_after_the_last_instant_has_its_whole_range() -> None:
    chosen = {jitter_for(number, T0, Rule(at=T0, jitter_us=3)) for number in range(100)}

    assert chosen == {0, 1, 2, 3}


def test_a_rule_without_jitter_adds_no_delay() -> None:
    assert jitter_for(7, T0, Rule(every_us=MINUTE)) == 0


@pytest.mark.parametrize(
    "rule",
    [
        Rule(cron="30 2 * * MON-FRI", tz="Europe/Berlin"),
        Rule(every_us=100_000),
        Rule(at=T0),
        Rule(every_us=HOUR, start_at=T0, end_at=T0 + 1, jitter_us=HOUR),
    ],
)
def test_a_valid_rule_is_accepted(rule: Rule) -> None:
    check_rule(rule, T0)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Rule(), ": give exactly one of cron, every and at"),
        (Rule(cron="* * * * *", at=T0), ": give exactly one of cron, every and at"),
        (Rule(cron="* * * * *", tz="EST"), "/tz: 'EST' is not an IANA time zone name"),
        (Rule(every_us=99_999), "/every: an interval is between 100ms and 100 years"),
        (Rule(every_us=0), "/every: an interval is between 100ms and 100 years"),
        (Rule(every_us=101 * 366 * DAY), "/every: an interval is between"),
        (Rule(every_us=DAY, jitter_us=-1), "/jitter: a jitter is between 0 and 100 years"),
        (Rule(at=-1), "/at: the instant is not between the years 1970 and 9999"),
        (Rule(at=limits.INSTANT_MAX + 1), "/at: the instant is not between"),
        (Rule(every_us=DAY, start_at=-1), "/start_at: the instant is not between"),
        (Rule(every_us=DAY, end_at=2**63), "/end_at: the instant is not between"),
        (Rule(every_us=DAY, start_at=T0, end_at=T0), "/end_at: end_at is not after start_at"),
        (Rule(cron="61 * * * *"), "/cron: minute '61'"),
        (Rule(cron="@daily"), "/cron: '@daily' is not in its normalized form"),
        (Rule(cron="0 0 1 1 *", end_at=T0 + DAY), "/end_at: the schedule never fires before"),
        (Rule(every_us=DAY, end_at=T0 - 1), "/end_at: the schedule never fires before its end"),
        (Rule(at=T0 - 1), "/at: the instant has passed"),
        (
            Rule(cron="*/15 2 * 3 0L", tz="Europe/Berlin"),
            "/cron: the schedule never fires in Europe/Berlin",
        ),
        (
            Rule(every_us=100 * 366 * DAY, start_at=limits.INSTANT_MAX),
            "/every: the schedule never fires",
        ),
    ],
)
def test_an_invalid_rule_is_refused_at_its_field(rule: Rule, said: str) -> None:
    now = limits.INSTANT_MAX + 1 if rule.start_at == limits.INSTANT_MAX else T0

    with pytest.raises(Invalid) as caught:
        check_rule(rule, now)

    pointer, _, detail = said.partition(": ")
    assert caught.value.problems[0].pointer == pointer
    assert caught.value.problems[0].detail.startswith(detail)
