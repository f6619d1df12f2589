"""When the machine has no process, descriptor or memory left to begin an attempt with.

That is no fault of the job, and the next one would fare no better. So an attempt that could not
begin keeps its slot for a pause and is handed back after it, uncounted. The pause grows from round
to round and is the same for all, so that each slot tries once a round.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os

from schedo.core.leases import Released
from schedo.tasks.runner import StopSignal

PAUSE_S, PAUSE_S_MAX = 1.0, 30.0
_SHOWN_S = 2.0  # beyond the end of a round: the next try has been made by then

_CODES = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS})

log = logging.getLogger("schedo.workers")


def is_shortage(error: BaseException | None) -> bool:
    """Return whether the error says that the machine lacks something, whatever was asked of it."""
    return isinstance(error, OSError) and error.errno in _CODES


class Shortage:
    """How long what could not begin has to wait; for one runner and one loop.

    `what` begins the sentence that says so.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._pause_s = 0.0  # of the present round
        self._until = 0.0  # its end, in the loop's time
        self._reason = ""

    def end(self) -> None:
        """Note that something could begin."""
        self._pause_s = self._until = 0.0

    async def wait(self, error: OSError, stop: StopSignal) -> Released:
        """Return, when the round is over or the attempt is to end, how the attempt ends."""
        now = asyncio.get_running_loop().time()
        if now >= self._until:
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX) or PAUSE_S
            self._until = now + self._pause_s
            self._reason = os.strerror(error.errno or 0)
            log.warning(
                "%s (%s); the next try is in %g s",
                self._what,
                self._reason,
                self._pause_s,
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._until):
                await stop.wait()
        return Released()

    def not_ready_reasons(self) -> list[str]:
        """Return in a sentence why nothing can begin."""
        if not self._until or asyncio.get_running_loop().time() > self._until + _SHOWN_S:
            return []
        return [f"{self._what}: {self._reason}"]
