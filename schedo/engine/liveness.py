"""The session timeout of workers, which does not count the time in which this process stalls.

After a pause (SIGSTOP, a suspended machine, a blocked loop) the loop runs its timers before it
reads the requests that wait in the sockets. So the time of a stall does not count, and no worker
is lost before the loop has read the sockets once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TICK_S = 1.0
LATE_S = 0.25  # a timer that is later than this shows that the loop has stalled
LISTEN_S = 0.1
SOON_S = 0.001  # timers are not more precise
LISTENS_MAX = 10  # even if the loop is late all the time, the timeout ends


class ListeningClock:
    """The loop's time without the stalls that were longer than LATE_S."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stalled_s = 0.0
        self._arm()

    def time(self) -> float:
        """Return the time in seconds; only differences have a meaning."""
        now = self._loop.time()
        late_s = now - self._timer.when()
        return now - self._stalled_s - (late_s if late_s > LATE_S else 0.0)

    def close(self) -> None:
        """Cancel the timer."""
        self._timer.cancel()

    def _arm(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        late_s = self._loop.time() - self._timer.when()
        if late_s > LATE_S:
            self._stalled_s += late_s
        self._arm()


class SessionTimer:
    """Calls `on_timeout` when no request arrives in time; one loop timer serves many requests."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening_clock: ListeningClock,
        on_timeout: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._listening_clock = listening_clock
        self._on_timeout = on_timeout
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = 0.0  # by the listening clock
        self._listened = 0  # how often the loop read the sockets after that

    def expect(self, within_s: float) -> None:
        """Note a request; the next one is expected within `within_s` seconds."""
        self._ends_at = self._listening_clock.time() + within_s
        self._listened = 0
        if self._timer is not None and self._timer.when() > self._loop.time() + within_s:
            self.cancel()
        if self._timer is None:
            self._check_in(within_s)

    @property
    def is_expecting(self) -> bool:
        """Whether the timeout runs."""
        return self._timer is not None

    def cancel(self) -> None:
        """Suspend the timeout."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._check)

    def _check(self) -> None:
        assert self._timer is not None, "it has just rung"
        is_late = self._loop.time() - self._timer.when() > LISTEN_S
        self._timer = None
        left_s = self._ends_at - self._listening_clock.time()
        if left_s > SOON_S:
            self._check_in(left_s)
        elif not self._listened or (is_late and self._listened < LISTENS_MAX):
            self._listened += 1
            self._check_in(LISTEN_S)
        else:
            self._on_timeout()
