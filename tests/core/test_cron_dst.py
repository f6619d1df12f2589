"""Cron across changes of the clock, in real zones.

America/New_York       2025-03-09 02:00 -> 03:00, 2025-11-02 02:00 -> 01:00
Europe/Berlin          2025-03-30 02:00 -> 03:00, 2025-10-26 03:00 -> 02:00
Europe/Zurich          2026-03-29 02:00 -> 03:00, 2026-10-25 03:00 -> 02:00
Africa/Cairo           2025-04-25 00:00 -> 01:00 (midnight does not exist)
Australia/Lord_Howe    2025-10-05 02:00 -> 02:30, 2025-04-06 02:00 -> 01:30 (half an hour)
Pacific/Apia           2011-12-30 is left out
Antarctica/Troll       2025-03-30 01:00 -> 03:00, 2025-10-26 03:00 -> 01:00 (two hours)
Africa/Casablanca      2025-02-23 03:00 -> 02:00, 2025-04-06 02:00 -> 03:00 (around Ramadan)
Pacific/Kiritimati     1994-12-31 is left out
Asia/Gaza              2023-04-29 02:00 -> 03:00
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from schedo.core.cron import (
    Fold,
    Gap,
    describe_clock_change,
    next_fire,
    parse_cron,
    previous_fire,
)


def at(text: str, tz: str = "UTC") -> int:
    """Return microseconds for a local time, or for one that has its offset."""
    local = datetime.fromisoformat(text)
    aware = local if local.tzinfo else local.replace(tzinfo=ZoneInfo(tz))
    return round(aware.timestamp()) * 1_000_000


def fires(cron: str, tz: str, after: int, count: int, gap: Gap, fold: Fold) -> list[int]:
    found = []
    for _ in range(count):
        instant = next_fire(cron, tz, after, gap, fold)
        assert instant is not None
        found.append(instant)
        after = instant
    return found


def check(
    tz: str, cron: str, start: str, *expected: str, gap: Gap = "after", fold: Fold = "first"
) -> None:
    """Check the fires after start one by one, and the same ones going back."""
    wanted = [at(text) for text in expected]
    assert fires(cron, tz, at(start, tz), len(wanted), gap, fold) == wanted
    before = wanted[-1] + 1
    for instant in reversed(wanted):
        found = previous_fire(cron, tz, before, gap, fold)
        assert found == instant
        before = found


NEW_YORK = "America/New_York"
BERLIN = "Europe/Berlin"
ZURICH = "Europe/Zurich"
LORD_HOWE = "Australia/Lord_Howe"


VECTORS: dict[str, tuple[str, str, str, list[str]]] = {
    "a-gap-moves-a-daily-run-to-its-end": (
        NEW_YORK,
        "30 2 * * *",
        "2025-03-08T12:00",
        ["2025-03-09T03:00-04:00", "2025-03-10T02:30-04:00"],
    ),
    "two-times-become-one-run-after-the-gap": (
        NEW_YORK,
        "0 2-4 * * *",
        "2025-03-09T00:30",
        ["2025-03-09T03:00-04:00", "2025-03-09T04:00-04:00", "2025-03-10T02:00-04:00"],
    ),
    "a-fold-runs-once": (
        NEW_YORK,
        "30 1 * * *",
        "2025-11-01T12:00",
        ["2025-11-02T01:30-04:00", "2025-11-03T01:30-05:00"],
    ),
    "half-hours-run-in-both-passes": (
        NEW_YORK,
        "*/30 * * * *",
        "2025-11-02T00:45",
        [
            "2025-11-02T01:00-04:00",
            "2025-11-02T01:30-04:00",
            "2025-11-02T01:00-05:00",
            "2025-11-02T01:30-05:00",
            "2025-11-02T02:00-05:00",
        ],
    ),
    "several-fixed-hours-over-a-fold": (
        NEW_YORK,
        "0 1-3 * * *",
        "2025-11-02T00:30",
        ["2025-11-02T01:00-04:00", "2025-11-02T02:00-05:00", "2025-11-02T03:00-05:00"],
    ),
    "a-wildcard-skips-the-gap": (
        BERLIN,
        "*/15 2 * * *",
        "2025-03-29T12:00",
        ["2025-03-31T02:00+02:00"],
    ),
    "even-hours-over-a-gap": (
        BERLIN,
        "0 */2 * * *",
        "2025-03-30T00:30",
        ["2025-03-30T04:00+02:00", "2025-03-30T06:00+02:00"],
    ),
    "even-hours-over-a-fold": (
        BERLIN,
        "0 */2 * * *",
        "2025-10-26T00:30",
        ["2025-10-26T02:00+02:00", "2025-10-26T02:00+01:00", "2025-10-26T04:00+01:00"],
    ),
    "midnight-does-not-exist": (
        "Africa/Cairo",
        "0 0 * * *",
        "2025-04-24T12:00",
        ["2025-04-25T01:00+03:00"],
    ),
    "a-gap-of-half-an-hour": (
        LORD_HOWE,
        "15 2 * * *",
        "2025-10-04T12:00",
        ["2025-10-05T02:30+11:00"],
    ),
    "a-fold-of-half-an-hour": (
        LORD_HOWE,
        "45 1 * * *",
        "2025-04-05T12:00",
        ["2025-04-06T01:45+11:00", "2025-04-07T01:45+10:30"],
    ),
    "a-day-that-does-not-exist": (
        "Pacific/Apia",
        "0 12 * * *",
        "2011-12-29T00:00",
        ["2011-12-29T12:00-10:00", "2011-12-31T00:00+14:00", "2011-12-31T12:00+14:00"],
    ),
}


@pytest.mark.parametrize(("tz", "cron", "start", "expected"), VECTORS.values(), ids=VECTORS.keys())
def test_the_documented_dst_examples_hold(
    tz: str, cron: str, start: str, expected: list[str]
) -> None:
    check(tz, cron, start, *expected)


MORE_VECTORS: dict[str, tuple[str, str, str, list[str]]] = {
    "zurich-spring": (
        ZURICH,
        "30 2 * * *",
        "2026-03-28T12:00",
        ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
    ),
    "zurich-autumn-fixed": (
        ZURICH,
        "30 2 * * *",
        "2026-10-24T12:00",
        ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"],
    ),
    "zurich-autumn-half-hours": (
        ZURICH,
        "*/30 * * * *",
        "2026-10-25T01:45",
        [
            "2026-10-25T02:00+02:00",
            "2026-10-25T02:30+02:00",
            "2026-10-25T02:00+01:00",
            "2026-10-25T02:30+01:00",
            "2026-10-25T03:00+01:00",
        ],
    ),
    "troll-two-hour-gap": (
        "Antarctica/Troll",
        "30 1,2 * * *",
        "2025-03-29T12:00",
        ["2025-03-30T03:00+02:00", "2025-03-31T01:30+02:00"],
    ),
    "troll-two-hour-fold": (
        "Antarctica/Troll",
        "0 * * * *",
        "2025-10-26T00:30",
        [
            "2025-10-26T01:00+02:00",
            "2025-10-26T02:00+02:00",
            "2025-10-26T01:00+00:00",
            "2025-10-26T02:00+00:00",
            "2025-10-26T03:00+00:00",
        ],
    ),
    "casablanca-fold-before-ramadan": (
        "Africa/Casablanca",
        "30 2 * * *",
        "2025-02-22T12:00",
        ["2025-02-23T02:30+01:00", "2025-02-24T02:30+00:00"],
    ),
    "casablanca-gap-after-ramadan": (
        "Africa/Casablanca",
        "30 2 * * *",
        "2025-04-05T12:00",
        ["2025-04-06T03:00+01:00", "2025-04-07T02:30+01:00"],
    ),
    "kiritimati-lost-day": (
        "Pacific/Kiritimati",
        "0 9 * * *",
        "1994-12-30T00:00",
        ["1994-12-30T09:00-10:00", "1995-01-01T00:00+14:00", "1995-01-01T09:00+14:00"],
    ),
    "gaza-rule-change": (
        "Asia/Gaza",
        "30 2 * * *",
        "2023-04-28T12:00",
        ["2023-04-29T03:00+03:00", "2023-04-30T02:30+03:00"],
    ),
    "every-second-of-a-minute-in-the-gap-is-one-run": (
        BERLIN,
        "* 30 2 * * *",
        "2025-03-29T12:00",
        ["2025-03-30T03:00+02:00", "2025-03-31T02:30+02:00", "2025-03-31T02:30:01+02:00"],
    ),
    "lord-howe-two-o-clock-after-the-fold": (
        LORD_HOWE,
        "0 2 * * *",
        "2025-04-05T12:00",
        ["2025-04-06T02:00+10:30", "2025-04-07T02:00+10:30"],
    ),
    "lord-howe-wildcard-minutes-after-the-fold": (
        LORD_HOWE,
        "* 2 * * *",
        "2025-04-05T12:00",
        ["2025-04-06T02:00+10:30", "2025-04-06T02:01+10:30"],
    ),
    "a-wildcard-on-a-lost-midnight-waits-a-year": (
        "Africa/Cairo",
        "*/30 0 25 4 *",
        "2025-04-24T12:00",
        ["2026-04-25T00:00+03:00"],
    ),
}


@pytest.mark.parametrize(
    ("tz", "cron", "start", "expected"), MORE_VECTORS.values(), ids=MORE_VECTORS.keys()
)
def test_more_zones_fire_as_computed_by_hand(
    tz: str, cron: str, start: str, expected: list[str]
) -> None:
    check(tz, cron, start, *expected)


def test_gap_skip_does_not_fire_on_the_day_of_the_gap() -> None:
    check(NEW_YORK, "30 2 * * *", "2025-03-08T12:00", "2025-03-10T02:30-04:00", gap="skip")


def test_gap_skip_fires_at_the_times_that_exist() -> None:
    check(
        NEW_YORK,
        "0 2-4 * * *",
        "2025-03-09T00:30",
        "2025-03-09T03:00-04:00",
        "2025-03-09T04:00-04:00",
        "2025-03-10T02:00-04:00",
        gap="skip",
    )


def test_fold_last_fires_in_the_second_pass() -> None:
    check(
        NEW_YORK,
        "30 1 * * *",
        "2025-11-01T12:00",
        "2025-11-02T01:30-05:00",
        "2025-11-03T01:30-05:00",
        fold="last",
    )


def test_fold_both_fires_in_both_passes() -> None:
    check(
        NEW_YORK,
        "15,45 1 * * *",
        "2025-11-01T12:00",
        "2025-11-02T01:15-04:00",
        "2025-11-02T01:45-04:00",
        "2025-11-02T01:15-05:00",
        "2025-11-02T01:45-05:00",
        "2025-11-03T01:15-05:00",
        fold="both",
    )


@pytest.mark.parametrize(
    ("fold", "start", "expected"),
    [
        ("first", "2025-11-02T01:20-04:00", "2025-11-02T01:30-04:00"),
        ("first", "2025-11-02T01:40-04:00", "2025-11-03T01:30-05:00"),
        ("first", "2025-11-02T01:10-05:00", "2025-11-03T01:30-05:00"),
        ("last", "2025-11-02T01:40-04:00", "2025-11-02T01:30-05:00"),
        ("last", "2025-11-02T01:10-05:00", "2025-11-02T01:30-05:00"),
        ("both", "2025-11-02T01:30-04:00", "2025-11-02T01:30-05:00"),
        ("both", "2025-11-02T01:30-05:00", "2025-11-03T01:30-05:00"),
    ],
)
def test_the_search_may_start_inside_a_fold(fold: Fold, start: str, expected: str) -> None:
    assert next_fire("30 1 * * *", NEW_YORK, at(start), "after", fold) == at(expected)


def test_a_day_with_a_fold_has_25_hourly_runs_and_one_with_a_gap_23() -> None:
    autumn = fires("0 * * * *", ZURICH, at("2026-10-24T23:59", ZURICH), 25, "after", "first")
    spring = fires("0 * * * *", ZURICH, at("2026-03-28T23:59", ZURICH), 23, "after", "first")

    assert autumn[0] == at("2026-10-25T00:00+02:00")
    assert autumn[-1] == at("2026-10-25T23:00+01:00")
    assert spring[0] == at("2026-03-29T00:00+01:00")
    assert spring[-1] == at("2026-03-29T23:00+02:00")


def test_a_time_that_always_falls_into_the_gap_never_fires() -> None:
    """The European Union changes its clocks on the last Sunday of March at that hour."""
    cron = parse_cron("*/15 2 * 3 SUNL", seed="").normalized
    assert cron == "*/15 2 * 3 0L"

    assert next_fire(cron, BERLIN, at("2025-01-01T00:00Z")) is None
    assert previous_fire(cron, BERLIN, at("2070-01-01T00:00Z")) is None
    assert next_fire("15 2 * 3 0L", BERLIN, at("2025-01-01T00:00Z"), "skip") is None


def test_the_instants_just_before_and_just_after_a_gap_fire() -> None:
    gap_end = at("2025-03-09T03:00-04:00")

    assert next_fire("30 2 * * *", NEW_YORK, gap_end - 1) == gap_end
    assert next_fire("30 2 * * *", NEW_YORK, gap_end) == at("2025-03-10T02:30-04:00")
    assert previous_fire("30 2 * * *", NEW_YORK, gap_end + 1) == gap_end
    assert previous_fire("30 2 * * *", NEW_YORK, gap_end) == at("2025-03-08T02:30-05:00")


@pytest.mark.parametrize(
    ("cron", "after", "fold", "description"),
    [
        (
            "0 30 2 * * *",
            "2025-03-30 00:00",
            "first",
            "clocks go forward: moved, there is no 02:00 to 03:00 that day",
        ),
        ("0 30 2 * * *", "2025-03-31 00:00", "first", None),
        ("0 0 3 * * *", "2025-03-30 00:00", "first", None),
        (
            "0 30 2 * * *",
            "2025-10-26 00:00",
            "first",
            "clocks go back: this is the first time of two",
        ),
        (
            "0 30 2 * * *",
            "2025-10-26 00:00",
            "last",
            "clocks go back: this is the second time of two",
        ),
        ("0 0 * * * *", "2025-03-30 01:30", "first", None),
    ],
)
def test_a_fire_at_a_change_of_the_clock_is_described(
    cron: str, after: str, fold: Fold, description: str | None
) -> None:
    tz = "Europe/Berlin"
    fire = next_fire(cron, tz, at(after, tz), "after", fold)
    assert fire is not None

    assert describe_clock_change(cron, tz, fire) == description
