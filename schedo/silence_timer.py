"""A timer for another process's silence; pauses of this process do not count.

After a pause (SIGSTOP, a suspended machine, a blocked loop) an event loop runs its timers before it
reads the messages that arrived meanwhile. So the timeout consists of short checks: however late a
check runs, it counts once. If the last check is late, one more follows, so that the loop reads its
sockets before the timeout. Only one more, so that a loop that is always late still times out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

CHECK_S = 0.25


class SilenceTimer:
    """Calls `on_silence` after `silence_s` seconds during which this process was running."""

    def __init__(self, silence_s: float, on_silence: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_silence = on_silence
        self._remaining_s = silence_s
        self._interval_s = min(CHECK_S, silence_s)
        self._was_late = False
        self._handle = self._arm(self._interval_s)

    def cancel(self) -> None:
        """Stop the timer; `on_silence` is not called any more."""
        self._handle.cancel()

    def _arm(self, interval_s: float) -> asyncio.TimerHandle:
        self._due_at = self._loop.time() + interval_s
        self._remaining_s -= interval_s
        return self._loop.call_at(self._due_at, self._check)

    def _check(self) -> None:
        is_late = self._loop.time() - self._due_at > CHECK_S
        if self._remaining_s > 0:
            self._handle = self._arm(min(self._interval_s, self._remaining_s))
        elif is_late and not self._was_late:
            self._was_late = True
            self._handle = self._arm(self._interval_s)
        else:
            self._on_silence()
