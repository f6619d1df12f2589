"""Requests that wait while the store passes from this process to a new one.

For some milliseconds no server can answer. The connections stay open meanwhile, and their requests
wait here. Then this process goes on, or each request is forwarded to the new server, whether its
body has been read or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schedo.errors import SchedoError, Unavailable
from schedo.web.http import problem_response, send_response

HELD_S = 1.0  # then a request is refused: the client may try again elsewhere
_IS_HELD = "schedo.is_held"
_OF_A_BODY = frozenset((b"content-length", b"content-type", b"transfer-encoding"))


class Holding:
    """An application that holds requests until one of two servers answers them."""

    def __init__(self, app: ASGIApp, waits_s: float) -> None:
        """app: the application of this process.

        waits_s: the longest wait for a job that may go on with the next server.
        """
        self.app = app
        self.waits_s = waits_s
        self._successor: asyncio.Future[ASGIApp | None] = asyncio.get_running_loop().create_future()

    def release(self, successor: ASGIApp | None) -> None:
        """Let the successor answer the requests; None: the application of this process."""
        if not self._successor.done():
            self._successor.set_result(successor)

    async def wait(self, scope: Scope) -> ASGIApp | None:
        """Return the successor or None, as in `release`; raise Unavailable if it takes long."""
        if not self._successor.done():
            scope[_IS_HELD] = True
            await asyncio.wait((self._successor,), timeout=HELD_S)
            del scope[_IS_HELD]
        if not self._successor.done():
            raise Unavailable("the server is being replaced; try again in a second")
        return self._successor.result()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = await self.wait(scope) or self.app
        except SchedoError as error:
            await send_response(send, problem_response(error, "none"), "none")
        else:
            await app(scope, receive, send)


class Moved(Exception):
    """A wait is cut short: it goes on with the server that answers next, as another request."""

    def __init__(self, holding: Holding, target: str) -> None:
        """target: path and query of the request."""
        super().__init__(target)
        self._holding = holding
        self._target = target
        self.headers: Sequence[tuple[bytes, bytes]] = ()  # which the response has as well

    async def follow(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response to the other request."""
        app = await self._holding.wait(scope) or self._holding.app
        path, _, query = self._target.partition("?")
        headers = [pair for pair in scope["headers"] if pair[0] not in _OF_A_BODY]
        again = {**scope, "method": "GET", "path": path, "raw_path": path.encode()}
        again |= {"query_string": query.encode(), "headers": headers}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self.headers]}
            await send(message)

        await app(again, replay(b"", receive), send_with_headers)


def is_held(scope: Scope) -> bool:
    """Whether the request waits: no application acts on it."""
    return _IS_HELD in scope


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body that has been read."""
    parts = [body]

    async def receive_again() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        return await receive()

    return receive_again
