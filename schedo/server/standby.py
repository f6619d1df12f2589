"""`schedo serve --standby`: waits, warm, until the store is free.

Warm means that everything is done that needs no store: the modules are imported, the engine, the
application and the workers are built, the child processes run, an engine has run once on a scratch
file, and the file of the store is open for reading. Nothing of this writes to the store, and a free
store ends it at once: a cold take-over is better than a late one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import schedo
from schedo.config import Config
from schedo.handover.listeners import describe_address
from schedo.handover.messages import StandbyStatus
from schedo.handover.standby import Standby
from schedo.protocol.times import render_instant
from schedo.server.server import Server
from schedo.server.takeover import Takeover
from schedo.server.warm_up import warm_up
from schedo.setting_values import unix_path
from schedo.store.sqlite.lock_wait import HeldLocks
from schedo.store.sqlite.schema import newest_schema

log = logging.getLogger("schedo")


async def wait_for_store(server: Server, note_warm: Callable[[], None]) -> Takeover | None:
    """Return once the server holds its store: with a take-over if another server had it.

    note_warm: called once everything is done that needs no store.

    Return None also if the shutdown was requested. Raise what keeps this server from being a
    standby, such as an application that cannot be imported.
    """
    standby = _make_standby(server)
    holding = asyncio.create_task(server.file_store.hold(), name="schedo lock")
    leaving = asyncio.create_task(server.shutdown.wait())
    others = [
        asyncio.create_task(standby.run(), name="schedo standby"),
        asyncio.create_task(_report_warm(server, standby, note_warm), name="schedo warm-up"),
    ]
    try:
        await _wait_for_one(holding, leaving, others)
        if not holding.done():
            return None
        held = holding.result()
        assert held is not None, "a store in memory has no standby"
        return _make_takeover(held, standby, is_warm=others[-1].done())
    finally:
        tasks = [holding, leaving, *others]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_for_one(
    holding: asyncio.Task[Any], leaving: asyncio.Task[Any], others: Sequence[asyncio.Task[Any]]
) -> None:
    """Wait until one of the first two is done; raise what the others raise before."""
    pending = {holding, leaving, *others}
    while not holding.done() and not leaving.done():
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {holding, leaving}:
            task.result()


async def _report_warm(server: Server, standby: Standby, note_warm: Callable[[], None]) -> None:
    warmed_ms = await warm_up(server)
    standby.note_warm(warmed_ms)
    note_warm()
    log.info("the standby is warm after %.0f ms, and waits for the store", warmed_ms)


def _make_takeover(held: HeldLocks, standby: Standby, *, is_warm: bool) -> Takeover | None:
    if not held.has_waited:
        return None
    takeover = Takeover(standby.listeners, standby.takeovers + 1, held.held_at, is_warm)
    takeover.note("wake")
    return takeover


def _make_standby(server: Server) -> Standby:
    path, config = server.store.path, server.config
    assert path is not None, "a store in memory has no standby"
    status = StandbyStatus(
        pid=os.getpid(),
        version=schedo.__version__,
        since=render_instant(server.engine.clock.now()),
        is_warm=False,
        kill_stuck_s=config.kill_stuck_us / 1_000_000 or None,
    )
    return Standby(
        path,
        newest_schema(),
        status,
        lambda found: _compare(config, found),
        lambda listeners: server.passed_listeners.take(listeners, server.config),
    )


async def _compare(config: Config, found: Sequence[str]) -> list[str]:
    """Return, as sentences, how the addresses of the active server differ from the settings."""
    if unix_path(config.host) is not None:
        return _describe_difference({config.host}, found)
    if config.port == 0:
        return []
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        return [f"the host {config.host!r} of the settings has no address now: {error.strerror}"]
    wanted = {describe_address(family, address) for family, _, _, _, address in infos}
    return _describe_difference(wanted, found)


def _describe_difference(wanted: set[str], found: Sequence[str]) -> list[str]:
    if wanted == set(found):
        return []
    return [
        f"the active server listens on {', '.join(found)}, and the settings of this standby say"
        f" {', '.join(sorted(wanted))}; after a take-over it listens where the active server does"
    ]
