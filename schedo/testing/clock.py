"""A clock that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable

from schedo.engine.engine import Engine


class VirtualClock:
    """A schedo.clock.Clock whose time is a number; instants are microseconds UTC."""

    def __init__(self, now: int = 0) -> None:
        self._now = now
        self.armed_at: int | None = None
        self._wake: Callable[[], None] | None = None
        self._stepped: Callable[[int], None] | None = None

    def now(self) -> int:
        """Return the virtual instant."""
        return self._now

    def start(self, wake: Callable[[], None], stepped: Callable[[int], None]) -> None:
        """Bind to an engine."""
        self._wake, self._stepped = wake, stepped

    def arm(self, at: int | None) -> None:
        """Remember when the engine wants to be woken."""
        self.armed_at = at

    def close(self) -> None:
        """Give up the alarm."""
        self.armed_at = self._wake = None

    def step(self, delta_us: int) -> None:
        """Set the clock forward or back at once, as an administrator does."""
        self._now += delta_us
        assert self._wake is not None and self._stepped is not None, "the engine was started"
        self._stepped(delta_us)
        self._wake()

    async def run_until(self, engine: Engine, at: int) -> None:
        """Move on to the instant, stopping at each one the engine has armed on the way."""
        await engine.settled()
        while self._wake is not None and self.armed_at is not None and self.armed_at <= at:
            assert self.armed_at >= self._now, "time cannot go back"
            self._now, self.armed_at = self.armed_at, None
            self._wake()
            await engine.settled()
        self._now = max(self._now, at)
