"""Requests that wait while the store passes from this process to a new one.

For some milliseconds no server can answer. The connections stay open meanwhile, and their requests
wait here. Then this process goes on, or each request is forwarded to the new server, whether its
body has been read or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schedo.core.ids import render_id
from schedo.errors import SchedoError, StoreError, Unavailable
from schedo.web.http import Header, Response, problem_response, send_response

# Then a request is refused. A new process that hangs has 5 s to become active (server/upgrade.py);
# then this process opens its store again, and no client has noticed.
HELD_S = 7.0
_HELD_BY = "schedo.held_by"  # the holdings that a request waits for
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
            # A wait for a job may go on with a copy of its scope, which shares the set.
            held_by = scope.setdefault(_HELD_BY, set())
            held_by.add(self)
            await asyncio.wait((self._successor,), timeout=HELD_S)
            held_by.discard(self)
        if not self._successor.done():
            raise Unavailable("the server is being replaced; try again soon")
        return self._successor.result()

    def move_wait(self, jobs: Sequence[int], left_s: float, respond: Respond) -> None:
        """Raise Moved, unless the time of the wait, or that of this process, is up."""
        left_s = min(left_s, self.waits_s)
        if left_s > 0:
            raise Moved(self, jobs, asyncio.get_running_loop().time() + left_s, respond)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = await self.wait(scope) or self.app
        except SchedoError as error:
            await send_response(send, problem_response(error, "none"), "none")
        else:
            await app(scope, receive, send)


class Found(NamedTuple):
    """What the next server responds to a wait for a job: the job as JSON, or a problem."""

    status: int
    body: bytes
    content_type: bytes


Respond = Callable[[Sequence[Found]], Response]


class NothingChanged(StoreError):
    """A request that has changed nothing yet could not read the store.

    While the store passes to another process, the server that goes on responds to the request.
    """

    def __init__(self, cause: StoreError, body: bytes) -> None:
        """cause: its code and status are those of the response if the store does not pass."""
        super().__init__(str(cause))
        self.code, self.status = cause.code, cause.status
        self.body = body


@contextmanager
def before_changes(body: bytes) -> Iterator[None]:
    """Raise NothingChanged for what a request with this body reads before it changes anything."""
    try:
        yield
    except StoreError as error:
        raise NothingChanged(error, body) from error


class Moved(Exception):
    """A wait for jobs is cut short: it goes on with the server that answers next."""

    def __init__(
        self, holding: Holding, jobs: Sequence[int], until: float, respond: Respond
    ) -> None:
        """until: when the wait ends, by the clock of the loop.

        respond: makes the response from the jobs, in their order, which have ended or not.
        """
        super().__init__(jobs)
        self._holding = holding
        self._jobs = jobs
        self._until = until
        self._respond = respond
        self.headers: tuple[Header, ...] = ()  # which the response has as well

    async def follow(self, scope: Scope, receive: Receive) -> Response:
        """Wait for the jobs one after the other; return the response, or the first problem."""
        app = await self._holding.wait(scope) or self._holding.app
        loop = asyncio.get_running_loop()
        found = []
        for job in self._jobs:
            left_s = max(0.0, self._until - loop.time())
            query = f"timeout={left_s:.6f}"
            got = await _get(app, scope, receive, f"/v1/jobs/{render_id(job)}/wait", query)
            if got.status >= HTTPStatus.BAD_REQUEST:
                return Response(got.status, got.body, content_type=got.content_type)
            found.append(got)
        response = self._respond(found)
        return response.with_headers(*self.headers)


async def _get(app: ASGIApp, scope: Scope, receive: Receive, path: str, query: str) -> Found:
    """Send a request with the same rights as that of the scope, and return the response."""
    headers = [pair for pair in scope["headers"] if pair[0] not in _OF_A_BODY]
    again = {**scope, "method": "GET", "path": path, "raw_path": path.encode()}
    again |= {"query_string": query.encode(), "headers": headers}
    status, content_type, parts = 0, b"", []

    async def note(message: Message) -> None:
        nonlocal status, content_type
        if message["type"] == "http.response.start":
            status = message["status"]
            content_type = dict(message["headers"]).get(b"content-type", b"")
        else:
            parts.append(message.get("body", b""))

    await app(again, replay(b"", receive), note)
    return Found(status, b"".join(parts), content_type)


def is_held(scope: Scope) -> bool:
    """Whether the request waits: no application acts on it."""
    return bool(scope.get(_HELD_BY))


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body that has been read."""
    parts = [body]

    async def receive_again() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        return await receive()

    return receive_again
