"""The upgrades of one server: one at a time, and only where one can succeed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from importlib import import_module
from typing import TYPE_CHECKING

from schedo.errors import SchedoError
from schedo.store import without_password

if TYPE_CHECKING:
    from schedo.handover.command import Command
    from schedo.handover.messages import Activated
    from schedo.server.server import Server
    from schedo.server.start import Start

log = logging.getLogger("schedo")

TIMEOUT_S = 10.0  # of an upgrade by SIGUSR2


def find_lasting_obstacle(start: Start) -> str | None:
    """Return why a server that was started like this can never be replaced, or None."""
    if start.has_test_clock:
        return "a server with --test-clock has its jobs in memory only"
    if start.is_reloading:
        return "a server with --reload imports changed code itself"
    return None


class Upgrades:
    """Starts upgrades, for `schedo upgrade` and SIGUSR2."""

    def __init__(self, server: Server, command: Command | None, obstacle: str | None) -> None:
        """command: how the process was started; obstacle: why it cannot be replaced, or None."""
        self._server = server
        self._command = command
        self._obstacle = obstacle
        self._running: asyncio.Task[Activated] | None = None
        self.main_pid: int | None = None  # of the new process, once that serves

    def begin(self) -> None:
        """Begin an upgrade; its end is logged."""
        task = asyncio.create_task(self._run_logged(), name="schedo upgrade by signal")
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _run_logged(self) -> None:
        try:
            await self.run(TIMEOUT_S)
        except SchedoError:
            pass  # it is logged
        except Exception:
            log.exception("the upgrade has failed for an unexpected reason")

    async def run(self, timeout_s: float) -> Activated:
        """Replace this process by a new one; raise UpgradeFailed, and serve on then.

        The reason is logged as well: who has asked for the upgrade may not be there any more.
        """
        try:
            return await self._run(timeout_s)
        except SchedoError as error:
            log.error("upgrade: %s; this process was not replaced", error)
            raise

    async def _run(self, timeout_s: float) -> Activated:
        # In a thread: these modules take some 20 ms, in which no timer would fire.
        with contextlib.suppress(RuntimeError):  # the system has no thread for it
            await asyncio.to_thread(import_module, "schedo.server.upgrade")
        from schedo.handover.messages import UpgradeFailed
        from schedo.server.upgrade import upgrade

        command = self._command
        obstacle = self._find_obstacle()
        if obstacle is not None or command is None:
            raise UpgradeFailed(obstacle or "this process does not know how it was started")
        self._running = asyncio.create_task(upgrade(self._server, command, timeout_s))
        try:
            return await asyncio.shield(self._running)
        except asyncio.CancelledError:
            if self._running.cancelled():
                raise UpgradeFailed("the server stops") from None
            raise

    def _find_obstacle(self) -> str | None:
        """Return why this process cannot be replaced now, or None."""
        if self._obstacle is not None:
            return self._obstacle
        if self._running is not None and not self._running.done():
            return "another upgrade is under way"
        if self._server.shutdown.is_requested:
            return "the server is stopping"
        if self._server.store.path is None:
            return (
                "only a store in a file passes to another process; this one is"
                f" {without_password(self._server.config.store)}"
            )
        if os.getpid() == 1:
            return (
                "this process is the first one of its container, which ends with it: replace the"
                " container, or run a standby in another process"
            )
        return None

    async def stop(self) -> None:
        """Give up an upgrade that has not passed the store yet; wait for one that is passing it.

        If the store has passed although this process was asked to stop, the new one stops as well.
        """
        running, server = self._running, self._server
        if running is None or running.done():
            return
        was_replaced = server.replaced is not None
        if not was_replaced:
            running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if server.replaced is not None and not was_replaced:
            self._stop_new()

    def _stop_new(self) -> None:
        """Let the new process stop by the signal that has reached this one too late."""
        pid = self.main_pid
        assert pid is not None, "it serves"
        log.warning("the signal to stop came while the store passed: process %d gets it, too", pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        self._server.begin_grace()
