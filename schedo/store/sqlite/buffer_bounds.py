"""How much the write buffer keeps: much while one server runs alone, little beside a standby.

A standby must write to the tables what it finds in the buffer before it fires, and a row takes it
about 10 µs. So an active server with a standby flushes all entries each period. A job that has not
ended by then is written twice.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Bounds(NamedTuple):
    """What is flushed soon.

    rows: with more than these, the oldest ones. waiting: the same for jobs that wait for an
    instant: they do not end soon. periods: a job that has not ended is flushed after this number of
    calls of flush_old; 0: each call flushes all jobs, whether they have ended or not. few: fewer
    rows than these wait for more, up to FEW_PERIODS, because a flush costs as much as some fifty
    rows.
    """

    rows: int
    waiting: int
    periods: int
    few: int


# Enough that a job of a fast stream has ended before the flush. A row takes about 700 bytes plus
# its payload and result. For a moment the buffer may hold twice as much.
ALONE = Bounds(rows=8_192, waiting=512, periods=10, few=128)
BESIDE_STANDBY = Bounds(rows=1_024, waiting=32, periods=0, few=0)
FEW_PERIODS = 5
FLUSH_PERIOD_S = 0.1


class Periods:
    """The newest entries of the buffer at the ends of the last periods.

    The thread of the event loop ends periods; that of the writer does the rest.
    """

    def __init__(self) -> None:
        self._newest: deque[int] = deque(maxlen=ALONE.periods)
        self._waited = 0  # periods since the last one that ended with a flush

    def is_flush_due(self, bounds: Bounds, rows: int, newest: int) -> bool:
        """Whether the period ends with a flush, which calls `end`; if not, it ends here."""
        self._waited += 1
        if rows < bounds.few and self._waited < FEW_PERIODS:
            self.end(newest)
            return False
        self._waited = 0
        return True

    def end(self, newest: int) -> None:
        """Note the newest entry at the end of a period."""
        self._newest.append(newest)

    def newest_before(self, count: int) -> int:
        """Return the newest entry at the end of a period, `count` periods ago, or 0."""
        return self._newest[-count] if len(self._newest) >= count else 0

    def clear(self) -> None:
        """Forget the entries, whose ids begin again."""
        self._newest.clear()
