"""One request and its answer on a connection, as ASGI sees them.

An answer that comes whole goes out with one write, which spares a system call and a packet. And a
request can be taken back from the application while it has not acted on it, so that the connection
may answer in its place.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any, Protocol

from starlette.types import ASGIApp

from schedo.web.auth import ClientGone
from schedo.web.light_event import LightEvent

log = logging.getLogger("schedo.web")

UNREAD_BYTES_MAX = 65_536  # of a body that the application does not read: no more is received
_WHOLE_BYTES_MAX = 65_536  # larger ones are not copied to be written with their heads
_CLOSE = (b"connection", b"close")
_CHUNKED = (b"transfer-encoding", b"chunked")
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Peer(Protocol):
    """What an exchange needs of its connection."""

    def write(self, data: bytes) -> None:
        """Send the bytes, or keep them until the client takes them."""

    async def flushed(self) -> None:
        """Return when the client has taken what was written, or is gone."""

    def want_body(self) -> None:
        """Receive more of the body."""

    def may_stay_open(self) -> bool:
        """Say whether another request can follow this one, whose answer begins."""

    def end_answer(self) -> None:
        """Go on to the next request, or close."""

    def abort(self) -> None:
        """Close at once."""


class Exchange:
    """One request of a connection, and the answer that the application gives."""

    __slots__ = (
        "_expects_continue",
        "_is_chunked",
        "_lacks_body",
        "_news",
        "_parts",
        "_peer",
        "_start",
        "has_begun",
        "has_body",
        "is_answered",
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
        self._news = LightEvent()
        self._parts: list[bytes] = []
        self.unread_bytes = 0
        self.has_body = False  # all of it has come
        self._lacks_body = True  # the application has not begun, or asked last for more of it
        self._start: Any = None  # the answer's head, held back until the body is there
        self._is_chunked = False
        self.has_begun = False  # the answer's first byte is written
        self.is_answered = False
        self.is_gone = False

    async def run(self, app: ASGIApp) -> None:
        """Run the application, unless the request was withdrawn before it began."""
        self._lacks_body = False
        if self.is_gone:
            return
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            log.exception("a bug in schedo: a request was given up")
            self._peer.abort()
        except asyncio.CancelledError:
            self._peer.abort()
            raise
        else:
            if not self.is_answered and not self.is_gone:
                self._peer.abort()

    def add(self, parts: list[bytes], is_complete: bool) -> None:
        """Take what came of the body; once the request is answered it interests nobody."""
        self.has_body = is_complete
        if not self.is_answered:
            self._parts += parts
            self.unread_bytes += sum(map(len, parts))
        self._news.set()

    def leave(self) -> None:
        """Let the application know that the client is gone."""
        self.is_gone = True
        self._parts.clear()
        self._news.set()

    def withdraw(self) -> bool:
        """Take back a request whose body failed; False if the application may have acted on it.

        Nothing that it sends from now on goes out. If it waits for the body, it learns that its
        client is gone when the connection closes.
        """
        if self.has_begun or not self._lacks_body:
            return False
        self.is_gone = True
        return True

    async def receive(self) -> dict[str, Any]:
        """Wait for what comes next from the client."""
        self._lacks_body = True
        if not self.is_gone and not self.is_answered:
            if self._expects_continue and not self.has_body:
                self._peer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._expects_continue = False
            self._peer.want_body()
            await self._news.wait()
            self._news.clear()
        if self.is_gone or self.is_answered:
            return {"type": "http.disconnect"}
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self.unread_bytes = 0
        return {"type": "http.request", "body": body, "more_body": not self.has_body}

    async def send(self, message: Any) -> None:
        """Take one ASGI message of the answer: its head, then one or more pieces of the body."""
        if self._start is None and not self.has_begun:
            self._start = message
            return
        body: bytes = message["body"]
        more = message.get("more_body", False)
        if self.is_gone:
            if more:
                raise ClientGone  # the rest need not be made
            return
        if not self.has_begun:
            head, body = self._begin(self._start, more), self._frame(body, more)
            if len(body) <= _WHOLE_BYTES_MAX:
                head, body = head + body, b""
            self._peer.write(head)
        else:
            body = self._frame(body, more)
        if body:
            self._peer.write(body)
        if more:
            await self._peer.flushed()
        else:
            self.is_answered = True
            self._news.set()
            self._peer.end_answer()

    def _begin(self, start: Any, more: bool) -> bytes:
        """Return the answer's head."""
        headers = [*self.scope["schedo.defaults"], *start["headers"]]
        if more and self.scope["http_version"] == "1.1":
            self._is_chunked = True
            headers.append(_CHUNKED)
        elif more:
            self.keeps_alive = False  # its end is the end of the connection
        if _CLOSE in headers:
            self.keeps_alive = False
        elif not (self.keeps_alive and self._peer.may_stay_open()):
            self.keeps_alive = False
            headers.append(_CLOSE)
        head = b"\r\n".join(map(b": ".join, headers))
        # Nothing that came from outside may end a header early.
        ends = len(headers) - 1
        assert head.count(b"\n") == head.count(b"\r") == ends, "one line for each header"
        self.has_begun = True
        self._start = None
        self._expects_continue = False
        return b"".join((_STATUS_LINES[start["status"]], head, b"\r\n\r\n"))

    def _frame(self, body: bytes, more: bool) -> bytes:
        """Return a piece of the answer's body as it goes over the wire."""
        if self.scope["method"] == "HEAD":
            return b""
        if not self._is_chunked:
            return body
        end = b"" if more else b"0\r\n\r\n"
        return b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end
