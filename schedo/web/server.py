"""The HTTP server: listens, keeps the connections' deadlines, and stops without dropping a request.

Connections that were accepted but not yet read are answered before a stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from email.utils import formatdate

from schedo.core.limits import WAITING_BYTES_MAX
from schedo.web.app import WebApp
from schedo.web.connections import Connections
from schedo.web.protocol import Connection

STOP_GRACE_S = 10.0
CONNECTIONS_MAX = 4_096  # a worker that waits for work keeps one
_BACKLOG = 1_024
_WATCH_S = 1.0
_ACCEPT_TURNS_MAX = 1_000
_SETTLE_TURNS = 10  # asyncio takes 4 from accept() to connection_made()


class HttpServer:
    """Serves one application on one address."""

    def __init__(
        self, connections_max: int = CONNECTIONS_MAX, waiting_bytes_max: int = WAITING_BYTES_MAX
    ) -> None:
        self._state = Connections(connections_max, waiting_bytes_max)
        self._app: WebApp | None = None
        self._listener: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def connections(self) -> list[Connection]:
        """The open connections."""
        return list(self._state.all)

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of all connections wait for their clients."""
        return self._state.waiting_bytes

    def shed_slow(self) -> None:
        """Close connections that hold memory for nothing, if it is short."""
        self._state.shed()

    async def start(self, app: WebApp, host: str, port: int) -> int:
        """Listen, and return the port; raise OSError if the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._app = self._state.app = app
        self._state.loop = loop
        app.site.unsent_room = self._state.has_room
        self._listener = await loop.create_server(
            lambda: Connection(self._state), host, port, backlog=_BACKLOG
        )
        self._set_date()
        self._watch = loop.create_task(self._watch_connections(), name="schedo http watch")
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Accept no more, answer what was accepted, then close; harmless if never started."""
        if self._listener is None or self._app is None:
            return
        self._app.drain()
        await _accept_waiting(self._listener)
        await _let_callbacks_run()  # a closed asyncio listener fails those it is just accepting
        self._listener.close()
        self._state.is_draining = True
        await _let_callbacks_run()  # accepted connections announce themselves some turns later
        for connection in self.connections:
            connection.shutdown()
        await self._wait_until_empty(grace_s)
        for task in list(self._state.tasks):
            task.cancel()
        for connection in self.connections:
            connection.transport.close()
        if self._watch is not None:
            self._watch.cancel()
        self._listener = None

    async def _wait_until_empty(self, grace_s: float) -> None:
        self._state.emptied.clear()
        if self._state.all:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._state.emptied.wait(), grace_s)

    async def _watch_connections(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_WATCH_S)
            self._set_date()
            now = loop.time()
            for connection in self.connections:
                connection.check_deadline(now)
            self.shed_slow()

    def _set_date(self) -> None:
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]


async def _accept_waiting(listener: asyncio.Server) -> None:
    """Let the loop accept the connections that wait in the kernel; closing would reset them."""
    waiting = select.poll()
    for sock in listener.sockets:
        waiting.register(sock.fileno(), select.POLLIN)
    for _ in range(_ACCEPT_TURNS_MAX):  # more may always be coming
        if not waiting.poll(0):
            return
        await asyncio.sleep(0)


async def _let_callbacks_run() -> None:
    for _ in range(_SETTLE_TURNS):
        await asyncio.sleep(0)
