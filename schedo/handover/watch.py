"""The watch of a standby over the active server: pings, and what it does when no pong comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count

from schedo.handover.client import STUCK_AFTER_S
from schedo.handover.link import Link
from schedo.handover.messages import Ping, Pong
from schedo.silence_timer import SilenceTimer

log = logging.getLogger("schedo.handover")

PING_S = 1.0


class PongWatch:
    """Pings one active server, and calls `kill` once it has been silent for `kill_after_s`.

    A server that answers no ping for STUCK_AFTER_S counts as stuck. Pauses of this process do not
    count: after one, the pongs that have arrived meanwhile are read before the time is over.
    """

    def __init__(self, link: Link, kill_after_s: float | None, kill: Callable[[], None]) -> None:
        """kill_after_s: None: never."""
        self._link = link
        self._kill_after_s = kill_after_s
        self._kill = kill
        self._timers: list[SilenceTimer] = []
        self.is_stuck = False
        self.heard()

    def heard(self) -> None:
        """Count the silence from now on: the server has answered."""
        if self.is_stuck:
            self.is_stuck = False
            log.warning("the active server (pid %d) answers again", self._link.peer.pid)
        self.close()
        self._timers = [SilenceTimer(STUCK_AFTER_S, self._note_stuck)]
        if self._kill_after_s is not None:
            self._timers.append(SilenceTimer(self._kill_after_s, self._kill))

    def close(self) -> None:
        """Stop the timers."""
        for timer in self._timers:
            timer.cancel()

    async def run(self) -> None:
        """Ping, and read the pongs, until the connection ends with LinkLost."""
        pause_s = PING_S if self._kill_after_s is None else min(PING_S, self._kill_after_s / 10)
        for number in count(1):
            self._link.send(Ping(number))
            await self._link.expect(Pong)
            self.heard()
            await asyncio.sleep(pause_s)

    def _note_stuck(self) -> None:
        self.is_stuck = True
        log.error(
            "the active server (pid %d) is stuck: it has not answered for %g s, and it holds the"
            " store, so this standby cannot take its place%s",
            self._link.peer.pid,
            STUCK_AFTER_S,
            "" if self._kill_after_s is None else f"; it is killed after {self._kill_after_s:g} s",
        )
