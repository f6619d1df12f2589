"""The passing of the store to another process: the new one of an upgrade, or a standby.

For some milliseconds requests wait. This process commits for the last time and closes the store,
and the other process opens it and accepts. If it does not, this process opens the store again and
serves on. Else this process sees through what it still runs: see server/replaced.py.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from typing import TYPE_CHECKING, Protocol

from schedo.handover.messages import Handover, UpgradeFailed
from schedo.handover.steps import Step, log_step
from schedo.server.predecessors import name_of
from schedo.server.replaced import Replaced

if TYPE_CHECKING:
    from schedo.server.server import Server

log = logging.getLogger("schedo")


class Recipient(Protocol):
    """The process that gets the store."""

    @property
    def pid(self) -> int | None:
        """Its number, or None if that is not known beforehand."""

    async def take(self, held_at: float, worker: str) -> None:
        """Let the process open the closed store; return once it serves.

        Raise UpgradeFailed if it does not. held_at: time.monotonic() when requests began to wait.
        worker: the name by which this process ends its attempts.
        """

    async def give_up(self) -> None:
        """Make sure that this process alone has the locks of the store."""


def note_step(server: Server, step: Step, pid: int | None) -> None:
    """Log that this process has done the step, and show it in the status; pid: as above."""
    server.handover = Handover(step=step, pid=pid)
    log_step(step)


async def pass_store(server: Server, recipient: Recipient, waits_s: float = math.inf) -> None:
    """Let the other process have the store, or raise UpgradeFailed and serve on.

    waits_s: how long a request that waits for a job may wait on through this process.
    """
    held_at = time.monotonic()
    worker = _find_name(server)
    try:
        frozen = await server.engine.freezing.freeze(worker, _hold(server, recipient, waits_s))
    except Exception as error:
        await recipient.give_up()
        await server.http.resume()
        server.grpc.resume()
        server.handover = None
        raise UpgradeFailed(f"the last commit of this process failed: {error}") from error
    try:
        server.workers.leave()
        note_step(server, Step.FROZEN, recipient.pid)
        await recipient.take(held_at, worker)
    except BaseException as error:  # whatever it is: else no process would serve
        await _take_back(server, recipient)
        if isinstance(error, UpgradeFailed) or not isinstance(error, Exception):
            raise
        raise UpgradeFailed(f"the store was not passed: {error!r}") from error
    await server.store.close()  # gives the locks away
    server.leave_control()
    server.replaced = Replaced(server, worker, frozen)
    note_step(server, Step.REPLACED, recipient.pid)


def _find_name(server: Server) -> str:
    """Return the name of this process as a worker of the next server.

    An older process in another container, which is a worker of this server, may have the same
    number: then the epoch makes a difference.
    """
    name, sessions = name_of(os.getpid()), server.engine.sessions
    return f"{name}-{sessions.epoch}" if sessions.held_by(name) else name


async def _hold(server: Server, recipient: Recipient, waits_s: float) -> None:
    """Let new requests wait; return when those in progress have ended."""
    end_waits = server.engine.freezing.end_waits
    await asyncio.gather(server.http.hold(end_waits, waits_s), server.grpc.hold(end_waits))
    note_step(server, Step.HELD, recipient.pid)


async def _take_back(server: Server, recipient: Recipient) -> None:
    """Serve again."""
    await recipient.give_up()
    server.workers.come_back()
    await server.engine.freezing.reopen()
    server.reopen_control()
    await server.http.resume()
    server.grpc.resume()
    server.handover = None
