"""Parses the query of a URL: known parameters only, each at most once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl

from schedo.core import limits
from schedo.core.states import State
from schedo.errors import BadRequest, Invalid, Problem
from schedo.protocol import fields
from schedo.protocol.times import parse_duration, parse_instant, render_duration

_PARAMETERS_MAX = 32
LIMIT_DEFAULT = 50
LIMIT_MAX = 500
ATTEMPT_MAX = 999_999_999
WAIT_US_MAX = 5 * limits.MINUTE
WAIT_US_DEFAULT = 30 * limits.SECOND

Values = Mapping[str, str]


def bad_parameter(name: str, detail: str) -> BadRequest:
    """Return an error about one query parameter."""
    return BadRequest(f"{name}: {detail}", Problem(f"?{name}", detail))


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
        if name not in known:
            takes = ", ".join(sorted(known)) or "none"
            raise bad_parameter(name[:40], f"there is no such parameter here; known are: {takes}")
        if name in values:
            raise bad_parameter(name, "the parameter occurs twice")
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


def read_limit(values: Values) -> int:
    """Return how many items a page may have."""
    return read_number(values, "limit", 1, LIMIT_MAX) or LIMIT_DEFAULT


def read_choice(values: Values, name: str, choices: Collection[str]) -> str | None:
    """Return the parameter, which must be one of these, or None."""
    value = values.get(name)
    if value is not None and value not in choices:
        raise bad_parameter(name, f"this must be one of {', '.join(choices)}")
    return value


def read_state(values: Values) -> str | None:
    """Return the state to filter by, or None."""
    return read_choice(values, "state", [state.value for state in State])


def read_instant(values: Values, name: str) -> int | None:
    """Return the parameter, which must be an instant, or None."""
    value = values.get(name)
    try:
        return None if value is None else parse_instant(value)
    except ValueError as error:
        raise bad_parameter(name, str(error)) from None


def read_wait(values: Values, name: str) -> float | None:
    """Return how many seconds to wait; None without the parameter."""
    value = values.get(name)
    if value is None:
        return None
    try:
        us = parse_duration(value)
    except ValueError as error:
        raise bad_parameter(name, str(error)) from None
    if us > WAIT_US_MAX:
        raise bad_parameter(name, f"this must be at most {render_duration(WAIT_US_MAX)}")
    return us / limits.SECOND
