"""A standby: it keeps the listener of the active server, watches it, and waits.

The lock of the store alone says which server is active. The connection to the active server only
brings what a take-over needs: the listening sockets, and how many take-overs there were. When the
connection ends, the standby connects again, to the same server or to the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from schedo.errors import Invalid, SchedoError
from schedo.handover.client import connected, introduce
from schedo.handover.fencing import CannotFence, Fence
from schedo.handover.link import Link, LinkLost, LinkRefused
from schedo.handover.listeners import ListenerPair
from schedo.handover.messages import (
    BadMessage,
    GetListeners,
    Listeners,
    StandbyStatus,
    Welcome,
)
from schedo.handover.socket_file import SUFFIX
from schedo.handover.watch import PongWatch

log = logging.getLogger("schedo.handover")

RETRY_S = 0.2
ENDS_WITHIN_S = 1.0  # a process that was killed


class Standby:
    """One waiting process; after the wait, a take-over uses its `listeners`."""

    def __init__(
        self,
        store_path: str,
        schema: int,
        status: StandbyStatus,
        find_notes: Callable[[Sequence[str]], Awaitable[list[str]]],
        check: Callable[[ListenerPair], None],
    ) -> None:
        """schema: the newest schema of the store that this process can open.

        find_notes: returns, as sentences, what is wrong with the addresses of the listeners. check:
        raises Invalid if this process must not listen on them.
        """
        self._path, self._schema = store_path, schema
        self._status, self._find_notes, self._check = status, find_notes, check
        self._link: Link | None = None
        self._fence: Fence | None = None
        self._problem = ""  # why there is no connection
        self.listeners = ListenerPair()
        self.takeovers = 0  # of the store so far

    def note_warm(self, warmed_ms: float) -> None:
        """Report to each active server from now on that this process is warm."""
        self._report(replace(self._status, is_warm=True, warmed_ms=warmed_ms))

    async def run(self) -> None:
        """Stay connected to the active server, until the task is cancelled.

        Raise LinkRefused if that server refuses this standby, because its version is too old, and
        Invalid if this process must not have its listeners.
        """
        while True:
            problem: Exception | None = None
            try:
                async with connected(self._path + SUFFIX) as link:
                    await self._attend(link)
            except (LinkRefused, Invalid):
                raise
            except (LinkLost, SchedoError) as error:
                problem = error
            # The connection ends a moment before the lock is free: the take-over comes before this.
            await asyncio.sleep(RETRY_S)
            if problem is not None:
                self._note_problem(problem)

    async def _attend(self, link: Link) -> None:
        """Register at the active server, and watch it until the connection ends."""
        if link.peer.uid != os.geteuid():
            raise BadMessage(f"the active server runs as another user ({link.peer.uid})")
        self._fence = self._make_fence(link)
        watch = PongWatch(link, self._status.kill_stuck_s if self._fence else None, self._kill)
        noting: asyncio.Task[None] | None = None
        try:
            welcome = await introduce(link, "standby", self._schema)
            watch.heard()
            addresses = await self._register(link, welcome)
            noting = asyncio.create_task(self._note(addresses))  # it may wait for a name server
            await watch.run()
        finally:
            if noting is not None:
                noting.cancel()
            watch.close()
            self._link = None
            if self._fence is not None:
                self._fence.close()
                self._fence = None

    async def _register(self, link: Link, welcome: Welcome) -> Sequence[str]:
        """Take the listeners, and report the status; return the addresses of the listeners."""
        self.takeovers = welcome.takeovers
        link.send(GetListeners(takes_grpc=True))
        message, descriptors = await link.expect_descriptors(Listeners)
        old, self.listeners = self.listeners, ListenerPair.take(message, descriptors)
        old.close()
        self._check(self.listeners)
        self._link, self._problem = link, ""
        log.info(
            "this is a standby of the server that is active (pid %d, schedo %s) on %s",
            *(welcome.pid, welcome.version, ", ".join(message.addresses)),
        )
        self._report(replace(self._status, notes=[]))
        return message.addresses

    async def _note(self, addresses: Sequence[str]) -> None:
        """Log and report what is wrong with the addresses of the listeners."""
        notes = await self._find_notes(addresses)
        for note in notes:
            log.warning("%s", note)
        self._report(replace(self._status, notes=notes))

    def _report(self, status: StandbyStatus) -> None:
        self._status = status
        if self._link is not None:
            with contextlib.suppress(LinkLost):
                self._link.send(status)

    def _note_problem(self, error: Exception) -> None:
        if str(error) != self._problem:  # the connection is tried again and again
            self._problem = str(error)
            level = logging.INFO if isinstance(error, LinkLost) else logging.ERROR
            log.log(level, "standby: %s", error)

    # A stuck server.

    def _make_fence(self, link: Link) -> Fence | None:
        if self._status.kill_stuck_s is None:
            return None
        try:
            return Fence(link, self._path + ".lock")
        except CannotFence as error:
            log.error("--kill-stuck has no effect: %s", error)
            return None

    def _kill(self) -> None:
        fence = self._fence
        assert fence is not None, "the watch kills only with a fence"
        try:
            fence.kill()
        except CannotFence as error:
            log.critical("the active server is stuck and cannot be killed: %s", error)
            return
        log.critical("killed the active server (pid %d), which was stuck", fence.pid)
        asyncio.get_running_loop().call_later(ENDS_WITHIN_S, self._check_end, fence)

    def _check_end(self, fence: Fence) -> None:
        if fence is self._fence and not fence.has_ended:
            log.critical(
                "the active server (pid %d) does not end although it was killed: it waits in the"
                " kernel, perhaps for a disk; until it has ended, no server can have the store",
                fence.pid,
            )
