"""The request and response types of the handlers.

Smaller than Starlette's classes: a handler gets the whole body and responds in one piece.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlencode

from msgspec import Struct
from starlette.types import Scope, Send

from schedo.core.limits import SMALL_BODY_BYTES_MAX
from schedo.engine.sharing import jobs_in_steps
from schedo.errors import BadRequest, SchedoError
from schedo.protocol.decode import decode_request
from schedo.protocol.problems import PROBLEM_TYPE, problem_headers, render_problem
from schedo.protocol.query import Values
from schedo.protocol.reading import read_request
from schedo.web.bytes_in_flight import SENDING, Claim
from schedo.web.permissions import TokenPermission

JSON_TYPE = b"application/json"
SECURITY_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
Header = tuple[bytes, bytes]
PIECE_BYTES = 65_536  # of a large response
T = TypeVar("T", bound=Struct)
BODILESS = (204, 304)


def _ignore(_: Any) -> None:
    """Use no value."""


class Request(NamedTuple):
    """One request with its whole body and its checked query."""

    operation: str
    path: str
    params: Mapping[str, str]  # the path parameters
    headers: Mapping[bytes, bytes]
    query: Values
    body: bytes
    id: str
    client_id: str  # identifies the token
    gone: Callable[[], Awaitable[None]]  # waits until the client has disconnected
    claim: Claim  # the bytes in flight that it holds
    is_lines: bool = False  # the body is newline-delimited JSON
    permission: TokenPermission | None = None  # None: the operation needs no token, nor has one
    transport: object = None
    root: str = ""  # the prefix of the addresses for browsers
    confirms: bool = False  # another server has carried it out, and this one follows
    is_part: bool = False  # a server has divided the request of a worker, and this is a part of it
    sent_at: int | None = None  # when that server sent the part; None: no other server has
    home_shards: Collection[int] = ()  # in a cluster, the shards whose owner must carry it out

    def find_header(self, name: bytes) -> str | None:
        """Return a header as text, or None."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def read(self, kind: type[T], see: Callable[[Any], None] = _ignore) -> T:
        """Return the decoded body; raise BadJson or Invalid.

        `see` gets the body's value, or the SHA-256 of a large body.
        """
        if len(self.body) <= SMALL_BODY_BYTES_MAX:
            return decode_request(self.body, kind, see)
        return await jobs_in_steps(read_request(self.body, kind, see))

    def check_job(self, queue: str, task: str) -> None:
        """Raise Forbidden unless the token covers the task's jobs of the queue."""
        if self.permission is not None:
            self.permission.check_job(queue, task)

    @property
    def may_replace(self) -> Callable[[str, str], bool] | None:
        """Whether the token covers the jobs of a queue and a task; None: it covers any."""
        permission = self.permission
        return permission.allows if permission is not None and permission.is_restricted else None

    def next_link(self, cursor: str) -> Header:
        """Return the Link header of the next page."""
        pairs = {**self.query, "cursor": cursor}
        return b"link", f'<{self.root}{self.path}?{urlencode(pairs)}>; rel="next"'.encode()

    def location(self, path: str) -> Header:
        """Return the Location header of what is at this path."""
        return b"location", (self.root + path).encode()


class Pieces(Protocol):
    """The parts of a body, such as an asynchronous generator; it is closed in any case."""

    def __aiter__(self) -> AsyncIterator[bytes | memoryview]: ...

    def aclose(self) -> Awaitable[None]: ...


class Response(NamedTuple):
    """A whole response."""

    status: int
    body: bytes
    headers: tuple[Header, ...] = ()
    content_type: bytes = JSON_TYPE
    pieces: Pieces | None = None  # a body that is never in memory as a whole
    shared: Sequence[Header] = SECURITY_HEADERS  # what all responses of the API have

    def with_headers(self, *headers: Header) -> Response:
        """Return the same response with more headers."""
        return self._replace(headers=self.headers + headers)


def problem_response(error: SchedoError, request_id: str) -> Response:
    """Return the problem document for an error."""
    headers = tuple(problem_headers(error))
    return Response(error.status, render_problem(error, request_id), headers, PROBLEM_TYPE)


async def send_response(
    send: Send, response: Response, request_id: str, claim: Claim | None = None
) -> None:
    """Send the response with the headers that it shares with others.

    A large one is sent piece by piece; raise TooSlow if others wait for its claimed bytes.
    """
    headers = [(b"x-request-id", request_id.encode()), *response.shared, *response.headers]
    if response.status not in BODILESS:
        headers.append((b"content-type", response.content_type))
        if response.pieces is None:
            headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    last = response.body
    if claim is not None and (response.pieces is not None or len(last) > PIECE_BYTES):
        last = b""
        async with aclosing(response.pieces or _cut(response.body)) as pieces:
            async for piece in pieces:
                async with claim.moving(SENDING):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": last})


async def _cut(body: bytes) -> AsyncGenerator[memoryview, None]:
    """Yield the body in pieces, without copies of them."""
    view = memoryview(body)
    for at in range(0, len(body), PIECE_BYTES):
        yield view[at : at + PIECE_BYTES]


def index_headers(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers by name; raise BadRequest if one that decides something occurs twice."""
    pairs: list[Header] = scope["headers"]
    headers = dict(pairs)
    if len(headers) != len(pairs):
        names = [name for name, _ in pairs]
        for name in _ONCE:
            if names.count(name) > 1:
                raise BadRequest(f"the header {name.decode()} occurs twice")
    return headers


_ONCE = (
    b"host",
    b"authorization",
    b"cookie",
    b"content-type",
    b"content-length",
    b"content-encoding",
    b"origin",
    b"idempotency-key",
)
