"""The passing of the store to another process: the new one of an upgrade, or a standby.

For some milliseconds requests wait. This process commits for the last time and closes the store,
and the other process opens it and accepts. If it does not, this process opens the store again and
serves on. Else this process sees through what it still runs: see server/replaced.py.
"""

from __future__ import annotations

import logging
import math
import os
import time
from typing import TYPE_CHECKING, Protocol

from schedo.handover.messages import UpgradeFailed
from schedo.handover.steps import Step, log_step
from schedo.server.replaced import Replaced

if TYPE_CHECKING:
    from schedo.server.server import Server

log = logging.getLogger("schedo")


class Recipient(Protocol):
    """The process that gets the store."""

    async def take(self, held_at: float) -> None:
        """Let the process open the closed store; return once it serves.

        Raise UpgradeFailed if it does not. held_at: time.monotonic() when requests began to wait.
        """

    async def give_up(self) -> None:
        """Make sure that this process alone has the locks of the store."""


async def pass_store(server: Server, recipient: Recipient, waits_s: float = math.inf) -> None:
    """Let the other process have the store, or raise UpgradeFailed and serve on.

    waits_s: how long a request that waits for a job may wait on through this process.
    """
    held_at = time.monotonic()
    worker = f"handover-{os.getpid()}"
    try:
        await server.http.hold(server.engine.freezing.end_waits, waits_s)
        log_step(Step.HELD)
        frozen = await server.engine.freezing.freeze(worker)
    except Exception as error:
        await recipient.give_up()
        await server.http.resume()
        raise UpgradeFailed(f"the last commit of this process failed: {error}") from error
    server.workers.leave()
    log_step(Step.FROZEN)
    try:
        await recipient.take(held_at)
    except UpgradeFailed:
        await _take_back(server, recipient)
        raise
    await server.store.close()  # gives the locks away
    server.leave_control()
    server.replaced = Replaced(server, worker, frozen)
    log_step(Step.REPLACED)


async def _take_back(server: Server, recipient: Recipient) -> None:
    """Serve again."""
    await recipient.give_up()
    server.workers.come_back()
    await server.engine.freezing.reopen()
    server.reopen_control()
    await server.http.resume()
