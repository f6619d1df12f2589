"""A clock that moves only when a program moves it, for tests and `schedo serve --test-clock`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Flushes(Protocol):
    """What the clock waits for after each instant: an engine."""

    async def flush(self) -> object:
        """Return once everything that is due now is done."""


class VirtualClock:
    """A schedo.clock.Clock whose time is a number; instants are microseconds UTC."""

    def __init__(self, now: int = 0, *, boot: int = 1) -> None:
        self.boot = boot
        self.base_us = 0
        self.is_moving = asyncio.Lock()  # by one caller at a time
        self._now = now
        self._step_us = 0
        self.armed_at: int | None = None
        self._wake: Callable[[], None] | None = None
        self._stepped: Callable[[], None] | None = None

    def now(self) -> int:
        """Return the virtual instant."""
        return self._now

    def step_us(self) -> int:
        """Return the step that is not yet followed, or 0."""
        return self._step_us

    def follow(self, step_us: int) -> None:
        """Let `now` jump by this part of the step."""
        self._now += step_us
        self.base_us += step_us
        self._step_us -= step_us

    def ahead_us(self) -> int:
        """Return the step that is not yet followed, or 0."""
        return self._step_us

    def start(self, wake: Callable[[], None], stepped: Callable[[], None]) -> None:
        """Bind to an engine."""
        self._wake, self._stepped = wake, stepped

    def arm(self, at: int | None) -> None:
        """Store the instant of the next wake."""
        self.armed_at = at

    def close(self) -> None:
        """Unbind from the engine."""
        self.armed_at = self._wake = None

    def step(self, delta_us: int) -> None:
        """Set the wall clock forward or back, as an administrator does."""
        self._step_us += delta_us
        if self._wake is not None:
            assert self._stepped is not None, "both are set together"
            self._stepped()
            self._wake()

    def stall(self, delta_us: int) -> None:
        """Let time pass without a wake, as in a blocked loop; wake the engine afterwards if due."""
        self._now += delta_us
        if self._wake is not None and self.armed_at is not None and self.armed_at <= self._now:
            self.armed_at = None
            self._wake()

    async def run_until(self, engine: Flushes, at: int) -> None:
        """Advance to the instant; wake the engine at each instant for which it armed the clock."""
        await engine.flush()
        while self._wake is not None and self.armed_at is not None and self.armed_at <= at:
            assert self.armed_at >= self._now, "time cannot go back"
            self._now, self.armed_at = self.armed_at, None
            self._wake()
            await engine.flush()
        self._now = max(self._now, at)
