"""Instants and durations as text."""

from __future__ import annotations

import pytest

from schedo.core.instants import describe_duration, render_instant

MS = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 ms"),
        (250, "0.25 ms"),
        (450 * MS, "450 ms"),
        (1_500 * MS, "1.5 s"),
        (30 * SECOND, "30 s"),
        (MINUTE, "1 min"),
        (90 * SECOND, "1 min 30 s"),
        (30 * MINUTE, "30 min"),
        (HOUR, "1 h"),
        (90 * MINUTE, "1 h 30 min"),
        (HOUR + 11 * SECOND, "1 h 11 s"),
        (HOUR + MINUTE + SECOND, "1 h 1 min"),
        (26 * HOUR, "26 h"),
        (2 * DAY, "2 d"),
        (3 * DAY + 4 * HOUR + MINUTE, "3 d 4 h"),
    ],
)
def test_a_duration_in_a_message_has_its_two_largest_units(us: int, text: str) -> None:
    assert describe_duration(us) == text


def test_an_instant_has_six_decimals_in_utc() -> None:
    assert render_instant(DAY + 5) == "1970-01-02T00:00:00.000005Z"
