"""How long a worker waits before it asks again: longer each time, never all workers at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from schedo.errors import SchedoError

FIRST_S = 0.25
# A worker that comes back within five seconds keeps its attempts, so the first tries come quickly.
LONGEST_S = 5.0
RETRY_AFTER_S_MAX = 60.0
_IDLE_FIRST_S = 0.02
_IDLE_LONGEST_S = 1.0
_IDLE_FREE = 2  # so many answers that say nothing are only a coincidence
_DOUBLINGS_MAX = 10

log = logging.getLogger("schedo.worker")


class RetryDelay:
    """Counts what went wrong in a row. `random` gives [0, 1); `waking` cuts any wait short."""

    def __init__(self, random: Callable[[], float], waking: asyncio.Event) -> None:
        self._random = random
        self._waking = waking
        self._failures = 0
        self._idle_answers = 0
        self._said = ""

    def note_success(self) -> None:
        """Begin anew: the server has answered."""
        if self._said:
            log.info("the server answers again")
        self._failures = 0
        self._said = ""

    async def wait_after(self, error: SchedoError, *, is_quiet: bool = False) -> None:
        """Wait as long as this error asks for, and say once what it is."""
        if not is_quiet and self._said != str(error):
            self._said = str(error)
            log.warning("%s; trying again", error)
        await self._wait(self.delay_s(getattr(error, "retry_after_s", None)))

    def idle_s(self, *, is_idle: bool) -> float:
        """Return how long to rest when one answer after the other says nothing and comes soon."""
        self._idle_answers = self._idle_answers + 1 if is_idle else 0
        if self._idle_answers <= _IDLE_FREE:
            return 0.0
        doublings = min(self._idle_answers - _IDLE_FREE, _DOUBLINGS_MAX)
        return min(_IDLE_LONGEST_S, _IDLE_FIRST_S * 2.0**doublings)

    def delay_s(self, retry_after_s: float | None) -> float:
        """Return the next wait: a share of a growing span, or what the server asked and more."""
        self._failures += 1
        if retry_after_s is not None:
            return min(retry_after_s, RETRY_AFTER_S_MAX) * (1 + self._random() / 2)
        span_s: float = FIRST_S * 2 ** min(self._failures - 1, _DOUBLINGS_MAX)
        return self._random() * min(LONGEST_S, span_s)

    async def _wait(self, delay_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._waking.wait()
        self._waking.clear()
