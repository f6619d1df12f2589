"""What a failure of a turn or of the store means: recover from the store, or end the process.

A disk that is full or a file that another program holds is tried again for as long as it takes. A
bug is recovered from too, but one that comes again after each recovery would leave a server that
answers and does nothing; then the process ends.
"""

from __future__ import annotations

import logging
from collections import deque

from schedo.errors import (
    SchedoError,
    ServerBroken,
    StoreBroken,
    StoreError,
    StoreFull,
    StoreRefused,
    Unavailable,
)

log = logging.getLogger("schedo.engine")

# After these nothing that the process does can be trusted any more.
MUST_END = (StoreBroken, ServerBroken)
BUGS_MAX = 5  # within
BUGS_PERIOD_S = 60.0


def log_fatal(error: BaseException) -> None:
    """Say in the log why nothing is done any more."""
    log.critical("%s; nothing more is done", error)


def interrupted(error: SchedoError) -> SchedoError:
    """Return the answer for what had acted when the error came: it may be durable all the same."""
    if isinstance(error, StoreFull | StoreRefused):  # of those nothing was written
        return error
    return StoreError(f"{error}; what was asked may or may not have happened")


class Bugs:
    """The bugs of the last minute."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=BUGS_MAX)

    def judge(self, error: Exception, now_s: float) -> SchedoError:
        """Return what callers are told of the error; MUST_END if it has come too often."""
        if isinstance(error, SchedoError) and not isinstance(error, StoreRefused):
            return error
        log.error("an internal error; recovering from the store", exc_info=error)
        self._seen.append(now_s)
        if len(self._seen) == BUGS_MAX and now_s - self._seen[0] < BUGS_PERIOD_S:
            return ServerBroken(
                f"an internal error came again and again ({type(error).__name__}: {error})"
            )
        if isinstance(error, StoreRefused):
            return error
        return Unavailable("an internal error; the server recovers")
