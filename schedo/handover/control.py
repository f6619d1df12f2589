"""The active server's end of the control socket: it answers standbys and `schedo status`.

One task serves each connection. A client of another user, or one that sends something else than
messages, is refused; that costs the others nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from typing import Any, Protocol

from schedo.handover.link import Link, LinkLost
from schedo.handover.listeners import ListenerPair, take_stream
from schedo.handover.messages import (
    PROTOCOL,
    Activated,
    BadMessage,
    Failed,
    GetListeners,
    GetStatus,
    Hello,
    Message,
    Ping,
    Pong,
    Refused,
    ServeHttp,
    StandbyStatus,
    Status,
    Upgrade,
    UpgradeFailed,
    Welcome,
)

log = logging.getLogger("schedo.handover")

LINKS_MAX = 64
HELLO_S = 5.0  # within which a client introduces itself
SILENCE_S = 60.0  # after which a connection is closed; a standby pings each second


class Active(Protocol):
    """What the control socket shows of its server."""

    def welcome(self) -> Welcome:
        """Return the server's introduction."""

    def status(self, standbys: list[StandbyStatus]) -> Status:
        """Return the server's status, with these standbys."""

    def listeners(self) -> ListenerPair:
        """Return the sockets on which it listens."""

    def note_standbys(self, count: int) -> None:
        """Note how many standbys are connected now."""

    def note_predecessor(self, seen_pid: int, hello: Hello) -> None:
        """Note that an old process is connected.

        seen_pid: its number in this container, or 0; its Hello has that in its own container.
        """

    def serve_http(self, sock: socket.socket, *, is_trusted: bool) -> None:
        """Serve a connection of the old process; is_trusted: its requests need no token."""

    async def upgrade(self, timeout_s: float) -> Activated:
        """Replace this process by a new one; raise UpgradeFailed, and serve on then."""


class Control:
    """The connections of one active server."""

    def __init__(self, active: Active) -> None:
        self._active = active
        self._tasks: set[asyncio.Task[None]] = set()
        self._standbys: dict[Link, StandbyStatus | None] = {}  # None: it has not reported yet
        self._predecessors: set[Link] = set()  # the old processes of earlier upgrades
        self._handlers: dict[type[Any], Callable[[Link, Any], None]] = {
            Ping: self._pong,
            GetListeners: self._send_listeners,
            GetStatus: self._send_status,
            StandbyStatus: self._note_status,
        }

    def serve(self, sock: socket.socket) -> None:
        """Serve a new connection; one too many is closed."""
        if len(self._tasks) >= LINKS_MAX:
            sock.close()
            return
        task = asyncio.create_task(self._serve(Link(sock)), name="schedo control")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, link: Link) -> None:
        try:
            _check_user(link)
            async with asyncio.timeout(HELLO_S):
                hello = await link.expect(Hello)
                self._welcome(link, hello)
            if hello.role == "operator":
                await self._serve_operator(link)
                return
            if hello.role == "predecessor":
                self._active.note_predecessor(link.peer.pid, hello)
                await self._serve_predecessor(link)
                return
            while True:
                async with asyncio.timeout(SILENCE_S):
                    message = await link.receive()
                self._handle(link, message)
        except (LinkLost, TimeoutError):
            pass
        except BadMessage as error:
            log.warning("a client of the control socket (%s) is refused: %s", link.peer, error)
            with contextlib.suppress(LinkLost):
                link.send(Refused(str(error)))
        finally:
            link.close()
            self._predecessors.discard(link)
            if link in self._standbys:
                del self._standbys[link]
                self._active.note_standbys(len(self._standbys))

    def _welcome(self, link: Link, hello: Hello) -> None:
        welcome = self._active.welcome()
        if hello.protocol != PROTOCOL:
            raise BadMessage(
                f"schedo {hello.version} speaks version {hello.protocol} of the control socket, and"
                f" schedo {welcome.version}, which is active, version {PROTOCOL}"
            )
        if hello.role == "standby":
            self._add_standby(link, hello, welcome)
        if hello.role == "predecessor" and link.peer.uid != os.geteuid():
            raise BadMessage("the old process of an upgrade runs as the same user as the new one")
        link.send(welcome)

    def _add_standby(self, link: Link, hello: Hello, welcome: Welcome) -> None:
        if link.peer.uid != os.geteuid():
            raise BadMessage("a standby runs as the same user as the active server")
        if hello.schema < welcome.schema:
            raise BadMessage(
                f"schedo {hello.version} cannot open this store: it knows schema {hello.schema},"
                f" and the store needs {welcome.schema}"
            )
        self._standbys[link] = None
        self._active.note_standbys(len(self._standbys))

    async def _serve_operator(self, link: Link) -> None:
        """Carry out an upgrade; this goes on if the operator leaves."""
        async with asyncio.timeout(HELLO_S):
            request = await link.expect(Upgrade)
        try:
            link.send(await self._active.upgrade(request.timeout_s))
        except UpgradeFailed as error:
            link.send(Failed(str(error)))

    async def _serve_predecessor(self, link: Link) -> None:
        self._predecessors.add(link)
        while True:
            request, descriptors = await link.expect_descriptors(ServeHttp)
            sock = take_stream(descriptors)
            self._active.serve_http(sock, is_trusted=request.is_trusted)

    @property
    def has_warm_standby(self) -> bool:
        """Whether a standby is connected that can take the store at once."""
        return any(status is not None and status.is_warm for status in self._standbys.values())

    def dismiss(self) -> None:
        """Let the standbys and old processes go, which then connect to the next active server."""
        for link in (*self._standbys, *self._predecessors):
            link.close()

    def _handle(self, link: Link, message: Message) -> None:
        handler = self._handlers.get(type(message))
        if handler is None:
            raise BadMessage(f"a message {type(message).__name__} does not belong here")
        handler(link, message)

    def _pong(self, link: Link, ping: Ping) -> None:
        link.send(Pong(ping.number))

    def _send_listeners(self, link: Link, message: GetListeners) -> None:
        if link not in self._standbys:
            raise BadMessage("only a standby gets the listeners")
        self._active.listeners().pass_by(link.send, takes_grpc=message.takes_grpc)

    def _send_status(self, link: Link, _: GetStatus) -> None:
        known = [status for status in self._standbys.values() if status is not None]
        link.send(self._active.status(known))

    def _note_status(self, link: Link, status: StandbyStatus) -> None:
        if link not in self._standbys:
            raise BadMessage("only a standby reports its status")
        self._standbys[link] = status


def _check_user(link: Link) -> None:
    """Refuse a client of another user, but for root, which could read the store anyway."""
    if link.peer.uid not in (os.geteuid(), 0):
        raise BadMessage(f"user {link.peer.uid} may not use the control socket")
