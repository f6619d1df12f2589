"""Clocks for tests: one moves only when a test moves it, one follows a virtual event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from schedo.clock import SLEEP_MAX_US
from schedo.virtual_clock import VirtualClock

__all__ = ["LoopClock", "VirtualClock", "Wall"]


class Wall:
    """A wall clock that follows the loop's time and can be set; all LoopClocks can share one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: int) -> None:
        self._loop = loop
        self.offset_us = now

    def now(self) -> int:
        """Return the time of the wall clock, in microseconds UTC."""
        return round(self._loop.time() * 1_000_000) + self.offset_us


class LoopClock:
    """A schedo.clock.Clock on a Wall; like the real clock, it notices a step when it is read."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wall: Wall,
        late_us: Callable[[], int] = lambda: 0,
    ) -> None:
        self._loop = loop
        self._wall = wall
        self._late_us = late_us  # how late an alarm fires; negative: how early
        self.boot = 1
        self.base_us = wall.offset_us
        self._wake: Callable[[], None] | None = None
        self._stepped: Callable[[], None] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    def now(self) -> int:
        """Return the wall clock, without steps not yet followed."""
        if self.step_us() and self._stepped is not None:
            self._stepped()
        return round(self._loop.time() * 1_000_000) + self.base_us

    def step_us(self) -> int:
        """Return by how much the clock was set and not yet followed."""
        return self._wall.offset_us - self.base_us

    def follow(self, step_us: int) -> None:
        """Let `now` jump by this part of the step."""
        self.base_us += step_us

    def ahead_us(self) -> int:
        """Return the step that is not yet followed, or 0."""
        return self.step_us()

    def start(self, wake: Callable[[], None], stepped: Callable[[], None]) -> None:
        """Bind to an engine."""
        self._wake, self._stepped = wake, stepped

    def arm(self, at: int | None) -> None:
        """Set the alarm to the instant, or to at most SLEEP_MAX_US ahead."""
        self._disarm()
        wait_us = SLEEP_MAX_US if at is None else at - self.now() + self._late_us()
        sleep_us = min(wait_us, SLEEP_MAX_US)
        self._alarm = self._loop.call_later(max(sleep_us, 1) / 1_000_000, self.fire)

    def close(self) -> None:
        """Release the alarm and unbind from the engine."""
        self._disarm()
        self._wake = self._stepped = None

    def fire(self) -> None:
        """Wake the engine now, before the alarm is due."""
        if self._wake is not None:
            self._wake()

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
