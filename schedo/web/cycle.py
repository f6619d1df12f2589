"""One request and its answer on a connection.

uvicorn writes an answer's head and its body apart, and checks every header with two regular
expressions. Our answers come whole and from our own code, so they go out in one write, which spares
a system call and a packet. And a request can be taken back from the application while it has not
acted on it, so that the connection may answer in its place.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

_CLOSE = (b"connection", b"close")


class WholeAnswerCycle(RequestResponseCycle):
    """Sends an answer that comes in one piece with one write; others as uvicorn does."""

    _start: Any = None  # the head, held back until the body is there
    _lacks_body = True  # the application has not begun, or asked last for the rest of the body

    async def run_asgi(self, app: Any) -> None:
        """Run the application, unless the request was withdrawn before it began."""
        self._lacks_body = False
        if not self.disconnected:
            await super().run_asgi(app)

    def receive(self) -> Coroutine[Any, Any, Any]:
        """Wait for what comes next from the client."""
        self._lacks_body = True
        return super().receive()  # not awaited here: thousands wait in it, each with its frames

    def withdraw(self) -> bool:
        """Take back a request whose body failed; False if the application may have acted on it.

        Nothing that it sends from now on goes out. If it waits for the body, it learns that its
        client is gone when the connection closes.
        """
        if self.response_started or not self._lacks_body:
            return False
        self.disconnected = True
        return True

    async def send(self, message: Any) -> None:
        """Take one ASGI message of the answer."""
        if self._start is None and not self.response_started:
            self._start = message
            return
        start, self._start = self._start, None
        if start is None:
            await super().send(message)
        elif message.get("more_body", False) or self.flow.write_paused:
            await super().send(start)
            await super().send(message)
        elif not self.disconnected:
            self._write_whole(start, message["body"])

    def _write_whole(self, start: Any, body: bytes) -> None:
        headers = [*self.default_headers, *start["headers"]]
        if _CLOSE in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            headers.append(_CLOSE)
        head = b"\r\n".join(map(b": ".join, headers))
        # Nothing that came from outside may end a header early.
        ends = len(headers) - 1
        assert head.count(b"\n") == head.count(b"\r") == ends, "one line for each header"
        shown = b"" if self.scope["method"] == "HEAD" else body
        self.response_started = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join((STATUS_LINE[start["status"]], head, b"\r\n\r\n", shown)))
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
