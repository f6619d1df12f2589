"""The next and the previous fire of an expression, away from changes of the clock."""

from __future__ import annotations

from datetime import datetime

import pytest

from schedo.core import limits
from schedo.core.cron import count_fires, explain, next_fire, previous_fire
from schedo.errors import Invalid


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("cron", "tz", "after", "expected"),
    [
        ("*/5 * * * *", "UTC", "2026-11-20T11:04:05Z", "2026-11-20T11:05:00Z"),
        ("*/5 * * * *", "UTC", "2026-11-20T11:05:00Z", "2026-11-20T11:10:00Z"),
        ("*/15 * * * * *", "UTC", "2026-11-20T11:05:59Z", "2026-11-20T11:06:00Z"),
        ("30 6 * * MON-FRI", "Europe/Berlin", "2026-11-20T05:30:00Z", "2026-11-23T05:30:00Z"),
        ("0 0 * * 7", "Asia/Kathmandu", "2026-11-20T00:00:00Z", "2026-11-21T18:15:00Z"),
        ("0 12 L * *", "UTC", "2026-02-01T00:00:00Z", "2026-02-28T12:00:00Z"),
        ("0 12 LW * *", "UTC", "2026-02-01T00:00:00Z", "2026-02-27T12:00:00Z"),
        ("0 0 * * 5L", "UTC", "2026-11-01T00:00:00Z", "2026-11-27T00:00:00Z"),
        ("0 0 * * 5#2", "UTC", "2026-11-01T00:00:00Z", "2026-11-13T00:00:00Z"),
        ("0 0 13 * 5", "UTC", "2026-11-07T00:00:00Z", "2026-11-13T00:00:00Z"),
        ("0 0 13 * 5", "UTC", "2026-11-27T00:00:00Z", "2026-12-04T00:00:00Z"),
        ("0 0 13 * */2", "UTC", "2026-11-01T00:00:00Z", "2026-12-13T00:00:00Z"),
        ("0 0 29 2 *", "UTC", "2026-11-20T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 29 2 *", "UTC", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"),
        ("0 0 29 2 */7", "UTC", "2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z"),
        ("0 0 19 1 *", "UTC", "2038-01-18T23:59:59Z", "2038-01-19T00:00:00Z"),
    ],
)
def test_the_next_fire_of_an_expression_agrees_with_the_calendar(
    cron: str, tz: str, after: str, expected: str
) -> None:
    assert next_fire(cron, tz, at(after)) == at(expected)
    assert previous_fire(cron, tz, at(expected) + 1) == at(expected)


def test_the_next_and_the_previous_fire_exclude_the_given_instant() -> None:
    noon = at("2026-11-20T12:00:00Z")
    day = 86_400_000_000

    assert next_fire("0 12 * * *", "UTC", noon - 1) == noon
    assert next_fire("0 12 * * *", "UTC", noon) == noon + day
    assert next_fire("0 12 * * *", "UTC", noon + 1) == noon + day
    assert previous_fire("0 12 * * *", "UTC", noon + 1) == noon
    assert previous_fire("0 12 * * *", "UTC", noon) == noon - day
    assert previous_fire("0 12 * * *", "UTC", noon - 1) == noon - day


def test_the_range_that_is_counted_excludes_its_start_and_includes_its_end() -> None:
    noon = at("2026-11-20T12:00:00Z")

    assert count_fires("0 12 * * *", "UTC", noon - 1, noon) == 1
    assert count_fires("0 12 * * *", "UTC", noon - 1_000_000, noon - 1) == 0
    assert count_fires("0 12 * * *", "UTC", noon, noon + 5_000_000) == 0
    assert count_fires("0 12 * * *", "UTC", noon, noon) == 0
    assert count_fires("0 12 * * *", "UTC", noon, noon - 5_000_000) == 0


def test_a_year_of_seconds_is_counted() -> None:
    start, end = at("2024-12-31T23:59:59Z"), at("2025-12-31T23:59:59Z")

    assert count_fires("* * * * * *", "UTC", start, end) == 31_536_000
    assert count_fires("* * * * * *", "Europe/Berlin", start, end) == 31_536_000
    assert count_fires("* * * * *", "Europe/Berlin", start, end) == 525_600
    assert count_fires("30 2 * * *", "Europe/Berlin", start, end) == 365
    assert count_fires("30 2 * * *", "Europe/Berlin", start, end, gap="skip") == 364
    assert count_fires("30 2 * * *", "Europe/Berlin", start, end, fold="last") == 365
    assert count_fires("30 2 * * *", "Europe/Berlin", start, end, fold="both") == 366


@pytest.mark.parametrize(
    ("cron", "after", "through", "counted"),
    [
        ("*/30 * * * *", "2025-11-02T01:15-04:00", "2025-11-02T01:15-05:00", 2),
        ("*/30 * * * *", "2025-11-02T01:15-05:00", "2025-11-02T03:00-05:00", 4),
        ("15,45 1 * * *", "2025-11-02T01:30-04:00", "2025-11-02T02:00-05:00", 1),
        ("15,45 1 * * *", "2025-11-02T01:00-05:00", "2025-11-02T02:00-05:00", 0),
        ("30 1,2 * * *", "2025-03-09T01:45-05:00", "2025-03-09T03:00-04:00", 1),
        ("0 2-3 * * *", "2025-03-09T01:45-05:00", "2025-03-09T03:00-04:00", 1),
        ("*/30 * * * *", "2025-11-02T03:00-05:00", "2025-11-02T04:00-05:00", 2),
        ("0 1 4 * *", "2025-11-02T00:00-04:00", "2025-11-05T00:00-05:00", 1),
        ("* 30 1 * * *", "2025-11-04T01:30:29-05:00", "2025-11-04T01:30:40-05:00", 11),
    ],
)
def test_fires_are_counted_between_any_two_instants(
    cron: str, after: str, through: str, counted: int
) -> None:
    assert count_fires(cron, "America/New_York", at(after), at(through)) == counted


def test_an_expression_that_matches_no_day_has_no_fires() -> None:
    assert next_fire("0 0 */31 * 1#5", "UTC", 0) is None
    assert previous_fire("0 0 */31 * 1#5", "UTC", at("2070-01-01T00:00:00Z")) is None


def test_no_expression_fires_after_the_last_year() -> None:
    assert next_fire("0 0 1 1 *", "UTC", at("9999-06-01T00:00:00Z")) is None
    assert next_fire("* * * * *", "Pacific/Kiritimati", limits.INSTANT_MAX) is None
    assert next_fire("0 0 * * *", "Pacific/Pago_Pago", limits.INSTANT_MAX - 1) is None


def test_no_expression_fired_before_1970() -> None:
    assert previous_fire("* * * * *", "UTC", 0) is None
    assert previous_fire("0 12 * * *", "America/New_York", 1_000_000) is None
    assert previous_fire("* * * * *", "UTC", 1) == 0


def test_instants_in_the_first_years_of_the_epoch_are_accepted() -> None:
    assert next_fire("0 0 1 1 *", "UTC", -1) == 0


def test_a_thousand_consecutive_fires_are_in_strict_order() -> None:
    instant = at("2026-11-20T00:00:00Z")
    for _ in range(1_000):
        following = next_fire("7/13 */5 * * *", "America/Havana", instant)
        assert following is not None
        assert following > instant
        instant = following


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(Invalid, match="/tz"):
        next_fire("* * * * *", "Mars/Base", 0)


@pytest.mark.parametrize(
    ("cron", "text"),
    [
        ("*/5 * * * *", "Every fifth minute of every hour"),
        ("30 6 * * MON-FRI", "At 06:30 on Monday through Friday"),
        ("0 0 L * *", "At 00:00 on the last day of every month"),
    ],
)
def test_an_expression_is_explained_in_english(cron: str, text: str) -> None:
    assert explain(cron) == text
