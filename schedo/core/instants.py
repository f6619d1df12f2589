"""Instants and durations as text.

Responses, commands and the facts of events have instants as RFC 3339 in UTC. Messages
have durations such as "1 h 30 min".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from schedo.core.limits import DAY, HOUR, MILLISECOND, MINUTE, SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND))


@lru_cache(maxsize=1_024)  # events of about the same time share their second
def _render_second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=1_024)  # the jobs of one batch share their instant
def render_instant(us: int) -> str:
    """Return the instant as RFC 3339 in UTC with six decimals, so that text sorts as time does."""
    second, micros = divmod(us, SECOND)
    return f"{_render_second(second)}.{micros:06d}Z"


def describe_duration(us: int) -> str:
    """Return the duration for a message: "450 ms", "1.5 s", "1 h 30 min", "26 h", "3 d".

    From a minute on it has the two largest units, and days only from two days on.
    """
    if us < SECOND:
        return f"{us / MILLISECOND:g} ms"
    if us < MINUTE:
        return f"{us / SECOND:g} s"
    parts = []
    for name, unit in _UNITS if us >= 2 * DAY else _UNITS[1:]:
        count, us = divmod(us, unit)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])
