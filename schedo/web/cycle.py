"""The ASGI side of one request and its response.

A response in one piece is sent with one write, which saves a system call and a packet. A request
can be withdrawn while the application has not acted on it, so that the connection can respond
instead.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any, Protocol

from starlette.types import ASGIApp

from schedo.web.auth import ClientGone
from schedo.web.holding import is_held
from schedo.web.http import BODILESS
from schedo.web.light_event import LightEvent

log = logging.getLogger("schedo.web")

UNREAD_BYTES_MAX = 65_536  # of an unread body; the connection receives no more
_WHOLE_BYTES_MAX = 65_536  # a larger body is written separately from its head
_CLOSE = (b"connection", b"close")
_CHUNKED = (b"transfer-encoding", b"chunked")
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Peer(Protocol):
    """The methods of a connection that an exchange uses."""

    def write(self, data: bytes) -> None:
        """Send the bytes, or buffer them until the client reads."""

    async def flushed(self) -> None:
        """Wait until the client has read all bytes, or has disconnected."""

    def want_body(self) -> None:
        """Receive more of the body."""

    def may_stay_open(self) -> bool:
        """Return whether another request can follow; called when the response begins."""

    def end_response(self) -> None:
        """Continue with the next request, or close."""

    def abort(self) -> None:
        """Close at once."""


class Exchange:
    """One request of a connection, and the application's response."""

    __slots__ = (
        "_changed",
        "_expects_continue",
        "_is_chunked",
        "_lacks_body",
        "_parts",
        "_peer",
        "_start",
        "has_begun",
        "has_body",
        "has_responded",
        "is_body_wanted",
        "is_gone",
        "keeps_alive",
        "scope",
        "unread_bytes",
    )

    def __init__(
        self, peer: Peer, scope: dict[str, Any], keeps_alive: bool, expects_continue: bool
    ) -> None:
        self._peer = peer
        self.scope = scope
        self.keeps_alive = keeps_alive
        self._expects_continue = expects_continue
        self._changed = LightEvent()
        self._parts: list[bytes] = []
        self.unread_bytes = 0
        self.has_body = False  # the whole body has arrived
        self.is_body_wanted = False  # the application reads the body
        self._lacks_body = True  # the application has not started, or waits for the body
        self._start: Any = None  # the head of the response, held until its body
        self._is_chunked = False
        self.has_begun = False  # the first byte of the response is written
        self.has_responded = False
        self.is_gone = False

    @property
    def is_active(self) -> bool:
        """Whether the application acts on the request."""
        return not (self.has_responded or self.is_gone or is_held(self.scope))

    async def run(self, app: ASGIApp) -> None:
        """Run the application, unless the request was withdrawn before it began."""
        self._lacks_body = False
        if self.is_gone:
            return
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            log.exception("a bug in schedo: a request was aborted")
            self._peer.abort()
        except asyncio.CancelledError:
            self._peer.abort()
            raise
        else:
            if not self.has_responded and not self.is_gone:
                self._peer.abort()

    def add(self, parts: list[bytes], is_complete: bool) -> None:
        """Add a part of the body; after the response it is dropped."""
        self.has_body = is_complete
        if not self.has_responded:
            self._parts += parts
            self.unread_bytes += sum(map(len, parts))
        self._changed.set()

    def leave(self) -> None:
        """Notify the application that the client has disconnected."""
        self.is_gone = True
        self._parts.clear()
        self._changed.set()

    def withdraw(self) -> bool:
        """Withdraw a request whose body is bad; False if the application may have acted on it.

        Nothing that the application sends later reaches the client. If it waits for the body, it
        gets a disconnect when the connection closes.
        """
        if self.has_begun or not self._lacks_body:
            return False
        self.is_gone = True
        return True

    async def receive(self) -> dict[str, Any]:
        """Return the next ASGI message: a part of the body, or the disconnect."""
        self._lacks_body = self.is_body_wanted = True
        if not self.is_gone and not self.has_responded:
            if self._expects_continue and not self.has_body:
                self._peer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._expects_continue = False
            self._peer.want_body()
            await self._changed.wait()
            self._changed.clear()
        if self.is_gone or self.has_responded:
            return {"type": "http.disconnect"}
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self.unread_bytes = 0
        return {"type": "http.request", "body": body, "more_body": not self.has_body}

    async def send(self, message: Any) -> None:
        """Send one ASGI message of the response: its head, then one or more parts of the body."""
        if self._start is None and not self.has_begun:
            self._start = message
            return
        body: bytes = message["body"]
        more = message.get("more_body", False)
        if self.is_gone:
            if more:
                raise ClientGone  # stops the production of the rest
            return
        if not self.has_begun:
            head = self._begin(self._start, None if more else len(body))
            body = self._frame(body, more)
            if len(body) <= _WHOLE_BYTES_MAX:
                head, body = head + body, b""
            self._peer.write(head)
        else:
            body = self._frame(body, more)
        if body:
            self._peer.write(body)
        if more:
            await self._peer.flushed()
            return
        self.has_responded = True
        self._parts.clear()
        self.unread_bytes = 0
        self._changed.set()
        self._peer.end_response()

    def _begin(self, start: Any, length: int | None) -> bytes:
        """Return the head of the response. length: of its whole body; None: more may follow."""
        headers = [*self.scope["schedo.defaults"], *start["headers"]]
        is_bodiless = start["status"] in BODILESS
        if not is_bodiless and not any(name == b"content-length" for name, _ in headers):
            if length is not None:  # a stream that has ended before its first piece
                headers.append((b"content-length", b"%d" % length))
            elif self.scope["http_version"] == "1.1":
                self._is_chunked = True
                headers.append(_CHUNKED)
            else:
                self.keeps_alive = False  # the end of the connection ends the body
        if _CLOSE in headers:
            self.keeps_alive = False
        elif not (self.keeps_alive and self._peer.may_stay_open()):
            self.keeps_alive = False
            headers.append(_CLOSE)
        head = b"\r\n".join(map(b": ".join, headers))
        # No value from outside may contain a line end and start a header of its own.
        ends = len(headers) - 1
        assert head.count(b"\n") == head.count(b"\r") == ends, "one line for each header"
        self.has_begun = True
        self._start = None
        self._expects_continue = False
        return b"".join((_STATUS_LINES[start["status"]], head, b"\r\n\r\n"))

    def _frame(self, body: bytes, more: bool) -> bytes:
        """Return a part of the body with its chunk framing."""
        if self.scope["method"] == "HEAD":
            return b""
        if not self._is_chunked:
            return body
        end = b"" if more else b"0\r\n\r\n"
        return b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end
