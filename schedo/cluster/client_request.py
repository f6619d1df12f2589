"""One request that a client has sent to this server, and what others respond to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, replace

from starlette.types import Scope

from schedo.client.messages import HttpResponse
from schedo.cluster.hops import Hop, Purpose, find_target
from schedo.cluster.peers import SAFE_METHODS, ChangeLost, Peers
from schedo.core.limits import SECOND
from schedo.errors import Unavailable
from schedo.protocol.operation import Operation
from schedo.protocol.query import WAIT_US_MAX
from schedo.store.cluster import Member
from schedo.web.auth import ClientGone
from schedo.web.context import AppContext, Handler
from schedo.web.credentials import find_address
from schedo.web.http import JSON_TYPE, Request, Response, problem_response
from schedo.web.idempotency import HEADER

CLIENT_HOST = b"schedo-host"  # the Host of the client's request: a session is good for it
NOT_OWNER = b"schedo-not-owner"  # a header of a response: the shard has another owner
# These belong to one connection, or to the first server, which has checked who the client is.
_NOT_SENT = frozenset(
    b"""
    host schedo-host connection keep-alive transfer-encoding expect upgrade te content-length
    authorization cookie schedo-hop schedo-client
    """.split()
)
# These are made anew for the response of the first server.
_MADE_ANEW = """
    connection keep-alive transfer-encoding content-length content-type date x-request-id
    content-security-policy x-content-type-options referrer-policy cache-control
    """
_NOT_RETURNED = frozenset(_MADE_ANEW.split())
_WAITS = (b"wait=", b"timeout=")


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request, its handler here, and the way to the other servers."""

    context: AppContext
    peers: Peers
    scope: Scope
    operation: Operation
    handle: Handler
    request: Request

    @property
    def hop(self) -> Hop | None:
        """Who sent it, if that is another server."""
        found: Hop | None = self.scope.get("schedo.hop")
        return found

    @property
    def is_confirmation(self) -> bool:
        """Whether another server carries it out for all, and this one does its part."""
        return self.hop is not None and self.hop.purpose == "confirm"

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent again although it may have been carried out."""
        if self.scope["method"] in SAFE_METHODS:
            return True
        return self.operation.takes_key and self.request.find_header(HEADER) is not None

    def with_home_shards(self, shards: Collection[int]) -> ClientRequest:
        """Return the request as one that only the owner of all these shards may carry out."""
        return replace(self, request=self.request._replace(home_shards=shards))

    def without_header(self, name: bytes) -> ClientRequest:
        """Return the request as if the client had not sent the header."""
        if name not in self.request.headers:
            return self
        headers = {each: value for each, value in self.request.headers.items() if each != name}
        return replace(self, request=self.request._replace(headers=headers))

    async def here(self) -> Response:
        """Carry the request out in this server."""
        return await self.handle(self.context, self.request)

    async def forward(self, member: Member, home_shard: int | None = None) -> Response:
        """Return the response of another server.

        home_shard: which must belong to it; None: any may.
        Raise PeerUnreachable or ChangeLost, or ClientGone if the client leaves meanwhile.
        """
        sending = self.send(member, "forward", home_shard)
        if not self._held_s:
            return to_response(await sending)
        found = await self.context.run_until_disconnect(
            sending, self.request.gone, ends_with_drain=False
        )
        if found is not None:
            return to_response(found)
        if not self.context.is_stopping:
            raise ClientGone
        raise ChangeLost("the server is shutting down; another one carries the request out")

    async def send(
        self, member: Member, purpose: Purpose, home_shard: int | None = None
    ) -> HttpResponse:
        """Send the request to another server; raise PeerUnreachable or ChangeLost."""
        hop = self._make_hop(purpose, home_shard)
        return await self.peers.send(
            member, hop, self.request.body, self._make_headers(), self._held_s
        )

    def stream(self, member: Member) -> AsyncGenerator[bytes, None]:
        """Send the request to another server, and yield the body of its response as it comes."""
        return self.peers.stream(member, self._make_hop("forward"))

    def _make_hop(self, purpose: Purpose, home_shard: int | None = None) -> Hop:
        request = self.request
        return Hop(
            purpose,
            self.context.engine.clock.now(),
            "GET" if self.scope["method"] == "HEAD" else self.scope["method"],
            find_target(self.scope),
            request.client_id,
            request.id,
            find_address(request.transport),
            request.permission,
            home_shard,
        )

    def _make_headers(self) -> dict[str, str]:
        request = self.request
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.headers.items()
            if name not in _NOT_SENT
        }
        host = request.find_header(b"host")
        if host is not None:
            headers[CLIENT_HOST.decode()] = host
        if request.body and not request.is_lines:
            headers["content-type"] = JSON_TYPE.decode()  # the client may have sent no body at all
        return headers

    @property
    def _held_s(self) -> float:
        """How long another server may hold the request, at the longest."""
        query = self.scope["query_string"]
        if self.request.is_part:
            return 0.0
        may_wait = self.operation.may_wait or any(name in query for name in _WAITS)
        return WAIT_US_MAX / SECOND if may_wait else 0.0


async def read_whole(response: Response) -> Response:
    """Return the response with its body in one piece."""
    if response.pieces is None:
        return response
    body = b"".join([bytes(piece) async for piece in response.pieces])
    return response._replace(body=body, pieces=None)


def to_response(found: HttpResponse) -> Response:
    """Return the response of another server as one of this server."""
    headers = tuple(
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in found.headers.items()
        if name not in _NOT_RETURNED
    )
    content_type = found.headers.get("content-type", "").encode("latin-1") or JSON_TYPE
    return Response(found.status, found.body, headers, content_type)


def refuse(request: Request) -> Response:
    """Return the response to another server that believes that this one is the owner."""
    moved = Unavailable("this server does not own the shard")
    return problem_response(moved, request.id).with_headers((NOT_OWNER, b"1"))
