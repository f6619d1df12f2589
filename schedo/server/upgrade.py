"""`schedo upgrade` and SIGUSR2: replaces this process by a new one, which no client notices.

The new process starts with the same command and the code that is on the disk now, and becomes warm
beside this one. Then requests wait for some milliseconds while the store passes: this process
commits for the last time and closes it, the new one opens it and accepts. Whatever goes wrong
before the new process is active ends that process, and this one serves on. handover/steps.py has
the steps. What this process still runs, it sees through: see server/replaced.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING

from schedo.engine.freezing import Frozen as FrozenEngine
from schedo.handover.command import Command
from schedo.handover.listeners import describe_addresses
from schedo.handover.messages import (
    Activated,
    Frozen,
    Hello,
    Listeners,
    Locks,
    Ready,
    UpgradeFailed,
)
from schedo.handover.steps import Step, log_step
from schedo.handover.successor import Successor
from schedo.server.replaced import Replaced

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
    log_step(Step.STARTED)
    try:
        async with asyncio.timeout(timeout_s):
            await _wait_until_ready(server, successor)
        successor.send(_locks(server), server.store.lock_descriptors())
    except TimeoutError:
        await successor.kill()
        raise UpgradeFailed(f"the new process was not ready within {timeout_s:g} s") from None
    except BaseException:
        await successor.kill()
        raise
    log_step(Step.SENT)
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


async def _wait_until_ready(server: Server, successor: Successor) -> None:
    hello = await successor.expect(Hello)
    log.info("upgrade: the new process is schedo %s", hello.version)
    if hello.store != server.store.path:
        raise UpgradeFailed(
            f"the settings of the new process name another store: {hello.store}, and this server"
            f" has {server.store.path}"
        )
    sockets = server.http.sockets
    listeners = Listeners(describe_addresses(sockets))
    successor.send(listeners, [sock.fileno() for sock in sockets])
    await successor.expect(Ready)
    log_step(Step.READY)
    await server.store.shorten_log()


def _locks(server: Server) -> Locks:
    return Locks(server.app.context.tenure.takeovers)


async def _pass_store(server: Server, successor: Successor) -> Activated:
    """Let the new process have the store; if it dies before it is active, take the store again."""
    held_at = time.monotonic()
    worker = f"handover-{os.getpid()}"
    try:
        await server.http.hold(server.engine.freezing.end_waits)
        log_step(Step.HELD)
        frozen = await server.engine.freezing.freeze(worker)
    except Exception as error:
        await successor.kill()
        await server.http.resume()
        raise UpgradeFailed(f"the last commit of this process failed: {error}") from error
    server.workers.leave()
    log_step(Step.FROZEN)
    try:
        successor.send(Frozen(held_at))
        async with asyncio.timeout(ACTIVE_S):
            activated = await successor.expect(Activated)
    except (UpgradeFailed, TimeoutError) as error:
        await _take_back(server, successor)
        raise UpgradeFailed(
            str(error) or f"the new process was not active within {ACTIVE_S:g} s"
        ) from error
    await _pass_on(server, worker, frozen, activated.pid)
    return activated


async def _take_back(server: Server, successor: Successor) -> None:
    """Serve again: first the new process ends, because it has the locks, too."""
    await successor.kill()
    server.workers.come_back()
    await server.engine.freezing.reopen()
    server.reopen_control()
    await server.http.resume()


async def _pass_on(server: Server, worker: str, frozen: FrozenEngine, pid: int) -> None:
    """Give the locks away, and forward what the open connections still send."""
    await server.store.close()
    server.leave_control()
    server.replaced = Replaced(server, worker, frozen, pid)
    server.shutdown.request()
    log_step(Step.REPLACED)
