"""The new process of an upgrade: it becomes warm beside the old one, and takes its place.

It does what a standby does, but the old process passes it the locks of the store instead of ending.
If the old process dies before that, this one takes the lock, which is free then, and the place of a
dead server. If a standby is faster, this process ends: it would wait without being shown anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING

import schedo
from schedo.errors import SchedoError, Unavailable
from schedo.handover.link import LinkLost
from schedo.handover.listeners import ListenerPair
from schedo.handover.messages import Activated
from schedo.handover.predecessor import Predecessor
from schedo.handover.steps import Step, log_step
from schedo.server.takeover import Takeover
from schedo.server.warm_up import warm_up
from schedo.store.sqlite.schema import newest_schema

if TYPE_CHECKING:
    from schedo.server.server import Server

STANDBY_FIRST_S = 0.5
ENDS_WITHIN_S = 5.0  # a process that was killed, and whose locks are free then


async def succeed(server: Server, predecessor: Predecessor) -> Takeover:
    """Return once this process has the store of the old one; raise what prevents that.

    From here on it says itself what prevents that, so it writes where its children are to write.
    """
    predecessor.speak()
    listeners = ListenerPair()
    with contextlib.suppress(LinkLost):  # it has died: see _become_warm
        listeners = await predecessor.introduce(newest_schema(), server.store.path or "")
    receiving = asyncio.create_task(_receive_locks(server, predecessor))
    try:
        server.passed_listeners.take(listeners, server.config)
        return await _become_warm(server, predecessor, receiving, Takeover(listeners, 0, 0.0))
    except BaseException as error:
        listeners.close()
        _report_bug(predecessor, error)
        raise
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)


def _report_bug(predecessor: Predecessor, error: BaseException) -> None:
    """Report an error that ends this process with a traceback; the others are reported anyway."""
    if isinstance(error, Exception) and not isinstance(error, SchedoError | OSError):
        predecessor.refuse(error)


async def _become_warm(
    server: Server, predecessor: Predecessor, receiving: asyncio.Task[int], takeover: Takeover
) -> Takeover:
    """Report when this process is warm, and return when it has the store."""
    warming = asyncio.create_task(warm_up(server))
    try:
        # The link ends if the old process dies: then a cold take-over is better than a late one.
        await asyncio.wait((warming, receiving), return_when=asyncio.FIRST_COMPLETED)
        if warming.done():
            warming.result()
            log_step(Step.READY)
            predecessor.report_ready()
        takeover.number = await receiving + 1
        frozen = await predecessor.wait_frozen()
        takeover.held_at = time.monotonic() if frozen is None else frozen.held_at
    except LinkLost:
        takeover.held_at = await _hold_left(server, has_listeners=bool(takeover.listeners.http))
    finally:
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)
    takeover.note("freeze")
    return takeover


async def _hold_left(server: Server, *, has_listeners: bool) -> float:
    """Lock the store that the dead process has left; raise Unavailable if a standby has it.

    Return time.monotonic() of the lock. A standby, which has the listeners, goes first if this
    process has none: it would find the port in use.
    """
    if not has_listeners:
        await asyncio.sleep(STANDBY_FIRST_S)
    try:
        async with asyncio.timeout(ENDS_WITHIN_S):
            held = await server.file_store.hold()
    except TimeoutError:
        raise Unavailable(
            "the old process of the upgrade has died, and another server has the store"
        ) from None
    assert held is not None, "the old process has a store in a file"
    return held.held_at


async def _receive_locks(server: Server, predecessor: Predecessor) -> int:
    """Own the locks of the store; return how many take-overs the store has had."""
    message, lock, database = await predecessor.receive_locks()
    server.file_store.inherit(lock, database)
    return message.takeovers


def report_active(server: Server, predecessor: Predecessor) -> None:
    """Report to the old process that this one accepts requests."""
    takeover = server.takeover
    assert takeover is not None, "a successor takes over"
    log_step(Step.ACTIVE)
    predecessor.report_active(
        Activated(
            pid=os.getpid(),
            version=schedo.__version__,
            epoch=server.engine.health().epoch,
            took_ms=takeover.took_ms,
            steps_ms=takeover.steps_ms,
        )
    )
