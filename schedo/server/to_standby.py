"""The stop of a server that has a standby: first the standby gets the store, then this one drains.

So jobs start on time while the running ones have the grace time to end. This process releases the
locks after its last commit, and the kernel gives them to a standby that waits for them. It need not
be the one that was warm, so this process asks at the control socket who has become active.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from schedo.errors import SchedoError
from schedo.handover.client import connected, introduce
from schedo.handover.messages import UpgradeFailed
from schedo.handover.socket_file import SUFFIX
from schedo.server.passing import pass_store

if TYPE_CHECKING:
    from schedo.server.server import Server

log = logging.getLogger("schedo")

ACTIVE_S = 5.0  # for a standby, from the free store to the first request that it accepts
LOCK_S = 0.25  # for a standby to lock the free store; then this process takes it again
WAITS_S = 5.0  # for a wait for a job that goes on through a process that must end soon
_WELCOME_S = 1.0
_RETRY_S = 0.002


async def pass_to_standby(server: Server) -> None:
    """Let a standby have the store; if none takes it, this process goes on with its stop."""
    log.info("stopping: a standby gets the store before this process drains")
    try:
        await server.store.shorten_log()
        await pass_store(server, _Standbys(server), min(server.grace_s, WAITS_S))
    except SchedoError as error:
        log.error("no standby has taken the store (%s): this process drains first", error)


class _Standbys:
    """The recipient of the store: one of the processes that wait for its locks."""

    pid = None  # whichever gets them

    def __init__(self, server: Server) -> None:
        self._server = server

    async def take(self, held_at: float, worker: str) -> None:
        """Return once a standby serves.

        Return without that, too, if another process has the locks: this one must not serve again.
        """
        store = self._server.file_store
        self._server.leave_control()
        await store.close()
        now = asyncio.get_running_loop().time
        released_at = now()
        while now() < released_at + ACTIVE_S:
            if await self._is_served():
                return
            if now() > released_at + LOCK_S and self._hold_again():
                raise UpgradeFailed("the store was still free")
            await asyncio.sleep(_RETRY_S)

    def _hold_again(self) -> bool:
        """Whether this process has the locks again; no if that cannot be found out now."""
        try:
            return self._server.file_store.hold_again()
        except (OSError, SchedoError):
            return False

    async def _is_served(self) -> bool:
        try:
            async with (
                asyncio.timeout(_WELCOME_S),
                connected(f"{self._server.store.path}{SUFFIX}") as link,
            ):
                await introduce(link, "observer", 0)
        except (OSError, SchedoError):  # not yet
            return False
        return True

    async def give_up(self) -> None:
        """Do nothing: this process has the locks again, so no other one can serve."""
