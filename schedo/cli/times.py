"""Renders and parses times for a terminal: in local time, with the distance from now."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import click

from schedo.core import limits
from schedo.protocol.times import parse_instant, render_instant

_UNITS = (("d", limits.DAY), ("h", limits.HOUR), ("m", limits.MINUTE), ("s", limits.SECOND))
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?\Z")
_LOCAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2})?\Z")
_DATE = re.compile(r"[0-9]{4,6}-[0-9]{2}-[0-9]{2}[Tt ]")
_FORMS = 'write "18:30", "2026-11-20 18:30" or "2026-11-20T18:30:00Z"'


def read_now() -> int:
    """Return this machine's time in microseconds; only distances such as "in 5s" depend on it."""
    return time.time_ns() // 1_000


def render_span(us: int) -> str:
    """Return a duration in its two largest units: "2m", "1h5m", "3d4h", "450ms"."""
    if us < limits.SECOND:
        return f"{us // limits.MILLISECOND}ms" if us else "0s"
    parts = []
    for letter, unit in _UNITS:
        count, us = divmod(us, unit)
        if count:
            parts.append(f"{count}{letter}")
        if len(parts) == 2 or (parts and not count):
            break
    return "".join(parts)


def render_distance(us: int, now: int) -> str:
    """Return the distance of an instant from now: "in 5s", "2m ago", "now"."""
    distance = us - now
    if abs(distance) < limits.SECOND:
        return "now"
    span = render_span(abs(distance) // limits.SECOND * limits.SECOND)
    return f"in {span}" if distance > 0 else f"{span} ago"


def render_time(text: str | None, now: int, zone: tzinfo | None = None) -> str:
    """Return an instant of the API in local time, with the date only if it is not today."""
    if not text:
        return "-"
    us = parse_instant(text)
    try:
        local, today = _local(us, zone), _local(now, zone).date()
    except (OverflowError, ValueError, OSError):  # the last hours of the year 9999
        return render_instant(us)
    form = "%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M"
    return f"{local.strftime(form)} ({render_distance(us, now)})"


def render_duration_between(start: str | None, end: str | None) -> str:
    """Return the time from one instant of the API to another: "1m5s", or "-" if one is missing."""
    if not start or not end:
        return "-"
    return render_span(max(0, parse_instant(end) - parse_instant(start)))


def keep_distance(text: str) -> str:
    """Return only the distance of a text that render_time made: "2m ago"."""
    _, found, distance = text.partition(" (")
    return distance.removesuffix(")") if found else text


def render_full(text: str, now: int, zone: tzinfo | None = None) -> str:
    """Return an instant of the API in local time with milliseconds and offset."""
    us = parse_instant(text)
    try:
        local = _local(us, zone).isoformat(" ", "milliseconds")
    except (OverflowError, ValueError, OSError):
        local = render_instant(us)
    return f"{local} ({render_distance(us, now)})"


def _local(us: int, zone: tzinfo | None) -> datetime:
    instant = datetime.fromtimestamp(us // limits.SECOND, UTC)
    return (instant + timedelta(microseconds=us % limits.SECOND)).astimezone(zone)


def parse_time(text: str, now: int, zone: tzinfo | None = None) -> str:
    """Return RFC 3339 for a time with an offset, a local "2026-11-20 18:30", or the next "18:30".

    Raises ValueError with a sentence.
    """
    clock = _CLOCK.match(text)
    if clock:
        hour, minute, second = (int(part or 0) for part in clock.groups())
        today = _local(now, zone)
        local = today.replace(hour=hour, minute=minute, second=second, microsecond=0, fold=0)
        if local <= today:
            local += timedelta(days=1)
        return _with_offset(local, zone).isoformat()
    if _LOCAL.match(text):
        return _with_offset(datetime.fromisoformat(text), zone).isoformat()
    if not _DATE.match(text):
        raise ValueError(f"{text[:40]!r} is not a time; {_FORMS}")
    try:
        return render_instant(parse_instant(text))
    except ValueError as error:
        raise ValueError(f"{error}; {_FORMS}") from None


def warn_of_past(fields: Mapping[str, Any]) -> None:
    """Print a warning on stderr if the `run_at` of a job has passed."""
    run_at = fields.get("run_at")
    if run_at is not None and parse_instant(run_at) < read_now():
        click.echo(f"schedo: warning: {run_at} has passed; the job is due now", err=True)


def _with_offset(local: datetime, zone: tzinfo | None) -> datetime:
    """Return the wall time with the zone's offset at that time."""
    wall = local.replace(tzinfo=None)
    return wall.replace(tzinfo=zone) if zone else wall.astimezone()
