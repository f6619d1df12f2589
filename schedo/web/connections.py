"""All connections of one server: bounds their number and the memory that they hold together.

When they hold more bytes than their part of the account (`web/bytes_in_flight.py`), the server
closes the connections of the slowest clients, so that a client that reads does not pay for the
others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from schedo.engine.sharing import LoopShare
from schedo.web.bytes_in_flight import BytesInFlight

if TYPE_CHECKING:
    from schedo.web.connection import Connection

_SHORT_READ_BYTES = 8_192  # the most that a client may send ahead
_LONG_READ_BYTES = 65_536
_IDLE_CLOSED_AT_ONCE = 64
# These requests must not wait behind many others, or the server counts as dead.
HEALTH_CHECKS = (b"GET /healthz ", b"GET /readyz ", b"HEAD /healthz ", b"HEAD /readyz ")
IDLE_KEPT_S = 1.0  # a connection this young is not closed for another one
SLOW_BYTES_PER_S = 65_536  # a client that reads at this rate is not closed
SLOW_GRACE_S = 0.25


class Connections:
    """The shared state of the connections of one server."""

    loop: asyncio.AbstractEventLoop
    share: LoopShare
    app: ASGIApp
    in_flight: BytesInFlight

    def __init__(self, connections_max: int) -> None:
        self._max = connections_max
        self.all: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.default_headers: list[tuple[bytes, bytes]] = []
        self.is_draining = False
        self.is_leaving = False  # these connections end, each with its next response
        self.requests = 0
        self.emptied = asyncio.Event()
        self.long_buffer = memoryview(bytearray(_LONG_READ_BYTES))
        self.short_buffer = self.long_buffer[:_SHORT_READ_BYTES]

    def admit(self, connection: Connection) -> bool:
        """Add a connection; return False if it exceeds the limit."""
        self.all.add(connection)
        if len(self.all) <= self._max:
            return True
        self._close_idle()
        if len(self.all) > 2 * self._max:
            connection.abort()
        return len(self.all) <= self._max

    def _close_idle(self) -> None:
        """Close the connections that have been idle for longest."""
        latest = self.loop.time() - IDLE_KEPT_S
        idle = [
            (since, connection)
            for connection in self.all
            if (since := connection.idle_since()) is not None and since < latest
        ]
        idle.sort(key=lambda pair: pair[0])
        for _, connection in idle[: min(_IDLE_CLOSED_AT_ONCE, max(1, self._max // 8))]:
            self.forget(connection)
            connection.shed()

    def start(self, responding: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine that responds to a request."""
        task = self.loop.create_task(responding)
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def begin_later(self, head: bytes, begin: Callable[[], None]) -> None:
        """Call `begin` when the loop has time for the request with this head."""
        self.share.begin_later(begin, is_urgent=head.startswith(HEALTH_CHECKS))

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.all.discard(connection)
        if not self.all:
            self.emptied.set()

    def charge(self, connection: Connection, change: int) -> None:
        """Change the number of bytes that a connection holds."""
        account = self.in_flight
        account.by_connections += change
        if change > 0 and account.by_connections > account.connections_max:
            self.shed(connection)

    def shed(self, but: Connection | None = None) -> None:
        """Close the slowest clients if memory is short, until a quarter of it is free."""
        account = self.in_flight
        if account.by_connections <= account.connections_max:
            return
        if account.waiting_bodies:
            account.refuse_waiting_bodies()
            return
        now = self.loop.time()
        found = []
        for connection in self.all:
            if connection.held and connection is not but:
                lag_s = connection.outgoing.lag(now, SLOW_BYTES_PER_S)
                if connection.has_sent_ahead or lag_s > SLOW_GRACE_S:
                    found.append((lag_s, connection.held, id(connection), connection))
        found.sort(reverse=True)
        for *_, connection in found:
            if account.by_connections <= account.connections_max * 3 // 4:
                break
            connection.shed()
