"""The life of a server's process: its phases in order, its signals, and its exit code.

A first SIGTERM or SIGINT starts the drain, a second one ends the grace time, and a third one ends
the process at once. SIGHUP reloads the settings (reload.py). What a phase does is in
schedo/server/server.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from schedo.config import Config
from schedo.config_checks import check_config
from schedo.errors import Exit, Invalid, SchedoError, exit_of_server
from schedo.handover.command import VARIABLE
from schedo.logs import start_logging
from schedo.loops import new_loop
from schedo.server.process import limit_freed_memory, prepare_process, spare_collector
from schedo.server.server import Server
from schedo.server.start import PLAIN_START, Start
from schedo.startup_text import print_address
from schedo.systemd import Inherited, Notifier, take_sockets
from schedo.worker.shutdown import handle_hangup, handle_signals, handle_upgrades

if TYPE_CHECKING:
    from schedo.handover.predecessor import Predecessor
    from schedo.server.shutdown import Shutdown

log = logging.getLogger("schedo")

_SETTLED_S = 1.0  # after a take-over, whose first second belongs to the clients


def run_server(
    config: Config, start: Start = PLAIN_START, *, read: Callable[[], Config] | None = None
) -> int:
    """Serve until a signal or a broken store ends it; return the process's exit code.

    read: reads the settings again; by default they stay as they are.
    """
    limit_freed_memory()
    predecessor = _find_predecessor()
    listener = start_logging(config.log_format, config.log_level)
    prepare_process()
    try:
        inherited = take_sockets(os.environ)
        config = inherited.settle(config)
        check_config(config)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(
                _serve(config, start, read or (lambda: config), inherited, predecessor)
            )
    except (SchedoError, OSError) as error:
        _print_error(f"schedo: {error}")
        if predecessor is not None:
            predecessor.refuse(error)
        return Exit.MISUSED if isinstance(error, Invalid) else exit_of_server(error)
    finally:
        listener.stop()


def _find_predecessor() -> Predecessor | None:
    """Return the old process, if this one was started by an upgrade."""
    if VARIABLE not in os.environ:
        return None
    from schedo.handover.predecessor import take_predecessor

    return take_predecessor(os.environ)


async def _serve(
    config: Config,
    start: Start,
    read: Callable[[], Config],
    inherited: Inherited,
    predecessor: Predecessor | None,
) -> int:
    notifier = Notifier(os.environ)
    if predecessor is None:  # else it is fed for the old process, which may be stuck
        notifier.feed_watchdog()
    server = Server(config, start, lambda: inherited.settle(read()), predecessor)
    shutdown = server.shutdown
    handle_signals(shutdown.request, server.workers.stop_now)
    if predecessor is not None or config.standby:
        await _wait_for_store(server, notifier, predecessor)
        if shutdown.is_requested:
            return Exit.DONE
    if not await shutdown.interrupts(_open(server, inherited)):
        await server.leave()
        return _find_exit(shutdown)
    try:
        await shutdown.interrupts(_start(server, inherited, notifier))
        if server.takeover is None or not server.takeover.is_warm:  # else it is done
            spare_collector()
        async with _beating(server):
            await shutdown.wait()
        await server.upgrades.stop()
        if server.replaced is not None:
            await _drain_replaced(server, notifier)
        else:
            notifier.send("STOPPING=1")
            await server.pass_to_standby()
            await (
                server.drain() if server.replaced is None else server.replaced.stop(server.grace_s)
            )
    finally:
        await server.stop()
    log.info("stopped")
    return _find_exit(shutdown)


async def _drain_replaced(server: Server, notifier: Notifier) -> None:
    """See through what this process still runs; the new one of an upgrade is the main one now."""
    assert server.replaced is not None, "the caller knows it"
    # From the old process, because systemd must have it before that one ends.
    notifier.send(f"MAINPID={server.upgrades.main_pid}")
    notifier.leave_watchdog()  # else it would hide that the new one is stuck
    handle_signals(server.begin_grace, server.workers.stop_now)
    await server.replaced.drain()


def _find_exit(shutdown: Shutdown) -> Exit:
    return exit_of_server(shutdown.failure) if shutdown.failure else Exit.DONE


async def _wait_for_store(
    server: Server, notifier: Notifier, predecessor: Predecessor | None
) -> None:
    """Wait until the server holds its store; when it should stop before that, close its parts."""
    try:
        if predecessor is not None:
            from schedo.server.successor import succeed

            server.takeover = await succeed(server, predecessor)
        else:
            from schedo.server.standby import wait_for_store

            handle_hangup(server.reload.run)
            ready = partial(notifier.send, "READY=1", "STATUS=It waits as a standby")
            server.takeover = await wait_for_store(server, ready)
    except BaseException:
        await server.leave()
        raise
    if server.shutdown.is_requested:
        await server.leave()


async def _open(server: Server, inherited: Inherited) -> None:
    """Open the store; bind before that if no other server can hold it.

    A start that fails because of its port then makes no empty store. For a file that exists, the
    lock comes first: a supervisor starts this server again if another one holds the store, but not
    if the port is in use.
    """
    if not _may_be_held(server):
        await server.bind(inherited)
    await server.open()


def _may_be_held(server: Server) -> bool:
    path = server.store.path
    return path is not None and os.path.exists(path)


async def _start(server: Server, inherited: Inherited, notifier: Notifier) -> None:
    is_new_store = server.engine.health().epoch == 1  # the first server that has ever opened it
    await server.bind(inherited)
    await server.attach()
    port = await server.listen(notifier)
    handle_hangup(partial(_reload, server, notifier))
    if server.takeover is not None and server.takeover.is_warm:
        # The settings may have changed while the standby waited.
        asyncio.get_running_loop().call_later(_SETTLED_S, server.reload.run)
    handle_upgrades(server.upgrades.begin)
    if not server.is_successor:  # else the old process has printed it
        print_address(server.config, port, server.grpc.address, is_new_store=is_new_store)
    else:
        notifier.feed_watchdog()
    notifier.send("READY=1", "STATUS=It is active", f"MAINPID={os.getpid()}")


def _reload(server: Server, notifier: Notifier) -> None:
    with notifier.reloading():
        server.reload.run()


def _beating(server: Server) -> contextlib.AbstractAsyncContextManager[None]:
    """Call the URL of --heartbeat-url, if there is one, while the server is ready."""
    url, interval_us = server.config.heartbeat_url, server.config.heartbeat_interval_us
    if url is None:
        return contextlib.nullcontext()
    from schedo.tasks.http.heartbeat import beating

    return beating(url, interval_us, lambda: server.engine.health().ready)


def _print_error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
