"""Parses the query of a URL: known parameters only, each at most once; and cursors.

A cursor is an opaque position in a list, bound to the filter of the list: the base64 of the last
key of the page and of eight bytes of a hash of the filter. It is neither secret nor signed: a
forged cursor returns another page that the client may read anyway.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl

from schedo.core import limits
from schedo.core.ids import ID_MAX
from schedo.errors import BadRequest, Invalid, Problem
from schedo.protocol import fields
from schedo.protocol.times import parse_duration, parse_instant, render_duration
from schedo.suggestions import suggest

_PARAMETERS_MAX = 32
LIMIT_DEFAULT = 50
LIMIT_MAX = 500
ATTEMPT_MAX = 999_999_999
WAIT_US_MAX = 5 * limits.MINUTE
WAIT_US_DEFAULT = 30 * limits.SECOND
_HASH_BYTES = 8
CURSOR_CHARACTERS_MIN = 4 * (_HASH_BYTES + 1) // 3
CURSOR_CHARACTERS_MAX = 512
_NUMBER_DIGITS_MAX = len(str(ID_MAX))
_NOT_THE_FILTER = frozenset({"cursor", "limit", "fields"})

Values = Mapping[str, str]


def bad_parameter(name: str, detail: str) -> BadRequest:
    """Return an error about one query parameter."""
    return BadRequest(f"{name}: {detail}", Problem(f"?{name}", detail))


def read_fields(values: Values, what: str, known: Collection[str]) -> list[str] | None:
    """Return the names of the fields that a list shows; None: all. what: an item, as in "a job"."""
    text = values.get("fields")
    if text is None:
        return None
    names = text.split(",")
    for name in names:
        if name not in known:
            raise bad_parameter(
                "fields", f"{what} has no field {name[:40]!r}{suggest(name, known)}"
            )
    return names


def parse_query(text: bytes, known: Collection[str]) -> Values:
    """Return the parameters; raise BadRequest for one that is unknown or occurs twice."""
    if not text:
        return {}
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_PARAMETERS_MAX,
        )
    except ValueError:  # also UnicodeError
        raise BadRequest("the query of the URL cannot be read") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name not in known and not (name.startswith("payload.") and "payload.PATH" in known):
            hint = suggest(name, known) or f"; known are: {', '.join(sorted(known)) or 'none'}"
            raise bad_parameter(name[:40], f"there is no such parameter here{hint}")
        if name in values:
            raise bad_parameter(name, "the parameter occurs twice")
        if "\0" in value:
            raise bad_parameter(name, "the character U+0000 is not allowed")
        values[name] = value
    return values


def read_name(values: Values, name: str) -> str | None:
    """Return the parameter, which must be a name, or None."""
    value = values.get(name)
    if value is None:
        return None
    try:
        return fields.read_name("", value)
    except Invalid as error:
        raise bad_parameter(name, error.problems[0].detail) from None


def read_number(values: Values, name: str, least: int, most: int) -> int | None:
    """Return the parameter, which must be a whole number in these bounds, or None."""
    value = values.get(name)
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) <= 9 and least <= int(value) <= most:
        return int(value)
    raise bad_parameter(name, f"this must be a whole number from {least} to {most}")


def read_unique_key(values: Values) -> str | None:
    """Return the unique key to filter by, or None."""
    value = values.get("unique_key")
    most = limits.UNIQUE_KEY_CHARACTERS_MAX
    if value is not None and not 1 <= len(value) <= most:
        raise bad_parameter("unique_key", f"a unique key has 1 to {most} characters")
    return value


def read_text(values: Values, name: str, most: int) -> str | None:
    """Return the parameter, which must have 1 to `most` characters, or None."""
    value = values.get(name)
    if value is not None and not 1 <= len(value) <= most:
        raise bad_parameter(name, f"give 1 to {most} characters")
    return value


def read_limit(values: Values) -> int:
    """Return how many items a page may have."""
    return read_number(values, "limit", 1, LIMIT_MAX) or LIMIT_DEFAULT


def read_choice(values: Values, name: str, choices: Collection[str]) -> str | None:
    """Return the parameter, which must be one of these, or None."""
    value = values.get(name)
    if value is not None and value not in choices:
        raise bad_parameter(name, f"this must be one of {', '.join(choices)}")
    return value


def read_instant(values: Values, name: str) -> int | None:
    """Return the parameter, which must be an instant, or None."""
    value = values.get(name)
    try:
        return None if value is None else parse_instant(value)
    except ValueError as error:
        raise bad_parameter(name, str(error)) from None


def read_duration(values: Values, name: str) -> int | None:
    """Return the parameter, which must be a duration, in microseconds, or None."""
    value = values.get(name)
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise bad_parameter(name, str(error)) from None


def read_wait(values: Values, name: str) -> float | None:
    """Return how many seconds to wait; None without the parameter."""
    us = read_duration(values, name)
    if us is None:
        return None
    if us > WAIT_US_MAX:
        raise bad_parameter(name, f"this must be at most {render_duration(WAIT_US_MAX)}")
    return us / limits.SECOND


def render_cursor(order: str, values: Values, last: str) -> str:
    """Return the cursor of the page after `last`, for this order and these parameters."""
    return base64.urlsafe_b64encode(_hash(order, values) + last.encode()).rstrip(b"=").decode()


def parse_name_cursor(order: str, values: Values) -> str | None:
    """Return the name that the cursor among the parameters stands for, or None if there is none."""
    last = _parse_cursor(order, values)
    if last is not None and not fields.is_name(last):
        raise _forged()
    return last


def parse_number_cursor(order: str, values: Values) -> int | None:
    """Return the id that the cursor among the parameters stands for, or None if there is none."""
    last = _parse_cursor(order, values)
    return None if last is None else _parse_number(last)


def parse_pair_cursor(order: str, values: Values) -> tuple[int, int] | None:
    """Return the instant and the id that the cursor stands for, or None if there is none."""
    last = _parse_cursor(order, values)
    if last is None:
        return None
    at, _, job_id = last.partition("-")
    return _parse_number(at), _parse_number(job_id)


def _parse_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX):
        raise _forged()
    number = int(text)
    if number > ID_MAX:
        raise _forged()
    return number


def _parse_cursor(order: str, values: Values) -> str | None:
    text = values.get("cursor")
    if text is None:
        return None
    try:
        raw = _decode(text)
    except (ValueError, binascii.Error):
        raise _forged() from None
    if raw[:_HASH_BYTES] != _hash(order, values):
        raise bad_parameter("cursor", "the cursor belongs to a list with another filter")
    return raw[_HASH_BYTES:].decode("ascii", "replace")


def _forged() -> BadRequest:
    return bad_parameter("cursor", "this is not a cursor of this server")


def _decode(text: str) -> bytes:
    if len(text) > CURSOR_CHARACTERS_MAX:
        raise ValueError("too long")
    padded = text.encode("ascii") + b"=" * (-len(text) % 4)
    raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    if len(raw) <= _HASH_BYTES:
        raise ValueError("too short")
    return raw


def _hash(order: str, values: Values) -> bytes:
    filters = sorted((name, value) for name, value in values.items() if name not in _NOT_THE_FILTER)
    return hashlib.sha256(repr((order, filters)).encode()).digest()[:_HASH_BYTES]
