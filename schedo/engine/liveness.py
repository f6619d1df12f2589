"""How long a worker has been silent, as far as this process could have heard it.

After a pause (SIGSTOP, a suspended machine, a blocked loop) the loop's timers run before it has
read what lies in the sockets. So the time in which the loop stood still does not count, and nobody
is judged before the loop has listened once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TICK_S = 1.0
LATE_S = 0.25  # so late is no timer, unless the loop stood still
LISTEN_S = 0.1
SOON_S = 0.001  # no timer is better
LISTENS_MAX = 10  # a loop that is late all the time must come to a judgement, too


class Listening:
    """The loop's time without that in which it stood still for more than LATE_S."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._still_s = 0.0
        self._arm()

    def time(self) -> float:
        """Return the time in seconds; only differences mean something."""
        now = self._loop.time()
        late_s = now - self._timer.when()
        return now - self._still_s - (late_s if late_s > LATE_S else 0.0)

    def close(self) -> None:
        """Let go of the timer."""
        self._timer.cancel()

    def _arm(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        late_s = self._loop.time() - self._timer.when()
        if late_s > LATE_S:
            self._still_s += late_s
        self._arm()


class Silence:
    """Calls `on_silence` when no word has come in time; one timer serves many words."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: Listening,
        on_silence: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._listening = listening
        self._on_silence = on_silence
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = 0.0  # the listening time
        self._listened = 0  # how often, after the time was up

    def expect(self, within_s: float) -> None:
        """Take note of a word; the next one is expected within so many seconds."""
        self._ends_at = self._listening.time() + within_s
        self._listened = 0
        if self._timer is not None and self._timer.when() > self._loop.time() + within_s:
            self.cancel()
        if self._timer is None:
            self._look_in(within_s)

    @property
    def is_expecting(self) -> bool:
        """Whether on_silence may be called."""
        return self._timer is not None

    def cancel(self) -> None:
        """Expect nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        assert self._timer is not None, "it has just rung"
        is_late = self._loop.time() - self._timer.when() > LISTEN_S
        self._timer = None
        left_s = self._ends_at - self._listening.time()
        if left_s > SOON_S:
            self._look_in(left_s)
        elif not self._listened or (is_late and self._listened < LISTENS_MAX):
            self._listened += 1
            self._look_in(LISTEN_S)
        else:
            self._on_silence()
