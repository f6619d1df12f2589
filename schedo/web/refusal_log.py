"""Logs the requests that the server could not carry out, with each reason a few times a minute.

While the store is away, every request fails, and the log must still show what else happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from schedo.errors import SchedoError

log = logging.getLogger("schedo.web")

LINES_MAX = 5  # with one reason in one window; then the others are counted
WINDOW_S = 60.0
REASONS_MAX = 64  # further ones share the lines of one
_OTHERS = "for other reasons"


class RefusalLog:
    """Writes the lines of one window; the next one begins with the next request that fails."""

    def __init__(self) -> None:
        self._counts = Counter[str]()  # of this window, by the reason
        self._ending: asyncio.TimerHandle | None = None

    def note(self, request_id: str, error: SchedoError) -> None:
        """Log that a request failed, or count it."""
        reason = str(error)
        if reason not in self._counts and len(self._counts) >= REASONS_MAX:
            reason = _OTHERS
        self._counts[reason] += 1
        if self._counts[reason] <= LINES_MAX:
            log.warning("request %s: %s", request_id, error)
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(WINDOW_S, self._end_window)

    def _end_window(self) -> None:
        """Log how many more requests failed, with each reason."""
        counts, self._counts, self._ending = self._counts, Counter(), None
        for reason, count in counts.items():
            if count > LINES_MAX:
                log.warning(
                    "%d more requests failed within %.0f s: %s", count - LINES_MAX, WINDOW_S, reason
                )
