"""The handling of a shortage: no process, thread, descriptor or memory to start an attempt.

The job is not at fault, and the next one would fail, too. So an attempt that cannot start keeps its
slot for a delay and is then released. The delay grows from round to round and is the same for all
slots, so each slot tries once a round.
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
_SHOWN_S = 2.0  # after the end of a round; by then the next try has succeeded or failed

_CODES = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS})
_NO_THREAD = "can't start new thread"  # the interpreter drops the error code

log = logging.getLogger("schedo.worker")


def is_shortage(error: BaseException | None) -> bool:
    """Return whether the error is a shortage of processes, threads, descriptors or memory."""
    if isinstance(error, RuntimeError):
        return str(error) == _NO_THREAD
    return isinstance(error, OSError) and error.errno in _CODES


class Shortage:
    """The growing delay of attempts that could not start; for one runner and one loop.

    `what` names what is not possible; the log message begins with it.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._delay_s = 0.0  # of the current round
        self._until = 0.0  # the end of the round, in the loop's time
        self._reason = ""

    def end(self) -> None:
        """End the shortage, because an attempt could start."""
        self._delay_s = self._until = 0.0

    async def wait(self, error: Exception, stop: StopSignal) -> Released:
        """Wait until the round ends or the attempt has to stop; return the attempt's outcome."""
        now = asyncio.get_running_loop().time()
        if now >= self._until:
            self._delay_s = min(2 * self._delay_s, PAUSE_S_MAX) or PAUSE_S
            self._until = now + self._delay_s
            code = error.errno if isinstance(error, OSError) else None
            self._reason = str(error) if code is None else os.strerror(code)
            log.warning(
                "%s (%s); retrying in %g s",
                self._what,
                self._reason,
                self._delay_s,
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._until):
                await stop.wait()
        return Released()

    def not_ready_reasons(self) -> list[str]:
        """Return why no attempt can start, as a list of at most one sentence."""
        if not self._until or asyncio.get_running_loop().time() > self._until + _SHOWN_S:
            return []
        return [f"{self._what}: {self._reason}"]
