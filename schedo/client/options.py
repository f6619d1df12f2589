"""The options of a job in Python, once for both clients and for applications.

Their names are those of the request's fields, which a test compares; mypy needs them written out.
As JSON a timedelta becomes seconds, an aware datetime becomes RFC 3339, and None is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from schedo.client.messages import Record
from schedo.errors import Invalid

Duration = str | int | float | timedelta  # "90s", seconds, or a timedelta
Instant = str | datetime  # RFC 3339 with an offset, or aware


class SharedOptions(TypedDict, total=False):
    """The options that jobs and schedules share, without retry policy and unique key."""

    queue: str | None
    priority: int | None
    timeout: Duration | None
    expires_in: Duration | None
    delivery: Literal["at_least_once", "at_most_once"] | None
    tags: Sequence[str] | None
    meta: Mapping[str, Any] | None
    requires: Mapping[str, Any] | None
    prefer: Sequence[Mapping[str, Any]] | None


class SingleOptions(SharedOptions, total=False):
    """The options of one job, without the retry policy."""

    unique: Mapping[str, Any] | str | None
    delay: Duration | None
    run_at: Instant | None
    expires_at: Instant | None
    traceparent: str | None
    tracestate: str | None


class JobOptions(SingleOptions, total=False):
    """The options of a submit beyond task and payload."""

    retry: Mapping[str, Any] | str | int | None


def render_value(value: object) -> object:
    """Return an option as plain JSON data; raise Invalid for a datetime without a zone."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise Invalid(f"{value.isoformat()} has no time zone; use datetime.now(UTC) or similar")
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: render_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [render_value(item) for item in value]
    return value


def render_options(options: Mapping[str, object]) -> Record:
    """Return the given options as plain JSON data."""
    return {key: render_value(value) for key, value in options.items() if value is not None}
