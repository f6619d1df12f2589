"""How much the write buffer keeps: much while one server runs alone, little beside a standby.

A standby must write to the tables what it finds in the buffer before it fires, and a row takes it
about 10 µs. So an active server with a standby flushes all entries each period. A job that has not
ended by then is written twice.
"""

from __future__ import annotations

from typing import NamedTuple


class Bounds(NamedTuple):
    """What is flushed soon.

    rows: with more than these, the oldest ones. waiting: the same for jobs that wait for an
    instant: they do not end soon. periods: a job that has not ended is flushed after this number of
    calls of flush_old; 0: each call flushes all jobs, whether they have ended or not.
    """

    rows: int
    waiting: int
    periods: int


# Enough that a job of a fast stream has ended before the flush. A row takes about 700 bytes plus
# its payload and result. For a moment the buffer may hold twice as much.
ALONE = Bounds(rows=8_192, waiting=512, periods=10)
BESIDE_STANDBY = Bounds(rows=1_024, waiting=32, periods=0)
