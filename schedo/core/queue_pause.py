"""The pause of one queue."""

from __future__ import annotations

import msgspec


class QueuePause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Since when a queue is paused, why, and the instant at which the pause ends by itself."""

    since: int
    note: str | None = None
    until: int | None = None
