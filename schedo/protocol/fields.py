"""The types of the fields in messages: names, durations, instants, texts.

A type here defines the JSON of a field and its description in openapi.json. The read_ function next
to it returns the value for the core, or raises Invalid with the field's JSON pointer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from schedo.core import limits
from schedo.errors import Invalid
from schedo.protocol.times import (
    DURATION_CHARACTERS_MAX,
    DURATION_PATTERN,
    INSTANT_PATTERN,
    parse_duration,
    parse_instant,
    render_duration,
    render_instant,
)

NAME_PATTERN = r"^(?!\.{1,2}$)[A-Za-z0-9._][A-Za-z0-9._-]{0,127}$"
Name = Annotated[
    str,
    Meta(
        description="1 to 128 letters, digits, dots, underscores and hyphens; no hyphen first, and"
        " not . or .. alone.",
        extra_json_schema={"pattern": NAME_PATTERN},
    ),
]
DURATION_SCHEMA = {
    "pattern": DURATION_PATTERN,
    "maxLength": DURATION_CHARACTERS_MAX,
    "minimum": 0,
    "maximum": limits.DURATION_MAX // limits.SECOND,
}
INSTANT_SCHEMA = {"format": "date-time", "pattern": INSTANT_PATTERN}
Duration = Annotated[
    str | int | float,
    Meta(
        description="A duration: 90s, 1h30m, 250ms, PT90S, or a number of seconds.",
        examples=["90s", "1h30m", 5],
        extra_json_schema=DURATION_SCHEMA,
    ),
]
Instant = Annotated[
    str,
    Meta(
        description="An RFC 3339 time with an offset.",
        examples=["2026-11-20T11:04:05Z"],
        extra_json_schema=INSTANT_SCHEMA,
    ),
]
Id = Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9A-HJKMNP-TV-Z]{13}$"})]
DurationText = Annotated[str, Meta(examples=["90s"])]
T = TypeVar("T")
Priority = Annotated[
    int,
    Meta(ge=limits.PRIORITY_MIN, le=limits.PRIORITY_MAX, description="Larger runs sooner."),
]
Text = Annotated[str, Meta(min_length=1, max_length=limits.UNIQUE_KEY_CHARACTERS_MAX)]

# Clients take the segments . and .. out of a path (RFC 3986, 5.2.4): neither can be a name.
_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._][A-Za-z0-9._-]*\Z")
_NAME_RULE = (
    "a name is 1 to 128 letters, digits, dots, underscores and hyphens, "
    "does not begin with a hyphen, and is not . or .. alone"
)
TRACEPARENT_PATTERN = "^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$"
_TRACEPARENT = re.compile(
    TRACEPARENT_PATTERN
)  # the length is checked too: $ also allows a line break


def is_name(value: str) -> bool:
    """Return whether the text is a valid name."""
    return len(value) <= limits.NAME_CHARACTERS_MAX and _matches_name(value)


@lru_cache(maxsize=1_024)  # thousands of jobs name a handful of tasks and queues
def _matches_name(value: str) -> bool:
    return _NAME.match(value) is not None


def read_name(pointer: str, value: str) -> str:
    """Return the name; raise Invalid for a bad one."""
    if is_name(value):
        return value
    raise Invalid.field(pointer, f"{value[:40]!a}: {_NAME_RULE}")


def read_duration(pointer: str, value: str | int | float, minimum_us: int = 0) -> int:
    """Return the duration in microseconds."""
    try:
        us = parse_duration(value)
    except ValueError as error:
        raise Invalid.field(pointer, str(error)) from None
    if us < minimum_us:
        raise Invalid.field(pointer, f"this must be at least {render_duration(minimum_us)}")
    return us


def read_duration_or_none(
    pointer: str, value: str | int | float | None, minimum_us: int = 0
) -> int | None:
    """Return the duration in microseconds, or None if it was not given."""
    return None if value is None else read_duration(pointer, value, minimum_us)


def read_instant(pointer: str, value: str) -> int:
    """Return the instant in microseconds UTC."""
    try:
        return parse_instant(value)
    except ValueError as error:
        raise Invalid.field(pointer, str(error)) from None


def read_instant_or_none(pointer: str, value: str | None) -> int | None:
    """Return the instant in microseconds UTC, or None if it was not given."""
    return None if value is None else read_instant(pointer, value)


def or_unset(value: T | None) -> T | UnsetType:
    """Return the value, or UNSET for None, so that the response leaves the field out."""
    return UNSET if value is None else value


def instant_or_unset(us: int | None) -> str | UnsetType:
    """Return the instant as RFC 3339."""
    return UNSET if us is None else render_instant(us)


def duration_or_unset(us: int | None) -> str | UnsetType:
    """Return the duration as text."""
    return UNSET if us is None else render_duration(us)


def read_payload(value: msgspec.Raw | msgspec.UnsetType, pointer: str = "/payload") -> bytes:
    """Return the payload's JSON text as it was sent; null if there is none."""
    if isinstance(value, msgspec.UnsetType):
        return b"null"
    payload = bytes(value)
    if len(payload) > limits.PAYLOAD_BYTES_MAX:
        raise Invalid.field(
            pointer, f"{len(payload)} bytes; a payload has at most {limits.PAYLOAD_BYTES_MAX}"
        )
    return payload


def is_traceparent(value: str) -> bool:
    """Return whether the text is a W3C traceparent."""
    return len(value) == 55 and _TRACEPARENT.match(value) is not None


def read_under(pointer: str, read: Callable[[], T]) -> T:
    """Return what the function reads; its errors point into the field at the pointer."""
    try:
        return read()
    except Invalid as error:
        raise error.under(pointer) from None


def not_both(first: str, second: str) -> Invalid:
    """Return the error about two fields that exclude each other and were both given."""
    return Invalid.field(f"/{second}", f"give {first} or {second}, not both")
