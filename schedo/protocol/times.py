"""Durations and instants: the notations that requests may use, and that of responses.

Durations: "90s", "1h30m", "1.5d", "250ms", "PT90S", or a number of seconds. Instants: RFC 3339 with
an offset. In the program, both are integer microseconds. All functions raise ValueError with a
sentence for the user; the caller adds the field. Fractions finer than a microsecond are rounded up,
so that no job runs too soon.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from schedo.core import limits
from schedo.core.instants import render_instant as render_instant

_UNITS_US = {
    "w": 7 * limits.DAY,
    "d": limits.DAY,
    "h": limits.HOUR,
    "m": limits.MINUTE,
    "s": limits.SECOND,
    "ms": limits.MILLISECOND,
    "us": limits.MICROSECOND,
}
_TEXT_CHARACTERS_MAX = 64
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
_PLAIN = re.compile(_NUMBER + r"\Z")
_PART = re.compile(f"({_NUMBER})(ms|us|[wdhms])")
_WORDS = re.compile("".join(f"(?:{_NUMBER}{unit})?" for unit in _UNITS_US) + r"\Z")
_ISO = re.compile(r"P(?=[0-9T])((?:[0-9.]+[WD])*)(?:T((?:[0-9.]+[HMS])+))?\Z")
_INSTANT = re.compile(
    r"([0-9]{4,6})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,12}))?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?\Z"
)

# The forms as ECMA-262 patterns, for openapi.json. They say nothing of sizes and calendars.
_PARTS = "".join(f"({_NUMBER}{unit})?" for unit in _UNITS_US)
_ISO_DATE = "".join(f"({_NUMBER}[{unit}{unit.lower()}])?" for unit in "WD")
_ISO_TIME = "".join(f"({_NUMBER}[{unit}{unit.lower()}])?" for unit in "HMS")
DURATION_CHARACTERS_MAX = _TEXT_CHARACTERS_MAX
DURATION_PATTERN = (
    f"^({_NUMBER}|(?=[0-9]){_PARTS}|[Pp](?=[0-9Tt]){_ISO_DATE}([Tt](?=[0-9]){_ISO_TIME})?)$"
)
INSTANT_PATTERN = (
    "^(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,12})?"
    "([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMS = 'write "90s", "1h30m", "PT90S" or a number of seconds'


def parse_duration(value: str | int | float) -> int:
    """Return the duration in microseconds; a bare number is seconds."""
    us = _parse_text(value) if isinstance(value, str) else _from_seconds(value)
    if us > limits.DURATION_MAX:
        raise ValueError("a duration is at most 100 years")
    return us


def _from_seconds(seconds: int | float) -> int:
    if isinstance(seconds, bool):
        raise ValueError(f"true and false are no durations; {_FORMS}")
    if not seconds >= 0:  # NaN compares false
        raise ValueError("a duration cannot be negative or NaN")
    if seconds > limits.DURATION_MAX:  # also infinity, which round() cannot take
        raise ValueError("a duration is at most 100 years")
    return round(seconds * limits.SECOND)


@lru_cache(maxsize=1_024)  # requests use few different durations, all of them short
def _parse_text(text: str) -> int:
    shown = text[:_TEXT_CHARACTERS_MAX]
    if len(text) > _TEXT_CHARACTERS_MAX:
        raise ValueError(f"{shown!r}... is too long for a duration; {_FORMS}")
    if text.startswith("-"):
        raise ValueError(f"{shown!r} is negative; a duration is not")
    if _PLAIN.match(text):
        return _scale(text, limits.SECOND)
    if text.startswith(("P", "p")):
        return _parse_iso(text.upper())
    parts = _PART.findall(text) if _WORDS.match(text) else []
    if not parts:
        raise ValueError(f"{shown!r} is not a duration; {_FORMS}")
    return sum(_scale(number, _UNITS_US[unit]) for number, unit in parts)


def _parse_iso(text: str) -> int:
    found = _ISO.match(text)
    if found is None:
        reason = (
            "; years and months have no fixed length" if re.match(r"P[0-9.]+[YM]", text) else ""
        )
        raise ValueError(f"{text!r} is not a duration{reason}; {_FORMS}")
    words = "".join(part.lower() for part in found.groups() if part)
    return _parse_text(words)


def _scale(number: str, unit_us: int) -> int:
    whole, _, fraction = number.partition(".")
    tens: int = 10 ** len(fraction)
    return int(whole) * unit_us - (-int(fraction or 0) * unit_us // tens)


def render_duration(us: int) -> str:
    """Return the duration in the largest unit that it is a whole number of, as "90s"."""
    if us == 0:
        return "0s"
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(us, _UNITS_US[unit])
        if not rest:
            return f"{count}{unit}"
    return f"{us}us"


def parse_instant(text: str) -> int:
    """Return microseconds since 1970 UTC for an RFC 3339 time with an offset."""
    found = _INSTANT.match(text) if len(text) <= _TEXT_CHARACTERS_MAX else None
    if found is None:
        raise ValueError(f'{text[:40]!r} is not an RFC 3339 time, such as "2026-11-20T11:04:05Z"')
    year, month, day, hour, minute, second, fraction, offset = found.groups()
    if offset is None:
        raise ValueError(
            f"{text!r} has no offset; end it with Z or one like +01:00 (in a URL, write + as %2B)"
        )
    if len(year) > 4:
        raise ValueError(f"{text!r} is after the year 9999")
    if hour == "24":
        raise ValueError(f"{text!r}: write midnight as 00:00 of the next day, not as 24:00")
    if second == "60":
        raise ValueError(f"{text!r} is a leap second, which clocks here do not have")
    try:
        local = datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC
        )
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time: {error}") from None
    us = (local - _EPOCH) // timedelta(microseconds=1) + _scale(f"0.{fraction or 0}", limits.SECOND)
    us -= _parse_offset(text, offset)
    if not limits.INSTANT_MIN <= us <= limits.INSTANT_MAX:
        raise ValueError(f"{text!r} is not between 1970 and 9999")
    return us


def _parse_offset(text: str, offset: str) -> int:
    if offset in "Zz":
        return 0
    hours, minutes = int(offset[1:3]), int(offset[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(f"{text!r} has an offset that does not exist")
    size = hours * limits.HOUR + minutes * limits.MINUTE
    return -size if offset[0] == "-" else size
