"""Instants as text: RFC 3339 in UTC, as responses, commands and the facts of events have them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from schedo.core.limits import SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=1_024)  # events of about the same time share their second
def _render_second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=1_024)  # the jobs of one batch share their instant
def render_instant(us: int) -> str:
    """Return the instant as RFC 3339 in UTC with six decimals, so that text sorts as time does."""
    second, micros = divmod(us, SECOND)
    return f"{_render_second(second)}.{micros:06d}Z"
