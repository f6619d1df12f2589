"""Sends requests to the other servers of a cluster, over connections that are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from http import HTTPStatus
from types import MappingProxyType

from schedo.client.async_transport import AsyncTransport, Streams, open_streams
from schedo.client.errors import Unreachable
from schedo.client.messages import Address, HttpResponse, Operation, parse_address
from schedo.client.tls import client_context
from schedo.cluster.hops import NOT_SIGNED, Hop, Signer
from schedo.engine.effects import note_effect
from schedo.errors import PeerUnreachable, SchedoError, StoreError, Unauthorized
from schedo.protocol.problems import PROBLEM_TYPE
from schedo.store.cluster import Cluster, Member

CONNECT_S = 1.0
RESPONSE_S = 10.0  # beyond the time for which the server may hold the request
SILENCE_S = 30.0  # of a stream, which brings a comment every 15 s
SAFE_METHODS = frozenset({"GET", "HEAD"})
_AGENT = "schedo-server"
_ALL_ERRORS = frozenset(range(400, 600))
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class ReadLost(PeerUnreachable):
    """A server has got a read, and has ended before its response came."""


class ChangeLost(StoreError):
    """A server has got a change, and has ended before its response came."""


class Stranger(PeerUnreachable):
    """What responds at the URL of a server is no server of this cluster."""


class Peers:
    """The connections to the other servers."""

    def __init__(self, signer: Signer, cluster: Cluster) -> None:
        self._signer, self._cluster = signer, cluster
        self._by_url: dict[str, AsyncTransport] = {}
        self._is_closed = False
        self._waits: dict[asyncio.Timeout, Member] = {}  # of requests, for their responses

    async def send(
        self,
        member: Member,
        hop: Hop,
        body: bytes = b"",
        headers: Mapping[str, str] = _NO_HEADERS,
        held_s: float = 0.0,
    ) -> HttpResponse:
        """Return what a server responds to a request, whatever the status is.

        held_s: how long the server may hold the request. Raise PeerUnreachable if the request has
        certainly had no effect, and ChangeLost if that is unknown. A stopped server accepts
        requests and responds to none, so the wait ends when other servers have its shards.
        """
        operation = Operation(
            hop.method,
            hop.target,
            _whole,
            body,
            {**headers, **self._signer.sign(hop)},
            is_repeatable=hop.method in SAFE_METHODS or hop.purpose == "work",
            held_s=held_s,
            handled_statuses=_ALL_ERRORS,
        )
        if self._cluster.has_lost(member):
            raise PeerUnreachable(f"the server {member.name} is gone")
        if hop.method not in SAFE_METHODS:
            note_effect()
        wait = asyncio.timeout(None)
        self._waits[wait] = member
        try:
            async with wait:
                response = await self._find(member).send(operation)
        except (Unreachable, TimeoutError) as error:
            if operation.is_repeatable:
                raise ReadLost(f"the server {member.name} did not respond") from error
            raise ChangeLost(
                f"the server {member.name} has received the request, but did not respond; it may"
                " or may not have been carried out"
            ) from error
        finally:
            del self._waits[wait]
        if _is_foreign(response):
            raise _refuse(response, member, operation)
        return response

    def end_waits(self) -> None:
        """Wait no more for the responses of servers that others have replaced."""
        for wait, member in self._waits.items():
            if self._cluster.has_lost(member) and not wait.expired():
                wait.reschedule(0.0)

    def stream(self, member: Member, hop: Hop) -> AsyncGenerator[bytes, None]:
        """Yield the body of a response as it comes; raise SchedoError if it breaks."""
        operation = Operation(
            hop.method, hop.target, _whole, headers=self._signer.sign(hop), held_s=SILENCE_S
        )
        return self._find(member).stream(operation)

    async def keep_only(self, urls: Collection[str]) -> None:
        """Close the connections to the servers at all other URLs."""
        for url in self._by_url.keys() - urls:
            await self._by_url.pop(url).close()

    async def close(self) -> None:
        """Close all connections, and open none any more."""
        self._is_closed = True
        await self.keep_only(())

    def _find(self, member: Member) -> AsyncTransport:
        if self._is_closed:
            raise PeerUnreachable("this server stops")
        found = self._by_url.get(member.url)
        if found is None:
            address = parse_address(member.url, None, _AGENT)
            found = AsyncTransport(address, RESPONSE_S, _Connector(member.name, address))
            self._by_url[member.url] = found
        return found


def _whole(response: HttpResponse) -> HttpResponse:
    return response


def _is_foreign(response: HttpResponse) -> bool:
    """Return whether no server of this cluster has sent the response.

    Each gives an id to its responses, but so do many proxies. Its errors are problem documents.
    """
    if response.status == Unauthorized.status and NOT_SIGNED.encode() in response.body:
        return True  # a server of another cluster, which has another secret
    if response.status >= HTTPStatus.BAD_REQUEST:
        return response.headers.get("content-type", "").encode() != PROBLEM_TYPE
    return "x-request-id" not in response.headers


def _refuse(
    response: HttpResponse, member: Member, operation: Operation[HttpResponse]
) -> SchedoError:
    """Return the error of a response that is not the server's, and not for its client."""
    why = (
        f"what responds at {member.url} is not the server {member.name}, but another program or a"
        f" server of another cluster (with the status {response.status}); `advertise`"
        " of that server is to be its own URL"
    )
    # A proxy before the server says with these that it has no response of it.
    if response.status < 500 or operation.is_repeatable:
        return Stranger(why)
    return ChangeLost(f"{why}; the change may or may not have been carried out")


class _Connector:
    """Opens connections to one server."""

    def __init__(self, name: str, address: Address) -> None:
        self._name = name
        self._address = address

    async def __call__(self) -> Streams:
        """Return a connection; raise PeerUnreachable if there is none in time."""
        address = self._address
        tls = client_context(address.ca_cert) if address.is_tls else None
        try:
            async with asyncio.timeout(CONNECT_S):
                if address.socket_path is not None:
                    return await asyncio.open_unix_connection(address.socket_path)
                return await open_streams(address.host, address.port, tls)
        except OSError as error:
            why = error.strerror or str(error) or "it accepts no connection"
            raise PeerUnreachable(
                f"the server {self._name} cannot be reached at {address.url}: {why}"
            ) from error
