"""`schedo upgrade` and SIGUSR2: replaces this process by a new one, which no client notices.

The new process starts with the same command and the code that is on the disk now, and becomes warm
beside this one. Then the store passes (server/passing.py). Whatever goes wrong before the new
process is active ends that process, and this one serves on. handover/steps.py has the steps.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from schedo.errors import SchedoError
from schedo.handover.command import Command
from schedo.handover.messages import (
    Activated,
    Frozen,
    Hello,
    Locks,
    Ready,
    UpgradeFailed,
)
from schedo.handover.steps import Step
from schedo.handover.successor import Successor
from schedo.server.passing import note_step, pass_store

if TYPE_CHECKING:
    from schedo.server.server import Server

log = logging.getLogger("schedo")

ACTIVE_S = 5.0  # for the new process, from the frozen store to the first request that it accepts


async def upgrade(server: Server, command: Command, timeout_s: float) -> Activated:
    """Replace this process, or raise UpgradeFailed and serve on.

    timeout_s: within which the new process is ready.
    """
    began_at = time.monotonic()
    try:
        successor = Successor.start(command)
    except OSError as error:
        raise UpgradeFailed(f"the new process cannot be started: {error}") from error
    log.info("upgrade: process %d starts beside this one", successor.pid)
    note_step(server, Step.STARTED, successor.pid)
    try:
        async with asyncio.timeout(timeout_s):
            await _wait_until_ready(server, successor)
        successor.send(_locks(server), server.store.lock_descriptors())
    except TimeoutError:
        await _give_up(server, successor)
        raise UpgradeFailed(f"the new process was not ready within {timeout_s:g} s") from None
    except BaseException as error:
        await _give_up(server, successor)
        if isinstance(error, SchedoError) and not isinstance(error, UpgradeFailed):
            raise UpgradeFailed(f"the store is not ready for a new process: {error}") from error
        raise
    note_step(server, Step.SENT, successor.pid)
    passing = asyncio.ensure_future(_pass_store(server, successor))
    try:
        activated = await asyncio.shield(passing)
    except asyncio.CancelledError:  # the server stops: which of the two processes it is, must show
        await asyncio.wait((passing,))
        raise
    log.warning(
        "replaced by process %d (schedo %s) after %.1f s; no server accepted requests for %.1f ms",
        *(activated.pid, activated.version, time.monotonic() - began_at, activated.took_ms),
    )
    return activated


async def _give_up(server: Server, successor: Successor) -> None:
    server.handover = None
    await successor.kill()


async def _wait_until_ready(server: Server, successor: Successor) -> None:
    hello = await successor.expect(Hello)
    log.info("upgrade: the new process is schedo %s", hello.version)
    if hello.store != server.store.path:
        raise UpgradeFailed(
            f"the settings of the new process name another store: {hello.store}, and this server"
            f" has {server.store.path}"
        )
    server.find_listeners().pass_by(successor.send, takes_grpc=hello.takes_grpc)
    await successor.expect(Ready)
    note_step(server, Step.READY, successor.pid)
    await server.store.shorten_log()


def _locks(server: Server) -> Locks:
    return Locks(server.app.context.tenure.takeovers)


class _NewProcess:
    """The recipient of the store in an upgrade."""

    def __init__(self, server: Server, successor: Successor) -> None:
        self._server, self._successor = server, successor
        self.activated: Activated | None = None  # its report
        self.pid = successor.pid

    async def take(self, held_at: float, worker: str) -> None:
        try:
            older = self._server.predecessors.known
            self._successor.send(Frozen(held_at, worker, older))
            self.activated = await self._successor.expect_last(Activated, ACTIVE_S)
        except TimeoutError:
            raise UpgradeFailed(f"the new process was not active within {ACTIVE_S:g} s") from None

    async def give_up(self) -> None:
        await self._successor.kill()  # it has the locks, too


async def _pass_store(server: Server, successor: Successor) -> Activated:
    recipient = _NewProcess(server, successor)
    await pass_store(server, recipient)
    assert recipient.activated is not None, "the store was passed"
    server.upgrades.main_pid = recipient.activated.pid
    server.shutdown.request()
    return recipient.activated
