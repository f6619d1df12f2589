"""The HTTP server: listens, enforces deadlines, and shuts down without dropping a request.

uvicorn serves the application, with the class of its connections replaced by ours (its `http`
setting, see docs/adr/0009). Its own main loop does not run: it would take over the signals, wake
ten times a second and, at shutdown, close connections that were accepted but not yet read.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import ASGIApp

from schedo.engine.sharing import loop_share
from schedo.web.app import WebApp
from schedo.web.connection import Connection
from schedo.web.connections import Connections
from schedo.web.holding import Holding
from schedo.web.slim_imports import Config, Server

STOP_GRACE_S = 10.0
_LAST_S = 0.2  # for the responses to requests that other servers still carry out
CONNECTIONS_MAX = 4_096  # each open poll of a worker needs one
_BACKLOG = 4_096  # a client whose connection finds no place tries again a second later
_WATCH_S = 1.0
PROGRESS_S = 0.2  # for the requests in progress, before others wait no longer for them
FORWARDING_IDLE_S = 10.0  # a connection that sends nothing is closed then
SENDING_S = 0.02  # for the responses that have begun
_PROGRESS_CHECK_S = 0.001
_ACCEPT_TURNS_MAX = 1_000
_SETTLE_TURNS = 10  # asyncio takes 4 from accept() to connection_made()
# The file is that of the next server, too: Python 3.13 would remove it with the first one.
_LOCAL_OPTIONS: dict[str, Any] = {"backlog": _BACKLOG} | (
    {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
)


class HttpServer:
    """Serves one application on one address."""

    def __init__(self, connections_max: int = CONNECTIONS_MAX) -> None:
        self._state = Connections(connections_max)
        self._app: WebApp | None = None
        self._listeners: Sequence[asyncio.Server] = ()
        self.sockets: Sequence[socket.socket] = ()  # on which this server listens
        self._watch: asyncio.Task[None] | None = None
        self._local: dict[ASGIApp, Connections] = {}  # those that come over a control socket
        self._holding: Holding | None = None
        self._kept: list[socket.socket] = []  # copies of the listening sockets, while it holds

    @property
    def connections(self) -> list[Connection]:
        """The open connections."""
        return list(self._state.all)

    @property
    def answering(self) -> ASGIApp:
        """What answers requests now: the application, or what stands for it in a passing."""
        return self._state.app

    def shed_slow(self) -> None:
        """Close the connections of slow clients if memory is short."""
        self._state.shed()

    async def start(self, app: WebApp, host: str, port: int) -> int:
        """Listen, and return the port; raise OSError if the address is not available."""
        return await self.listen(app, await bind(host, port))

    async def listen(self, app: WebApp, sockets: Sequence[socket.socket]) -> int:
        """Accept requests on bound sockets, which this server closes; return the port, 0: none."""
        self.use(app)
        await self._accept(sockets)
        self._watch = asyncio.create_task(self._watch_connections(), name="schedo http watch")
        bound: int = 0 if _is_local(sockets[0]) else sockets[0].getsockname()[1]
        return bound

    def use(self, app: WebApp) -> None:
        """Let the application respond; `serve` needs no listening socket."""
        self._app = self._state.app = app
        self._state.loop, self._state.share = asyncio.get_running_loop(), loop_share()
        self._state.in_flight = app.context.in_flight
        self._set_date()

    async def _accept(self, sockets: Sequence[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        local = [
            await loop.create_unix_server(self._connect_local, sock=sock, **_LOCAL_OPTIONS)
            for sock in sockets
            if _is_local(sock)
        ]
        server = _make_server(self._state.app, self._connect)
        await server.startup([sock for sock in sockets if not _is_local(sock)])
        self._listeners, self.sockets = [*server.servers, *local], sockets

    def _connect(self, **_: object) -> asyncio.BufferedProtocol:
        """Return the protocol of a new connection, with the certificate of the last reload."""
        tls = self._app.context.settings.tls if self._app is not None else None
        if tls is None:
            return Connection(self._state)
        from schedo.web.tls import TlsTransport  # a server without TLS does not need OpenSSL

        return TlsTransport(self._state, tls.context)

    def _connect_local(self) -> Connection:
        """Return the protocol of a new connection from this machine, which needs no TLS."""
        return Connection(self._state)

    async def _accept_no_more(self) -> None:
        """Close the listeners; connections that are accepted already go on."""
        listeners, self._listeners = self._listeners, ()
        sockets, self.sockets = self.sockets, ()
        for sock in sockets:
            # asyncio drops a connection whose listener closes while it is accepted. For uvloop,
            # which accepts in one step, a listener is no reader, and this changes nothing.
            self._state.loop.remove_reader(sock.fileno())
        try:
            await _let_callbacks_run()
        finally:
            for listener in listeners:
                listener.close()

    async def _accept_last(self, listening: Sequence[socket.socket]) -> None:
        """Accept what has come since the last turn, and close: what comes then is refused."""
        accepted: list[socket.socket] = []
        for sock in listening:
            with sock, contextlib.suppress(OSError):  # there are no more
                while True:
                    accepted.append(sock.accept()[0])
        for each in accepted:
            each.setblocking(False)
            connect = self._connect_local if _is_local(each) else self._connect
            await self._state.loop.connect_accepted_socket(connect, each)

    async def serve(self, sock: socket.socket, app: ASGIApp) -> None:
        """Serve one connection with this application; it does not count among those of clients."""
        state = self._local.setdefault(app, Connections(CONNECTIONS_MAX))
        state.app, state.loop, state.share = app, self._state.loop, self._state.share
        state.in_flight, state.default_headers = self._state.in_flight, self._state.default_headers
        await self._state.loop.connect_accepted_socket(lambda: Connection(state), sock)

    def announce_end(self) -> None:
        """Close each connection after its next response, and go on to accept others."""
        self._state.is_leaving = True

    # The passing of the requests to a new process.

    async def hold(self, end_waits: Callable[[], None], waits_s: float = math.inf) -> None:
        """Accept nothing and let new requests wait; return when those in progress have ended.

        The ones that take long go on. end_waits: lets requests that wait for something respond.
        waits_s: how long this process can forward a wait for a job.
        """
        assert self._app is not None, "it listens"
        self._kept = _copy(self.sockets)  # it raises OSError before anything has changed
        holding = Holding(self._app, waits_s)
        self._holding = self._app.context.holding = self._state.app = holding
        self._state.is_leaving = True  # so the next connection reaches the other process itself
        await asyncio.gather(self._accept_no_more(), self._wait_for_active(end_waits))

    async def _wait_for_active(self, end_waits: Callable[[], None]) -> None:
        assert self._app is not None, "it listens"
        began_at = self._state.loop.time()
        while (waited_s := self._state.loop.time() - began_at) < PROGRESS_S:
            end_waits()
            self._app.context.end_streams()
            if not self._has_active(waited_s):
                return
            await asyncio.sleep(_PROGRESS_CHECK_S)

    def _has_active(self, waited_s: float) -> bool:
        """Whether a request is in progress; a client that reads slowly counts for a moment only.

        Those that an older process forwards count as well, and those of its attempts.
        """
        states = self._state, *self._local.values()
        active = [connection.active for state in states for connection in state.all]
        return any(each and (waited_s < SENDING_S or not each.has_begun) for each in active)

    async def resume(self) -> None:
        """Answer the requests that wait, and accept again; harmless if it holds nothing."""
        if self._holding is None:
            return
        assert self._app is not None, "it listened"
        self._app.context.holding, self._state.app = None, self._app
        self._state.is_leaving = False
        self._release(None)
        self._holding = None
        kept, self._kept = self._kept, []
        await self._accept(kept)

    def pass_on(self, successor: ASGIApp) -> None:
        """Let the successor answer what waits, and one more request of each connection."""
        self._state.app = successor
        self._end_local()
        self._release(successor)
        _close(self._kept)  # else no other process could listen there while this one drains
        self._kept = []

    def _end_local(self) -> None:
        """End the connections over the control socket; the next ones go to the next server."""
        for app, state in self._local.items():
            state.is_draining = True
            for connection in list(state.all):
                if app is self._app:
                    connection.shutdown()
                else:  # of an old process, which repeats its requests; they have no token
                    connection.abort()

    def _release(self, successor: ASGIApp | None) -> None:
        assert self._holding is not None, "it holds"
        self._holding.release(successor)

    async def wait_closed(self, most_s: float, idle_s: float) -> None:
        """Wait until the clients have closed their connections; close those that stay idle.

        Requests of clients that an older process forwards to this one count as well: after a
        second upgrade, this process forwards them in turn.
        """
        until = self._state.loop.time() + most_s
        while self._has_clients() and self._state.loop.time() < until:
            latest = self._state.loop.time() - idle_s
            for connection in self.connections:
                since = connection.idle_since()
                if since is not None and since < latest:
                    connection.transport.close()
            if self._state.all:
                await self._wait_until_empty(_WATCH_S)
            else:
                await asyncio.sleep(SENDING_S)

    def _has_clients(self) -> bool:
        forwarded = self._local.get(self._app) if self._app is not None else None
        return bool(self._state.all or (forwarded and any(each.active for each in forwarded.all)))

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Stop accepting, answer the accepted requests, then close; harmless if never started."""
        if self._app is None:
            return
        self._app.drain()
        await _accept_waiting(self._listeners)
        listening = [sock.dup() for sock in self.sockets]
        for sock in listening:
            sock.setblocking(False)  # an inherited one may be a blocking socket for Python
        await self._accept_no_more()
        self._state.is_draining = True
        await self._accept_last(listening)
        await _let_callbacks_run()  # connection_made comes some turns after accept
        for connection in self.connections:
            connection.shutdown()
        await self._wait_until_empty(grace_s)
        self._app.context.end_forwarded()
        await self._wait_until_empty(_LAST_S)
        for task in list(self._state.tasks):
            task.cancel()
        for connection in self.connections:
            connection.transport.close()
        if self._watch is not None:
            self._watch.cancel()
        _close(self._kept)
        self._app, self.sockets = None, ()

    async def _wait_until_empty(self, grace_s: float) -> None:
        self._state.emptied.clear()
        if self._state.all:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._state.emptied.wait()

    async def _watch_connections(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_WATCH_S)
            self._set_date()
            self._check_connections(loop.time())

    def _check_connections(self, now: float) -> None:
        # A method of its own: a loop variable in the caller would keep a closed connection alive.
        for connection in self.connections:
            connection.check_deadline(now)
        self.shed_slow()

    def _set_date(self) -> None:
        self._state.default_headers = [(b"date", format_date(time.time()))]


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


def format_date(seconds: float) -> bytes:
    """Return the Unix time as HTTP writes it (RFC 9110, 5.6.7), in English whatever the locale is.

    `email.utils` has this too, but takes a quarter of a megabyte with what it imports.
    """
    at = time.gmtime(seconds)
    date = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year}"
    return f"{date} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT".encode()


def _is_local(sock: socket.socket) -> bool:
    return sock.family == socket.AF_UNIX


def _copy(sockets: Sequence[socket.socket]) -> list[socket.socket]:
    """Return a copy of each socket, or raise OSError and leave none open."""
    with contextlib.ExitStack() as opened:
        copies = [opened.enter_context(sock.dup()) for sock in sockets]
        opened.pop_all()
    return copies


def _close(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def _make_server(app: ASGIApp, connect: Callable[..., asyncio.BufferedProtocol]) -> Server:
    """Return a uvicorn server whose connections are made by this function."""
    config = Config(
        app,
        http=connect,  # type: ignore[arg-type]  # it is called, never used as a class
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        proxy_headers=False,  # clients could forge their address
        backlog=_BACKLOG,
    )
    config.load()
    server = Server(config)
    server.lifespan = config.lifespan_class(config)
    return server


async def bind(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of the host; raise OSError if one is not available.

    uvicorn would end the process instead of raising.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with contextlib.ExitStack() as opened:
        sockets = []
        for family, address in dict.fromkeys((each[0], each[4]) for each in found):
            sock = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sockets.append(sock)
        opened.pop_all()
    return sockets


async def _accept_waiting(listeners: Sequence[asyncio.Server]) -> None:
    """Let the loop accept the connections that wait in the kernel; closing would reset them."""
    waiting = select.poll()
    for listener in listeners:
        for sock in listener.sockets:
            waiting.register(sock.fileno(), select.POLLIN)
    for _ in range(_ACCEPT_TURNS_MAX):  # bounded: new connections may arrive all the time
        if not waiting.poll(0):
            return
        await asyncio.sleep(0)


async def _let_callbacks_run() -> None:
    for _ in range(_SETTLE_TURNS):
        await asyncio.sleep(0)
