"""The cron dialect: its syntax, its normalized form, and hints for other dialects.

An expression has five fields as in Debian's cron, or six with the seconds first. It may contain
names, `L`, `LW`, `5L`, `FRI#2`, `?` for `*` in the day fields, and `H`, which is hashed from a
seed. Macros and `@every` are allowed as well. cronsim reads the normalized text: upper case, one
blank between fields, no leading zeros, no `?`, and `H` expanded.
"""

from __future__ import annotations

import calendar
import hashlib
import re
from datetime import date, datetime
from typing import NamedTuple

from cronsim import CronSim, CronSimError

from schedo.core import limits
from schedo.core.timezones import check_zone
from schedo.errors import Invalid

EVERY_US_MIN = 100 * limits.MILLISECOND


class ParsedCron(NamedTuple):
    """A valid expression: either `normalized` or `every_us` is set."""

    normalized: str | None
    tz: str | None  # from a CRON_TZ= or TZ= prefix
    every_us: int | None  # from @every
    warnings: tuple[str, ...]


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    hash_high: int  # the largest value for H: a day that every month has
    names: tuple[str, ...] = ()  # the first one stands for `low`


_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAY = _Field("day-of-month", 1, 31, 28)
_WEEKDAY = _Field("day-of-week", 0, 7, 6, _DAY_NAMES)
_FIELDS = (
    _Field("second", 0, 59, 59),
    _Field("minute", 0, 59, 59),
    _Field("hour", 0, 23, 23),
    _DAY,
    _Field("month", 1, 12, 12, _MONTH_NAMES),
    _WEEKDAY,
)

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_FOREIGN = re.compile(r"[^\x20-\x7e\t]")
_ZONE_PREFIX = re.compile(r"(?:CRON_)?TZ=(\S*)\s*")
_VALUE = r"[0-9]{1,4}|[A-Z]{3}"
_PLAIN = re.compile(rf"(?:\*|({_VALUE})(?:-({_VALUE}))?)(?:/([0-9]{{1,4}}))?\Z")
_HASHED = re.compile(rf"H(?:\(({_VALUE})-({_VALUE})\))?(?:/([0-9]{{1,4}}))?\Z")
_NTH = re.compile(rf"({_VALUE})(L|#[1-5L])\Z")
# One year of each of the 14 kinds: leap or not, by the weekday of 1 January.
_KINDS_OF_YEARS = tuple(
    {(date(y, 1, 1).weekday(), calendar.isleap(y)): y for y in range(2001, 2029)}.values()
)
_EVERY_UNITS = {"h": limits.HOUR, "m": limits.MINUTE, "s": limits.SECOND, "ms": limits.MILLISECOND}
_EVERY_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|[hms])")

# Syntax of other dialects that is not valid here: (pattern of the item, hint).
_UNSUPPORTED = (
    (r"([0-9]*|L)W", "the nearest weekday (W) is not supported; LW is the month's last weekday"),
    (r"L-[0-9]+", "days counted from the end of the month are not supported; L is the last day"),
    (r"L", "L needs the weekday before it; write 5L or FRIL for the last Friday of the month"),
    (r".*#.*", "after # write 1 to 5, or L for the last: FRI#2 is the second Friday of the month"),
    (r".*~.*", "random ranges are not supported; write H(0-29) for a time that is chosen once"),
    (r".*\?.*", "? may only stand alone in one of the day fields; write * otherwise"),
    (r"[A-Z]{4,}", "names are the first three letters, as in MON and JAN"),
    (r".*/0*", "a step is at least 1"),
    (r"", "there is an empty item; remove the comma that has nothing beside it"),
)


def parse_cron(text: str, *, seed: str) -> ParsedCron:
    """Return the parsed expression, with H chosen by the seed; raise Invalid at /cron."""
    if len(text) > limits.CRON_CHARACTERS_MAX:
        raise _invalid(f"the expression is longer than {limits.CRON_CHARACTERS_MAX} characters")
    if foreign := _FOREIGN.search(text):
        raise _invalid(f"the character U+{ord(foreign[0]):04X} is not allowed; write plain ASCII")
    text = text.strip()
    tz = None
    if prefix := _ZONE_PREFIX.match(text):
        tz = prefix[1]
        text = text[prefix.end() :]
        try:
            check_zone(tz)
        except Invalid as error:
            raise _invalid(error.problems[0].detail) from None
    if text.startswith("@"):
        macro, *rest = text.split(maxsplit=1)
        if macro.lower() == "@every":
            return ParsedCron(None, tz, _parse_every("".join(rest)), ())
        text = _expand_macro(text)
    normalized, warnings = _parse_fields(text.upper().split(), seed)
    if not _has_day(normalized):
        raise _invalid(f"{normalized!r} never fires: no month has such a day")
    return ParsedCron(normalized, tz, None, warnings)


def is_fixed_time(cron: str) -> bool:
    """Return whether the normalized expression names its hours and minutes."""
    minute, hour = cron.split()[-5:-3]
    return not minute.startswith("*") and not hour.startswith("*")


def _invalid(detail: str) -> Invalid:
    return Invalid.field("/cron", detail)


def _expand_macro(text: str) -> str:
    expanded = _MACROS.get(text.lower())
    if expanded is not None:
        return expanded
    if text.lower() == "@reboot":
        raise _invalid(
            "@reboot is not a time, and a restarted server is no reboot;"
            " let the init system submit a job instead"
        )
    raise _invalid(f"{text!r} is not known; there are {', '.join(_MACROS)} and @every 90s")


def _parse_every(text: str) -> int:
    if not re.fullmatch(f"(?:{_EVERY_PART.pattern})+", text):
        raise _invalid(f"@every {text}: write a duration after it, such as 90s, 1h30m or 500ms")
    every_us = sum(
        round(float(number) * _EVERY_UNITS[unit]) for number, unit in _EVERY_PART.findall(text)
    )
    if not EVERY_US_MIN <= every_us <= limits.DURATION_MAX:
        raise _invalid(f"@every {text} is not between 100ms and 100 years")
    return every_us


def _parse_fields(fields: list[str], seed: str) -> tuple[str, tuple[str, ...]]:
    """Return the normalized text and the warnings."""
    _check_count(fields)
    warnings: list[str] = []
    normal = [
        _parse_field(field, text, seed, warnings)
        for field, text in zip(_FIELDS[-len(fields) :], fields, strict=True)
    ]
    day, weekday = normal[-3], normal[-1]
    if day != "*" and weekday != "*":
        is_both = day.startswith("*") or weekday.startswith("*")
        which = "both, because one of them starts with *" if is_both else "either, as in cron"
        warnings.append(f"both day fields are restricted: it fires on days that match {which}")
    return " ".join(normal), tuple(warnings)


def _check_count(fields: list[str]) -> None:
    count = len(fields)
    if count == 6:
        _check_six(fields)
    elif count == 7:
        raise _invalid("there are 7 fields; a year is not supported, use end_at for the last time")
    elif count != 5:
        raise _invalid(
            f"there are {count} fields; write minute, hour, day-of-month, month and day-of-week,"
            " such as 30 2 * * MON-FRI, or six with the seconds first"
        )


def _check_six(fields: list[str]) -> None:
    """Refuse six fields of dialects that put the year or the seconds last."""
    five, last = " ".join(fields[:5]), fields[5]
    numbers = [int(number) for number in re.findall("[0-9]+", last)]
    has_year = any(number > 999 for number in numbers)
    if has_year or fields[2] == "?" or fields[4] == "?" or any(n in fields[4] for n in _DAY_NAMES):
        raise _invalid(
            f"the last of the 6 fields looks like a year, which is not supported; write {five!r},"
            " and end_at for the last time (with 6 fields the seconds come first)"
        )
    if any(number > _WEEKDAY.high for number in numbers):
        raise _invalid(
            "the last of the 6 fields looks like seconds, but the seconds come first;"
            f" write {f'{last} {five}'!r}"
        )


def _parse_field(field: _Field, text: str, seed: str, warnings: list[str]) -> str:
    if text == "?" and field in (_DAY, _WEEKDAY):
        return "*"
    return ",".join(_parse_item(field, item, seed, warnings) for item in text.split(","))


def _parse_item(field: _Field, item: str, seed: str, warnings: list[str]) -> str:
    if found := _PLAIN.match(item):
        return _parse_plain(field, item, found, warnings)
    if found := _HASHED.match(item):
        return _parse_hashed(field, item, found, seed)
    if field is _DAY and item in ("L", "LW"):
        return item
    if field is _WEEKDAY and (found := _NTH.match(item)):
        which = "L" if found[2] in ("L", "#L") else found[2]
        return f"{_number(field, item, found[1])}{which}"
    for pattern, reason in _UNSUPPORTED:
        if re.fullmatch(pattern, item):
            raise _refuse(field, item, reason)
    raise _refuse(field, item, f"write a number from {field.low} to {field.high}, or *")


def _parse_plain(field: _Field, item: str, found: re.Match[str], warnings: list[str]) -> str:
    """Return `*`, a value or a range, each with or without a step."""
    start, end, step = found.groups()
    text = "*" if start is None else _parse_range(field, item, found)
    if step is None:
        return text
    if int(step) == 0:
        raise _refuse(field, item, "a step is at least 1")
    if int(step) > field.high - field.low:
        warnings.append(f"{field.name} {item}: the step is larger than the field; it matches once")
    if end is not None and "-" not in text:
        return text  # cronsim would read 5-5/10 as 5/10, which goes on to the end of the field
    return f"{text}/{int(step)}"


def _parse_range(field: _Field, item: str, found: re.Match[str]) -> str:
    """Return a value or a range; a range of one value is that value."""
    start, end, step = found.groups()
    low = _number(field, item, start)
    text = _render_value(start, low)
    high = low if end is None else _number(field, item, end)
    if high < low:
        instead = _unwrap(field, low, high, step)
        raise _refuse(field, item, f"the range runs backwards; write {instead}")
    return text if high == low else f"{text}-{_render_value(end, high)}"


def _parse_hashed(field: _Field, item: str, found: re.Match[str], seed: str) -> str:
    """Return H, H(low-high) or one with a step as the values that the seed chooses."""
    low = _number(field, item, found[1]) if found[1] else field.low
    high = _number(field, item, found[2]) if found[2] else field.hash_high
    if high < low:
        raise _refuse(field, item, "the range in the parentheses runs backwards")
    digest = hashlib.sha256(f"{seed}\0{field.name}".encode()).digest()
    number = int.from_bytes(digest[:8], "big")
    if found[3] is None:
        return str(low + number % (high - low + 1))
    step = int(found[3])
    if not 1 <= step <= high - low + 1:
        raise _refuse(field, item, f"the step is not between 1 and {high - low + 1}")
    first = low + number % step
    return f"{first}-{high}/{step}" if first + step <= high else str(first)


def _number(field: _Field, item: str, text: str) -> int:
    if text in field.names:
        return field.low + field.names.index(text)
    if not text.isdigit():
        example = f", or a name such as {field.names[1]}" if field.names else ""
        raise _refuse(field, item, f"write a number from {field.low} to {field.high}{example}")
    if not field.low <= int(text) <= field.high:
        raise _refuse(field, item, f"{int(text)} is not between {field.low} and {field.high}")
    return int(text)


def _render_value(text: str, number: int) -> str:
    return str(number) if text.isdigit() else text


def _unwrap(field: _Field, low: int, high: int, step: str | None) -> str:
    """Return a valid list for a range that wraps over the end of its field."""
    size = 7 if field is _WEEKDAY else field.high - field.low + 1
    top = field.low + size - 1
    if step is not None and int(step) > 1:
        values = range(low, high + size + 1, int(step))
        return ",".join(str((value - field.low) % size + field.low) for value in values)
    pieces = [(low, top), (field.low, high)] if low <= top else [(field.low, high)]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pieces)


def _refuse(field: _Field, item: str, reason: str) -> Invalid:
    return _invalid(f"{field.name} {item!r}: {reason}")


def _has_day(cron: str) -> bool:
    """Return whether any day of any calendar matches."""
    try:
        sim = CronSim(cron, datetime(2000, 1, 1))  # noqa: DTZ001 - only its fields are used
    except CronSimError:  # it refuses days that no month has; all else was checked before
        return False
    return any(
        sim.match_day(date(year, month, day))
        for year in _KINDS_OF_YEARS
        for month in sim.months
        for day in range(1, calendar.monthrange(year, month)[1] + 1)
    )
