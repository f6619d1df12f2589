"""Durations and instants at the edge."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schedo.protocol.times import (
    DURATION_PATTERN,
    INSTANT_PATTERN,
    parse_duration,
    parse_instant,
    render_duration,
    render_instant,
)


@pytest.mark.parametrize(
    ("value", "us"),
    [
        ("90s", 90_000_000),
        ("1h30m", 5_400_000_000),
        ("1d", 86_400_000_000),
        ("1w", 604_800_000_000),
        ("250ms", 250_000),
        ("7us", 7),
        ("1.5h", 5_400_000_000),
        ("1m500ms", 60_500_000),
        ("PT90S", 90_000_000),
        ("PT1H30M", 5_400_000_000),
        ("P1DT0.5S", 86_400_500_000),
        ("pt5s", 5_000_000),
        ("P2W", 1_209_600_000_000),
        ("5", 5_000_000),
        ("0", 0),
        (0, 0),
        (5, 5_000_000),
        (0.25, 250_000),
        ("0.0000001s", 1),
    ],
)
def test_a_duration_is_read_in_every_accepted_form(value: str | float, us: int) -> None:
    assert parse_duration(value) == us


@pytest.mark.parametrize(
    "value",
    [
        "",
        " 5s",
        "5s ",
        "5s\n",
        "-5s",
        "-1",
        -1,
        -0.5,
        float("nan"),
        float("inf"),
        float("-inf"),
        10**30,
        "101000d",
        "99999999999999999999s",
        "1e9s",
        "5 minutes",
        "5M",
        "30m1h",
        "1s1s",
        "s",
        "P",
        "PT",
        "P1Y",
        "P1M",
        "P1.2.3D",
        "P1D2W",
        "\u0665s",
        "\uff15s",
        "1\u00bd",
        "1" * 100,
        True,
    ],
)
def test_an_invalid_duration_is_refused_with_a_sentence(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"duration|years"):
        parse_duration(value)


def test_months_are_refused_because_they_have_no_fixed_length() -> None:
    with pytest.raises(ValueError, match="no fixed length"):
        parse_duration("P1M")


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0s"),
        (1, "1us"),
        (250_000, "250ms"),
        (90_000_000, "90s"),
        (60_000_000, "1m"),
        (5_400_000_000, "90m"),
        (3_600_000_000, "1h"),
        (86_400_000_000, "1d"),
        (90_000_001, "90000001us"),
    ],
)
def test_a_duration_is_written_in_its_largest_whole_unit_and_reads_back(us: int, text: str) -> None:
    assert render_duration(us) == text
    assert parse_duration(text) == us


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-20T11:04:05.123456Z", 1_795_172_645_123_456),
        ("2026-11-20T12:04:05.123456+01:00", 1_795_172_645_123_456),
        ("2026-11-20t05:34:05.123456-05:30", 1_795_172_645_123_456),
        ("2026-11-20 11:04:05z", 1_795_172_645_000_000),
        ("2026-11-20T11:04:05.1234560001Z", 1_795_172_645_123_457),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
    ],
)
def test_an_instant_is_read_to_the_microsecond(text: str, us: int) -> None:
    assert parse_instant(text) == us


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-11-20T11:04:05", "has no offset"),
        ("10000-01-01T00:00:00Z", "year 9999"),
        ("2026-11-20T24:00:00Z", "24:00"),
        ("2026-12-31T23:59:60Z", "leap second"),
        ("2026-02-30T00:00:00Z", "not a time"),
        ("2026-13-01T00:00:00Z", "not a time"),
        ("2026-11-20T11:04:05+99:00", "offset that does not exist"),
        ("2026-11-20T11:04:05 01:00", "RFC 3339"),
        ("2026-11-20", "RFC 3339"),
        ("11:04", "RFC 3339"),
        ("1795172645", "RFC 3339"),
        ("", "RFC 3339"),
        ("2026-11-20T11:04:05Z\n", "RFC 3339"),
        ("\u0662\u0660\u0662\u0666-11-20T11:04:05Z", "RFC 3339"),
        ("1969-12-31T23:59:59Z", "between 1970 and 9999"),
        ("1970-01-01T00:00:00+01:00", "between 1970 and 9999"),
        ("9999-12-31T23:59:59-01:00", "between 1970 and 9999"),
        ("2026" * 1000, "RFC 3339"),
    ],
)
def test_an_invalid_instant_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_instant(text)


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_795_172_645_123_456, "2026-11-20T11:04:05.123456Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_an_instant_is_written_in_utc_with_six_decimals(us: int, text: str) -> None:
    assert render_instant(us) == text


def refusal(parse: Callable[[str], int], text: str) -> str:
    """Return why the text is refused; nothing if it is read."""
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return ""


@given(st.from_regex(DURATION_PATTERN, fullmatch=True).filter(lambda text: len(text) <= 64))
def test_a_duration_of_the_described_form_is_read_or_too_long(text: str) -> None:
    assert refusal(parse_duration, text) in {"", "a duration is at most 100 years"}


@given(st.text("0123456789.wdhmsuPTWDHMSpt", max_size=12))
@example("1h30m")
@example("PT1H30M")
@example("p1dt.5s")
@example("1.d")
def test_a_duration_of_another_form_is_refused(text: str) -> None:
    is_described = re.fullmatch(DURATION_PATTERN, text) is not None

    assert is_described or refusal(parse_duration, text)


@given(st.from_regex(INSTANT_PATTERN, fullmatch=True))
def test_an_instant_of_the_described_form_is_read_unless_its_day_does_not_exist(text: str) -> None:
    reason = refusal(parse_instant, text)

    assert not reason or "day is out of range" in reason or "between 1970 and 9999" in reason
