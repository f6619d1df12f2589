"""The consequences of an error in a turn or in the store: recovery, or the end of the process.

The engine retries a full disk or a locked file without a limit. It recovers from a bug too. But a
bug that returns after each recovery would leave a server that answers requests and runs no jobs;
then the process ends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping

from schedo.core.inbox import RowsFailed
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

# After these errors the process cannot continue correctly.
MUST_END = (StoreBroken, ServerBroken)
BUGS_MAX = 5  # within
BUGS_PERIOD_S = 60.0
# Refuses what these jobs, by id, have brought; returns whether it has refused anything.
Refuse = Callable[[Mapping[int, str]], bool]


class OutcomeUnknown(StoreError):
    """What the request has done is not known, or not all of it; the message says what is known."""


def log_fatal(error: Exception) -> None:
    """Log the error that stops the engine."""
    log.critical("%s; the engine has stopped", error)


def interrupted(error: SchedoError) -> SchedoError:
    """Return the error for commands that had run when `error` came: they may still be durable."""
    if isinstance(error, StoreFull | StoreRefused):  # these write nothing
        return error
    return OutcomeUnknown(f"{error}; the change may or may not be durable")


class Bugs:
    """The bugs of the last minute.

    One that is about jobs whose values are refused from then on does not count: it does not return
    with them.
    """

    def __init__(self, *refuse: Refuse) -> None:
        self._seen: deque[float] = deque(maxlen=BUGS_MAX)
        self.refuse = [*refuse]

    def classify(self, error: Exception, now_s: float) -> SchedoError:
        """Return the error that callers get; it is one of MUST_END after too many bugs."""
        if isinstance(error, SchedoError) and not isinstance(error, StoreRefused):
            return error
        shown = error
        if not isinstance(shown, StoreRefused):
            shown = Unavailable("an internal error; the server recovers")
        if isinstance(error, StoreRefused | RowsFailed) and self._refuse(error.jobs):
            trace = None if shown is error else error
            log.error("%s; the server goes on without these values", error, exc_info=trace)
            return shown
        log.error("an internal error; recovering from the store", exc_info=error)
        self._seen.append(now_s)
        if len(self._seen) == BUGS_MAX and now_s - self._seen[0] < BUGS_PERIOD_S:
            return ServerBroken(
                f"internal errors repeat after each recovery ({type(error).__name__}: {error})"
            )
        return shown

    def _refuse(self, jobs: Mapping[int, str]) -> bool:
        found = [refuse(jobs) for refuse in self.refuse]
        return any(found)
