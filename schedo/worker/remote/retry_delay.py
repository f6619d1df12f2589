"""Backoff between the requests of a worker: longer after each failure, with full jitter.

The jitter keeps a thousand workers from returning to a restarted server at the same moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from schedo.errors import SchedoError

# A standby server takes over within milliseconds, and waits for a moment for the workers before it
# gives their jobs to others (core/adoption.py).
FIRST_S = 0.025
SECOND_S = 0.25
# A worker that returns within five seconds keeps its attempts, so the first retries come soon.
LONGEST_S = 5.0
RETRY_AFTER_S_MAX = 60.0
_IDLE_FIRST_S = 0.02
_IDLE_LONGEST_S = 1.0
_IDLE_FREE = 2  # this many early and empty responses in a row are normal
_DOUBLINGS_MAX = 10

log = logging.getLogger("schedo.worker")


class RetryDelay:
    """Counts consecutive failures. `random` returns [0, 1); setting `waking` ends any wait."""

    def __init__(self, random: Callable[[], float], waking: asyncio.Event) -> None:
        self._random = random
        self._waking = waking
        self._failures = 0
        self._idle_responses = 0
        self._logged = ""

    def note_success(self) -> None:
        """Reset the backoff: the server has responded."""
        if self._logged:
            log.info("the server responds again")
        self._failures = 0
        self._logged = ""

    async def wait_after(self, error: SchedoError, *, is_quiet: bool = False) -> None:
        """Wait for the backoff of this error; log the error if it differs from the last one."""
        if not is_quiet and self._logged != str(error):
            self._logged = str(error)
            log.warning("%s; retrying", error)
        await self._wait(self.delay_s(getattr(error, "retry_after_s", None)))

    def idle_s(self, *, is_idle: bool) -> float:
        """Return the pause before the next poll, in seconds.

        If a server repeatedly responds early without leases, the worker must not spin.
        """
        self._idle_responses = self._idle_responses + 1 if is_idle else 0
        if self._idle_responses <= _IDLE_FREE:
            return 0.0
        doublings = min(self._idle_responses - _IDLE_FREE, _DOUBLINGS_MAX)
        return min(_IDLE_LONGEST_S, _IDLE_FIRST_S * 2.0**doublings)

    def delay_s(self, retry_after_s: float | None) -> float:
        """Return the next wait in seconds: part of the backoff, or Retry-After and more."""
        self._failures += 1
        if retry_after_s is not None:
            return min(retry_after_s, RETRY_AFTER_S_MAX) * (1 + self._random() / 2)
        backoff_s: float = SECOND_S * 2 ** min(self._failures - 2, _DOUBLINGS_MAX)
        return self._random() * (FIRST_S if self._failures == 1 else min(LONGEST_S, backoff_s))

    async def _wait(self, delay_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._waking.wait()
        self._waking.clear()
