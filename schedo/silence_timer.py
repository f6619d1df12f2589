"""A timer for another process's silence; time in which this one stood still does not count.

After a pause (SIGSTOP, a suspended machine, a blocked loop) the timers of a loop run before it has
read what others said meanwhile. So a wait is made of short looks: however late a look comes, it
counts once, and if the last one comes late there is another, so that the loop reads before anybody
is judged. One more only: a loop that is late all the time must come to a judgement, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LOOK_S = 0.25


class SilenceTimer:
    """Calls `on_silence` after `silence_s` seconds in which this process could have heard."""

    def __init__(self, silence_s: float, on_silence: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_silence = on_silence
        self._left_s = silence_s
        self._look_s = min(LOOK_S, silence_s)
        self._was_late = False
        self._handle = self._arm(self._look_s)

    def cancel(self) -> None:
        """Call nobody."""
        self._handle.cancel()

    def _arm(self, look_s: float) -> asyncio.TimerHandle:
        self._due_at = self._loop.time() + look_s
        self._left_s -= look_s
        return self._loop.call_at(self._due_at, self._look)

    def _look(self) -> None:
        is_late = self._loop.time() - self._due_at > LOOK_S
        if self._left_s > 0:
            self._handle = self._arm(min(self._look_s, self._left_s))
        elif is_late and not self._was_late:
            self._was_late = True
            self._handle = self._arm(self._look_s)
        else:
            self._on_silence()
