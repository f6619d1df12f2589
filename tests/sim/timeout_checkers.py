"""The invariant of timeouts."""

from __future__ import annotations

from collections.abc import Iterator

from schedo.core.leases import StopReason
from schedo.core.limits import SECOND
from schedo.core.model import LeaseKey
from tests.sim.history import History
from tests.sim.trace import (
    Attached,
    Detached,
    Died,
    Event,
    Freezes,
    Froze,
    Opened,
    Reopened,
    Reported,
    Started,
    Stepped,
    StopSent,
    StoreFailed,
)

Findings = Iterator[str]
TIMEOUT_SLACK_US = 5 * SECOND
RECOVERY_MAX_US = 60 * SECOND  # with a store that stalls at each of its steps


def timeouts_are_kept(history: History) -> Findings:
    """An attempt is stopped soon after its timeout and not before, whatever the clocks show.

    It is not stopped before either if it goes on under another server or after a recovery.
    """
    timed = _Timed()
    starts: dict[LeaseKey, Started] = {}
    stepped_at = -RECOVERY_MAX_US
    for event in history.trace:
        if isinstance(event, Stepped):
            stepped_at = event.at
        elif isinstance(event, Started):
            # Else the clock may have been set while the lease was on its way.
            if stepped_at + RECOVERY_MAX_US <= _began_at(event) <= event.at:
                starts[event.lease.key] = event
        elif isinstance(event, StopSent) and event.stop.reason is StopReason.TIMEOUT:
            timed.running.pop(event.stop.key, None)
            start = starts.get(event.stop.key)
            if start is not None and event.at < _began_at(start) + _timeout(start):
                yield f"{event.stop.key} was stopped before its time was up"
        timed.record(event)
        overdue = [
            key
            for key, start in timed.running.items()
            if event.at > start.at + _timeout(start) + TIMEOUT_SLACK_US
        ]
        for key in overdue:
            del timed.running[key]
            yield f"{key} was not stopped when its time was up"


def _timeout(start: Started) -> int:
    return start.lease.options.timeout_us or 0


def _began_at(start: Started) -> int:
    """Return when the server decided the start; a worker may get its lease a moment later."""
    return start.at - (start.wall - start.lease.started_at)


class _Timed:
    """The running attempts whose timeout counts from their start."""

    def __init__(self) -> None:
        self.running: dict[LeaseKey, Started] = {}
        self._failed_at = -RECOVERY_MAX_US
        self._remote: set[int] = set()  # connections whose stops wait for a commit with reports

    def record(self, event: Event) -> None:
        if isinstance(event, Attached) and not event.server:
            self._remote.add(event.connection)
        elif isinstance(event, Started) and self._is_timed(event):
            self.running[event.lease.key] = event
        elif isinstance(event, Reported):
            self.running.pop(event.key, None)
        elif isinstance(event, Detached):
            self.running = {
                key: start
                for key, start in self.running.items()
                if start.connection != event.connection
            }
        elif isinstance(event, Died | Freezes | Froze | Opened | Reopened | StoreFailed):
            self.running.clear()  # if the clock was set, the timeouts begin again
            self._failed_at = event.at

    def _is_timed(self, event: Started) -> bool:
        return (
            event.lease.options.timeout_us is not None
            and event.connection not in self._remote
            and event.at > self._failed_at + RECOVERY_MAX_US
        )


CHECKERS = (timeouts_are_kept,)
