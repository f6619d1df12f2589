"""Turns an ASGI call into a call of a handler: method, media type, body limit, query."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from functools import partial

from starlette.types import Message, Receive, Scope, Send

from schedo.core.limits import SMALL_BODY_BYTES_MAX
from schedo.errors import (
    BadRequest,
    MethodNotAllowed,
    Overloaded,
    StoreError,
    TooLarge,
    UnsupportedMedia,
)
from schedo.protocol.operation import LINES_TYPE, Operation
from schedo.protocol.query import parse_query
from schedo.protocol.schedules import EmptyRequest
from schedo.web.auth import ClientGone
from schedo.web.bytes_in_flight import RECEIVING, Claim, TooSlow
from schedo.web.context import AppContext, Handler
from schedo.web.cycle import UNREAD_BYTES_MAX
from schedo.web.holding import Moved, NothingChanged, replay
from schedo.web.http import JSON_TYPE, Request, Response, send_response
from schedo.web.permissions import TokenPermission

_PLAIN_ENCODINGS = frozenset({b"", b"identity"})
_READS = frozenset({"GET", "HEAD"})
_UTF8 = frozenset({"", "charset=utf-8", 'charset="utf-8"'})
_NO_BODY = b"{}"  # an empty body, if no field is required
_CHUNKED_BYTES = 65_536  # the first claim of a body of unknown length


class Endpoint:
    """All methods of one path, as an ASGI application."""

    def __init__(
        self, context: AppContext, methods: Mapping[str, tuple[Operation, Handler]]
    ) -> None:
        self._context = context
        self._methods = methods
        has_head = "GET" in methods and not methods["GET"][0].is_stream
        names = set(methods) | ({"HEAD"} if has_head else set())
        self._allow = ", ".join(sorted(names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation, handle = self._find(scope)
        # gRPC has received the body already, and claimed its bytes for that.
        claim = scope.get("schedo.claim") or Claim(self._context.in_flight)
        try:
            body, media_type = b"", ""
            if operation.request is None:
                _check_no_body(scope["schedo.headers"])
            else:
                media_type = _read_media_type(scope["schedo.headers"], operation)
                body = await _read_body(scope, receive, operation, claim)
            holding = self._context.holding
            if holding is not None and (successor := await holding.wait(scope)) is not None:
                await successor(scope, replay(body, receive), send)
                return
            request = _make_request(scope, receive, operation, body, media_type, claim)
            if operation.request is EmptyRequest:  # its handler does not read the body
                await request.read(EmptyRequest)
                request = request._replace(body=b"")
            responding = self._respond(scope, operation, handle, request)
            del request, body  # the handler may wait for long; it frees the body
            response = await self._wait(responding, scope, receive, send, claim)
            if response is not None:
                await send_response(send, response, scope["schedo.request_id"], claim)
        except TooSlow:
            raise ClientGone from None
        finally:
            if claim.size:
                claim.release()

    async def _wait(
        self,
        responding: Awaitable[Response],
        scope: Scope,
        receive: Receive,
        send: Send,
        claim: Claim,
    ) -> Response | None:
        """Return the response, whose last part may come from the next server.

        None: it is sent. While the store passes to another process, a request that reads it finds
        it closed; the server that goes on responds to those that have changed nothing.
        """
        try:
            return await responding
        except Moved as moved:
            return await moved.follow(scope, receive)
        except StoreError as error:
            body = error.body if isinstance(error, NothingChanged) else b""
            holding = self._context.holding
            if holding is None or not (body or scope["method"] in _READS):
                raise
            claim.release()  # the request makes another one when it begins anew
            app = await holding.wait(scope) or holding.app
            await app(scope, replay(body, receive), send)
            return None

    def _respond(
        self, scope: Scope, operation: Operation, handle: Handler, request: Request
    ) -> Awaitable[Response]:
        """Begin the response, which other servers of a cluster may make."""
        context = self._context
        if context.cluster is None:
            return _begin(handle, context, request)
        return context.cluster.respond(scope, operation, partial(_begin, handle), request)

    def _find(self, scope: Scope) -> tuple[Operation, Handler]:
        """Return the operation and its handler, if the request may have it."""
        method: str = scope["method"]
        found = self._methods.get("GET" if method == "HEAD" else method)
        if found is None or (method == "HEAD" and found[0].is_stream):
            raise MethodNotAllowed(
                f"{scope['path'][:100]!a} takes {self._allow}, not {method[:20]!a}", self._allow
            )
        operation, _ = found
        permission: TokenPermission | None = scope.get("schedo.permission")
        if permission is not None:
            permission.check_operation(operation)
        if scope.get("schedo.is_surplus") and _may_wait(operation, scope):
            raise Overloaded(
                "the server has too many connections for a request that waits; retry soon"
            )
        return found


def _make_request(
    scope: Scope,
    receive: Receive,
    operation: Operation,
    body: bytes,
    media_type: str,
    claim: Claim,
) -> Request:
    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return Request(
        operation.name,
        scope["path"],
        scope["path_params"],
        scope["schedo.headers"],
        parse_query(scope["query_string"], operation.query),
        body,
        scope["schedo.request_id"],
        scope.get("schedo.client_id", ""),
        gone,
        claim,
        media_type == LINES_TYPE,
        scope.get("schedo.permission"),
        scope.get("schedo.transport"),
        scope["root_path"],
        scope.get("schedo.confirms", False),
        scope.get("schedo.is_part", False),
        scope.get("schedo.sent_at"),
    )


def _begin(handle: Handler, context: AppContext, request: Request) -> Awaitable[Response]:
    if request.permission is not None and request.permission.hides_payloads:
        return _begin_without_payloads(handle, context, request)
    return handle(context, request)


async def _begin_without_payloads(
    handle: Handler, context: AppContext, request: Request
) -> Response:
    from schedo.web import hidden_payloads  # few servers need it

    hidden_payloads.check_query(request.query)
    return await hidden_payloads.without_payloads(await handle(context, request))


def _may_wait(operation: Operation, scope: Scope) -> bool:
    """Return whether the response may come much later."""
    return operation.may_wait or b"wait=" in scope["query_string"]


def _read_media_type(headers: Mapping[bytes, bytes], operation: Operation) -> str:
    """Return the body's media type; refuse an unsupported or compressed one."""
    if headers.get(b"content-type") == JSON_TYPE and b"content-encoding" not in headers:
        return operation.media_types[0]  # the common case
    if headers.get(b"content-encoding", b"").lower() not in _PLAIN_ENCODINGS:
        raise UnsupportedMedia("compressed bodies are not accepted; send the JSON as it is")
    value = headers.get(b"content-type", b"").decode("latin-1").lower()
    media_type, _, parameters = value.partition(";")
    media_type = media_type.strip()
    if not value and not _has_body(headers) and operation.body_is_optional:
        return media_type
    if media_type in operation.media_types and parameters.strip() in _UTF8:
        return media_type
    wanted = " or ".join(operation.media_types)
    raise UnsupportedMedia(f"send the body with content-type: {wanted}, not {value[:60]!a}")


def _has_body(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def _check_no_body(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a large body for an operation that reads none."""
    length = headers.get(b"content-length", b"0")
    if len(length) > 6 or int(length) > UNREAD_BYTES_MAX:
        raise TooLarge("this operation takes no body")


def _read_length(headers: Mapping[bytes, bytes], operation: Operation) -> int:
    """Return the Content-Length; 0 without one."""
    bytes_max = operation.body_bytes_max
    length = headers.get(b"content-length", b"0")
    if not length.isdigit():
        raise BadRequest("the Content-Length header is not a number")
    if len(length) > 18 or int(length) > bytes_max:
        raise _too_large(bytes_max)
    return int(length)


async def _read_body(scope: Scope, receive: Receive, operation: Operation, claim: Claim) -> bytes:
    """Return the whole body, with a claim if it is large; stop reading beyond the limit."""
    headers: dict[bytes, bytes] = scope["schedo.headers"]
    bytes_max = operation.body_bytes_max
    length = _read_length(headers, operation)
    if length > SMALL_BODY_BYTES_MAX:
        await claim.take(length, is_body=True)
    elif b"transfer-encoding" in headers:
        await claim.take(_CHUNKED_BYTES, is_body=True)  # most of them are small
    body = _Body()
    if not claim.size:
        while body.has_more and body.size <= bytes_max:
            body.add(await receive())
    else:
        await _receive_large(body, receive, claim, bytes_max)
    if body.size > bytes_max:
        raise _too_large(bytes_max)
    if not body.size and operation.body_is_optional:
        return _NO_BODY
    if len(body.parts) == 1:
        return body.parts[0]
    whole = b"".join(body.parts)
    await asyncio.sleep(0)  # joining a large body took some milliseconds
    return whole


async def _receive_large(body: _Body, receive: Receive, claim: Claim, bytes_max: int) -> None:
    """Receive the body within the claim; extend the claim if the body is longer."""
    await _receive(body, receive, claim, claim.size)
    if body.has_more and body.size < bytes_max:
        await claim.take(bytes_max, is_body=True)
        await _receive(body, receive, claim, bytes_max)


async def _receive(body: _Body, receive: Receive, claim: Claim, bytes_max: int) -> None:
    """Receive the body up to its end, or until it is larger than this."""
    try:
        async with claim.moving(RECEIVING):
            while body.has_more and body.size <= bytes_max:
                claim.note(body.add(await receive()))
    except TooSlow:
        raise Overloaded("this body is too slow while others wait for its memory") from None


class _Body:
    """The received parts of a body."""

    __slots__ = ("has_more", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.has_more = True

    def add(self, message: Message) -> int:
        """Add what an ASGI message brings and return its size; raise ClientGone."""
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        self.parts.append(part)
        self.size += len(part)
        self.has_more = message.get("more_body", False)
        return len(part)


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"the body is larger than {bytes_max} bytes")
