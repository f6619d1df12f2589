"""A client's end of the control socket: the introduction, and the question for the status."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schedo.errors import SchedoError
from schedo.handover import socket_file
from schedo.handover.link import Link, LinkLost
from schedo.handover.messages import (
    Activated,
    BadMessage,
    ClientRole,
    Failed,
    GetStatus,
    Hello,
    Message,
    Status,
    Upgrade,
    UpgradeFailed,
    Welcome,
)
from schedo.version import __version__

STUCK_AFTER_S = 3.0  # of silence; then an active server counts as stuck


class Stuck(SchedoError):
    """The active server is there and does not answer."""

    code = "server-stuck"

    def __init__(self, pid: int) -> None:
        who = f" (pid {pid})" if pid > 0 else ""
        super().__init__(
            f"the active server{who} is stuck: it has not answered for {STUCK_AFTER_S:g} s."
            " It holds the store, so no standby can take its place: continue it, or kill it"
        )


@asynccontextmanager
async def connected(path: str) -> AsyncIterator[Link]:
    """Yield a connection to the control socket at the path; raise LinkLost, or Stuck."""
    try:
        link = Link(socket_file.connect(path))
    except BlockingIOError:  # connections wait already that the server has not accepted
        raise Stuck(0) from None
    except OSError as error:
        raise LinkLost(f"no server answers at {path}: {error.strerror}") from error
    try:
        yield link
    finally:
        link.close()


async def introduce(link: Link, role: ClientRole, schema: int, worker: str = "") -> Welcome:
    """Introduce this process; return the active server's introduction.

    schema: the newest one of the store that this process can open. worker: as in Hello.
    """
    pid = os.getpid()
    link.send(Hello(role=role, version=__version__, schema=schema, pid=pid, worker=worker))
    return await link.expect(Welcome)


async def read_status(path: str) -> Status:
    """Return the status that the server at the path has; raise Stuck, LinkLost or BadMessage."""
    async with connected(path) as link:
        try:
            async with asyncio.timeout(STUCK_AFTER_S):
                await introduce(link, "observer", 0)
                link.send(GetStatus())
                return await link.expect(Status)
        except TimeoutError:
            raise Stuck(link.peer.pid) from None


async def request_upgrade(path: str, timeout_s: float, passing_s: float) -> Activated:
    """Let the server at the path replace itself; raise UpgradeFailed, Stuck or LinkLost.

    timeout_s: for the new process to be ready; passing_s: for the rest.
    """
    async with connected(path) as link:
        try:
            async with asyncio.timeout(STUCK_AFTER_S):
                await introduce(link, "operator", 0)
            link.send(Upgrade(timeout_s))
            async with asyncio.timeout(timeout_s + passing_s):
                response = await _receive_result(link)
        except TimeoutError:
            raise Stuck(link.peer.pid) from None
    if isinstance(response, Failed):
        raise UpgradeFailed(response.reason)
    if not isinstance(response, Activated):
        raise BadMessage(f"the server sent an unexpected {type(response).__name__}")
    return response


async def _receive_result(link: Link) -> Message:
    try:
        return await link.receive()
    except LinkLost:  # it may have been killed at any step
        raise LinkLost(
            f"the server (pid {link.peer.pid}) has ended during the upgrade; `schedo status` shows"
            " whether the new process, or a standby, serves now"
        ) from None
