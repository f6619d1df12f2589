"""Sends the requests that calls stand for to the application that answers HTTP.

So a call has the same access control, limits, validation and errors as the request of HTTP, and it
is held and forwarded like one while another process takes the place of this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message

from schedo.errors import SchedoError
from schedo.grpc.status import (
    CallFailed,
    Code,
    ProblemFields,
    Status,
    fail,
    read_problem,
    status_of,
)
from schedo.grpc.stream import Stream
from schedo.protocol.problems import render_problem
from schedo.web.app import WebApp
from schedo.web.bytes_in_flight import Claim
from schedo.web.holding import is_held
from schedo.web.http import JSON_TYPE
from schedo.web.light_event import LightEvent

_CARRIED = (b"authorization", b"traceparent", b"tracestate")  # by every request of a call
_KEY = b"idempotency-key"
_REFUSED = 400
Headers = Sequence[tuple[bytes, bytes]]
_NO_HEADERS: Headers = ()


class Answer(NamedTuple):
    """The response of the application."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes

    @property
    def problem(self) -> ProblemFields | None:
        """The problem document, if the request was refused."""
        return read_problem(self.body) if self.status >= _REFUSED else None

    @property
    def failure(self) -> Status | None:
        """The status of a call that ends with this response; None: the request succeeded."""
        problem = self.problem
        if problem is None:
            return None
        retry_after = self.headers.get(b"retry-after", b"")
        return status_of(problem, int(retry_after) if retry_after.isdigit() else None)


class _Peer:
    """Stands for the transport of a request: only the request ends, not the whole connection."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_aborted = False

    def get_extra_info(self, name: str, default: object = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def abort(self) -> None:
        self.is_aborted = True


class Caller:
    """Who calls: the headers that every request has, the connection, and whether it is there."""

    def __init__(self, requests: Requests, stream: Stream) -> None:
        """Raise CallFailed if a header of the call has bytes that no header of HTTP may have."""
        headers = stream.headers
        self._requests = requests
        self._transport = stream.connection.transport
        self._gone = stream.gone
        carried = {b"host": headers.get(b":authority", b"")}
        carried |= {name: headers[name] for name in _CARRIED if name in headers}
        self._headers = list(carried.items())
        self._key = headers.get(_KEY)
        for name, value in [*self._headers, (_KEY, self._key or b"")]:
            if any(byte < 0x20 or byte == 0x7F for byte in value):
                raise fail(Code.INVALID_ARGUMENT, f"{name.decode()} has a control character")

    def check(self) -> None:
        """Raise CallFailed if the call has no valid token, before anything else is received."""
        scope = _make_scope("POST /", list(self._headers), _Peer(self._transport))
        try:
            self._requests.check(scope)
        except SchedoError as error:
            raise CallFailed(status_of(read_problem(render_problem(error)))) from None

    @property
    def key(self) -> Headers:
        """The Idempotency-Key of the call, if it has one, as a header."""
        return [] if self._key is None else [(_KEY, self._key)]

    async def ask(
        self,
        route: str,
        body: bytes | None = None,
        *,
        headers: Headers = _NO_HEADERS,
        claim: Claim | None = None,
        gone: LightEvent | None = None,
    ) -> Answer:
        """Send a request and return the response.

        route: method, path and query. claim: for the bytes of the body. gone: ends the request's
        wait in place of the end of the call.
        """
        sent = [*self._headers, *headers]
        if body is not None:
            sent += [(b"content-type", JSON_TYPE), (b"content-length", b"%d" % len(body))]
        peer = _Peer(self._transport)
        scope = _make_scope(route, sent, peer)
        if claim is not None:
            scope["schedo.claim"] = claim
        answer = await self._requests.send(scope, body or b"", gone or self._gone)
        if answer is None:
            why = "the server broke off; the outcome is unknown" if peer.is_aborted else "gone"
            raise fail(Code.UNKNOWN, why)
        return answer


def _make_scope(route: str, headers: Headers, peer: _Peer) -> dict[str, Any]:
    method, _, target = route.partition(" ")
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "schedo.transport": peer,
    }


class Requests:
    """The requests in progress."""

    def __init__(self, app: WebApp, find_app: Callable[[], ASGIApp]) -> None:
        """find_app: returns what answers now: the application, or what stands for it."""
        self.check = app.check
        self.in_flight = app.context.in_flight
        self._find_app = find_app
        self._scopes: dict[int, dict[str, Any]] = {}

    @property
    def is_active(self) -> bool:
        """Whether the application acts on a request."""
        return not all(map(is_held, self._scopes.values()))

    async def send(self, scope: dict[str, Any], body: bytes, gone: LightEvent) -> Answer | None:
        """Return the response; None if there is none."""
        exchange = _Exchange(body, gone)
        self._scopes[id(scope)] = scope
        try:
            await self._find_app()(scope, exchange.receive, exchange.send)
        finally:
            del self._scopes[id(scope)]
        return exchange.answer


class _Exchange:
    """The ASGI side of one request."""

    def __init__(self, body: bytes, gone: LightEvent) -> None:
        self._unread: bytes | None = body
        self._gone = gone
        self._start: Message | None = None
        self._parts: list[bytes] = []
        self.answer: Answer | None = None

    async def receive(self) -> Message:
        if self._unread is not None:
            body, self._unread = self._unread, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._parts.append(bytes(message.get("body", b"")))
        if not message.get("more_body", False) and self._start is not None:
            headers = dict(self._start["headers"])
            self.answer = Answer(self._start["status"], headers, b"".join(self._parts))
