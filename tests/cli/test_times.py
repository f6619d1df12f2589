"""Rendering and parsing of times in local notation."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from schedo.cli.times import (
    keep_distance,
    parse_time,
    render_distance,
    render_full,
    render_span,
    render_time,
)

BERLIN = ZoneInfo("Europe/Berlin")
SECOND = 1_000_000
NOW = 1_795_172_400 * SECOND  # 2026-11-20T11:00:00Z, 12:00 in Berlin


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0s"),
        (450_000, "450ms"),
        (5 * SECOND, "5s"),
        (60 * SECOND, "1m"),
        (65 * SECOND, "1m5s"),
        (3_600 * SECOND, "1h"),
        (3_605 * SECOND, "1h"),
        (3_665 * SECOND, "1h1m"),
        (273_600 * SECOND, "3d4h"),
        (400 * 86_400 * SECOND, "400d"),
    ],
)
def test_a_duration_has_its_two_largest_units(us: int, text: str) -> None:
    assert render_span(us) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "in 5s"), (-120, "2m ago"), (0, "now"), (0.4, "now"), (5.9, "in 5s"), (-90, "1m30s ago")],
)
def test_a_relative_time_counts_from_now(seconds: float, text: str) -> None:
    assert render_distance(NOW + round(seconds * SECOND), NOW) == text


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        ("2026-11-20T11:00:05.000000Z", "12:00:05 (in 5s)"),
        ("2026-11-20T23:30:00.000000Z", "2026-11-21 00:30 (in 12h30m)"),
        ("2026-07-01T10:00:00.000000Z", "2026-07-01 12:00 (142d1h ago)"),
        (None, "-"),
    ],
)
def test_an_instant_is_rendered_short_in_local_time(instant: str | None, text: str) -> None:
    assert render_time(instant, NOW, BERLIN) == text


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        ("2026-11-21 00:30 (in 12h30m)", "in 12h30m"),
        ("-", "-"),
        ("9999-12-31T23:59:59.000000Z", "9999-12-31T23:59:59.000000Z"),
    ],
)
def test_the_compact_form_of_a_time_is_relative_to_now(moment: str, text: str) -> None:
    assert keep_distance(moment) == text


def test_a_full_instant_has_its_offset() -> None:
    text = render_full("2026-11-20T10:58:00.123456Z", NOW, BERLIN)

    assert text == "2026-11-20 11:58:00.123+01:00 (1m59s ago)"


def test_the_last_instant_of_the_year_9999_can_be_rendered() -> None:
    text = render_time("9999-12-31T23:59:59.000000Z", NOW, BERLIN)

    assert text == "9999-12-31T23:59:59.000000Z"


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-12-24T18:00:00Z", "2026-12-24T18:00:00.000000Z"),
        ("2026-12-24T18:00:00+01:00", "2026-12-24T17:00:00.000000Z"),
        ("2026-12-24 18:00", "2026-12-24T18:00:00+01:00"),
        ("2026-07-24 18:00:30", "2026-07-24T18:00:30+02:00"),
        ("18:30", "2026-11-20T18:30:00+01:00"),
        ("9:05", "2026-11-21T09:05:00+01:00"),
        ("12:00", "2026-11-21T12:00:00+01:00"),
        ("12:00:01", "2026-11-20T12:00:01+01:00"),
    ],
)
def test_a_time_may_be_written_in_local_time(text: str, instant: str) -> None:
    assert parse_time(text, NOW, BERLIN) == instant


@pytest.mark.parametrize("text", ["", "soon", "25:00", "12:60", "2026-13-01 12:00", "tomorrow"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|month"):
        parse_time(text, NOW, BERLIN)


def test_the_next_clock_time_after_a_dst_change_has_the_new_offset() -> None:
    before_change = 1_792_872_000 * SECOND  # 2026-10-24T20:00:00Z; summer time ends at 01:00Z

    assert parse_time("08:00", before_change, BERLIN) == "2026-10-25T08:00:00+01:00"
