"""The gRPC server: it listens, answers calls, and lets another process follow without a loss."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import Callable, Iterator, Sequence

from starlette.types import ASGIApp

from schedo.grpc.calls import METHODS, Call, perform
from schedo.grpc.connection import START_S, Connection
from schedo.grpc.health import HEALTH_PATH, answer_health
from schedo.grpc.requests import Caller, Requests
from schedo.grpc.status import OK, CallFailed, Code, Status, fail
from schedo.grpc.stream import Stream
from schedo.grpc.work import WorkStream
from schedo.web.app import WebApp
from schedo.web.bytes_in_flight import Claim
from schedo.web.server import PROGRESS_S, STOP_GRACE_S

log = logging.getLogger("schedo.grpc")

CONNECTIONS_MAX = 1_024
CALLS_MAX = 4_096  # of all connections; each open stream of a worker is one
_BACKLOG = 1_024
_CHECK_S = 1.0
_LOOK_S = 0.001
_WORK = "/schedo.v1.Schedo/Work"
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])\Z")
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_REPLACED = Status(Code.UNAVAILABLE, "another process of the server answers now; connect again")
_TOO_LATE = Status(Code.DEADLINE_EXCEEDED, "the deadline of the call is over")


class Shared:
    """What all connections share: their number, their bytes, and their calls."""

    def __init__(self, app: WebApp, find_app: Callable[[], ASGIApp]) -> None:
        self.loop = asyncio.get_running_loop()
        self.in_flight = app.context.in_flight
        self.requests = Requests(app, find_app)
        self.connections: set[Connection] = set()
        self.workers: set[WorkStream] = set()
        self.calls: set[asyncio.Task[None]] = set()
        self.emptied = asyncio.Event()

    # From the connections.

    def admit(self, connection: Connection) -> bool:
        """Add a connection; return False if there are too many."""
        self.connections.add(connection)
        return len(self.connections) <= CONNECTIONS_MAX

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.connections.discard(connection)
        if not self.connections:
            self.emptied.set()

    def charge(self, connection: Connection, change: int) -> None:
        """Count bytes that a connection holds; if there are too many, close the largest one."""
        account = self.in_flight
        account.by_connections += change
        if change > 0 and account.by_connections > account.connections_max:
            most = max(self.connections, key=lambda each: each.held, default=connection)
            log.warning("a client of gRPC holds too many bytes; its connection is closed")
            most.transport.abort()

    def begin(self, stream: Stream) -> None:
        """Answer a call."""
        if len(self.calls) >= CALLS_MAX:
            stream.end(Status(Code.RESOURCE_EXHAUSTED, "the server has too many calls"))
            return
        task = self.loop.create_task(self._answer(stream))
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)

    # Calls.

    async def _answer(self, stream: Stream) -> None:
        try:
            with self._within(stream):
                status = await self._perform(stream)
        except CallFailed as failed:
            status = failed.status
        except Exception:
            log.exception("a call of %s: a bug in schedo", stream.path[:100])
            status = Status(Code.INTERNAL, "a bug in schedo; its log has more")
        stream.end(status)

    async def _perform(self, stream: Stream) -> Status:
        _check_kind(stream)
        caller = Caller(self.requests, stream)
        if stream.path == _WORK:
            return await WorkStream(stream, caller, self.workers).run()
        claim = Claim(self.in_flight)
        try:
            data = await stream.receive(claim, caller.check)
            await stream.send(await _respond(stream.path, Call(caller, claim), data))
        finally:
            claim.release()
        return OK

    @contextlib.contextmanager
    def _within(self, stream: Stream) -> Iterator[None]:
        """End the call when its deadline is over, if it has one."""
        value = stream.headers.get(b"grpc-timeout")
        if value is None:
            yield
            return
        found = _TIMEOUT.match(value)
        if found is None:
            raise fail(Code.INVALID_ARGUMENT, "grpc-timeout is no duration")
        seconds = int(found[1]) * _SECONDS[found[2]]
        timer = self.loop.call_later(seconds, stream.expire, _TOO_LATE)
        try:
            yield
        finally:
            timer.cancel()


async def _respond(path: str, call: Call, data: bytes | None) -> bytes:
    """Return the response to a call with one message."""
    if path == HEALTH_PATH:
        return await answer_health(call.caller, data)
    method = METHODS.get(path)
    if method is None:
        raise fail(Code.UNIMPLEMENTED, f"there is no method {path[:100]}")
    if data is None:
        raise fail(Code.INVALID_ARGUMENT, "the call has no message")
    return await perform(method, call, data)


def _check_kind(stream: Stream) -> None:
    """Refuse what is no call of gRPC with messages of protobuf."""
    kind = stream.headers.get(b"content-type", b"")
    if stream.headers.get(b":method") != b"POST" or kind not in _CONTENT_TYPES:
        raise fail(Code.INVALID_ARGUMENT, "this port speaks gRPC with protobuf only")


_CONTENT_TYPES = frozenset({b"application/grpc", b"application/grpc+proto"})


class GrpcServer:
    """Serves gRPC on one address."""

    def __init__(self, app: WebApp, find_app: Callable[[], ASGIApp]) -> None:
        """find_app: returns what answers requests now; see Requests."""
        self._app = app
        self._shared = Shared(app, find_app)
        self.sockets: Sequence[socket.socket] = ()  # on which this server listens
        self._is_accepting = False
        self._pausing: asyncio.TimerHandle | None = None  # ends a pause without descriptors
        self._opening: set[asyncio.Task[object]] = set()
        self._watch: asyncio.Task[None] | None = None

    @property
    def connections(self) -> set[Connection]:
        """The open connections."""
        return set(self._shared.connections)

    def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on bound sockets, which this server closes."""
        self.sockets = sockets
        for sock in sockets:
            sock.setblocking(False)
            sock.listen(_BACKLOG)
        self._accept()
        self._watch = asyncio.create_task(self._watch_connections(), name="schedo grpc watch")

    # Connections.

    def _accept(self) -> None:
        self._is_accepting = True
        for sock in self.sockets:
            self._shared.loop.add_reader(sock.fileno(), self._accept_waiting, sock)

    def _accept_no_more(self) -> None:
        """Leave new connections in the queue of the listener, where another process finds them."""
        self._is_accepting = False
        if self._pausing is not None:
            self._pausing.cancel()
            self._pausing = None
        for sock in self.sockets:
            self._shared.loop.remove_reader(sock.fileno())

    def _accept_waiting(self, sock: socket.socket) -> None:
        for _ in range(_BACKLOG):
            try:
                accepted, _ = sock.accept()
            except BlockingIOError:
                return
            except OSError as error:  # such as too many open files
                log.error("gRPC: a connection cannot be accepted: %s", error.strerror)
                self._accept_no_more()
                self._pausing = self._shared.loop.call_later(_CHECK_S, self._accept)
                return
            if len(self._opening) >= CONNECTIONS_MAX:
                accepted.close()
                continue
            task = asyncio.create_task(self._open(accepted))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = self._app.context.settings.tls
        with contextlib.suppress(OSError):  # the client has left, or does not speak TLS
            await self._shared.loop.connect_accepted_socket(
                lambda: Connection(self._shared),
                accepted,
                ssl=None if tls is None else tls.grpc,
                ssl_handshake_timeout=None if tls is None else START_S,
            )

    async def _watch_connections(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_S)
            now = self._shared.loop.time()
            for connection in self.connections:
                connection.check(now)

    # The passing of the calls to a new process, and the end.

    async def hold(self, end_waits: Callable[[], None]) -> None:
        """Accept nothing; return when the application acts on no call any more.

        Calls that come meanwhile wait: see web/holding.py. end_waits: lets calls that wait for
        something respond.
        """
        self._accept_no_more()
        until = self._shared.loop.time() + PROGRESS_S
        while self._shared.requests.is_active and self._shared.loop.time() < until:
            end_waits()
            await asyncio.sleep(_LOOK_S)

    def resume(self) -> None:
        """Accept again."""
        self._accept()

    def pass_on(self) -> None:
        """Send the workers to the process that answers now, and the clients with their next call.

        The calls in progress are forwarded like requests of HTTP.
        """
        for worker in list(self._shared.workers):
            worker.stop(_REPLACED)
        self._leave()

    def _leave(self) -> None:
        for sock in self.sockets:
            sock.close()
        self.sockets = ()
        for connection in self.connections:
            connection.leave()

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Let the calls end, then close; the application drains, which ends those that wait."""
        if self._is_accepting:
            for sock in self.sockets:
                self._accept_waiting(sock)
            self._accept_no_more()
        await asyncio.gather(*self._opening)
        self._leave()
        self._shared.emptied.clear()
        if self._shared.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._shared.emptied.wait()
        for task in list(self._shared.calls):
            task.cancel()
        for connection in self.connections:
            connection.transport.abort()
        if self._watch is not None:
            self._watch.cancel()
