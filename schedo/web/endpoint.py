"""Turns an ASGI call into a call of a handler: method, media type, body limit, query."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.types import Message, Receive, Scope, Send

from schedo.core.limits import BODY_BYTES_UNCOUNTED
from schedo.errors import BadRequest, MethodNotAllowed, Overloaded, TooLarge, UnsupportedMedia
from schedo.protocol.operation import LINES_TYPE, Operation
from schedo.protocol.query import parse_query
from schedo.protocol.schedules import EmptyRequest
from schedo.web.auth import ClientGone
from schedo.web.body_limiter import BodySlot
from schedo.web.context import AppContext, Handler
from schedo.web.cycle import UNREAD_BYTES_MAX
from schedo.web.http import JSON_TYPE, Request, send_answer

_PLAIN_ENCODINGS = frozenset({b"", b"identity"})
_UTF8 = frozenset({"", "charset=utf-8", 'charset="utf-8"'})
_NO_BODY = b"{}"  # an empty body, if no field is required


class Endpoint:
    """All methods of one path, as an ASGI application."""

    def __init__(
        self, context: AppContext, methods: Mapping[str, tuple[Operation, Handler]]
    ) -> None:
        self._context = context
        self._methods = methods
        names = set(methods) | ({"HEAD"} if "GET" in methods else set())
        self._allow = ", ".join(sorted(names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        found = self._methods.get("GET" if method == "HEAD" else method)
        if found is None:
            raise MethodNotAllowed(
                f"{scope['path'][:100]!a} takes {self._allow}, not {method[:20]!a}", self._allow
            )
        operation, handle = found
        if scope.get("schedo.is_surplus") and _may_wait(operation, scope):
            raise Overloaded(
                "the server has too many connections for a request that waits; retry soon"
            )
        headers: dict[bytes, bytes] = scope["schedo.headers"]
        if operation.request is None:
            _check_no_body(headers)
            await self._perform(scope, receive, send, operation, handle)
            return
        media_type = _read_media_type(headers, operation)
        length = _read_length(headers, operation)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False) and len(body) <= BODY_BYTES_UNCOUNTED:
            await self._perform(scope, receive, send, operation, handle, body, media_type)
            return
        size = length or (operation.body_bytes_max if message.get("more_body") else len(body))
        async with self._context.intake.place(size) as place:
            scope["schedo.leave"] = place.leave
            body = await _read_body(body, message, receive, operation, place)
            await asyncio.sleep(0)  # joining a large body took some milliseconds
            await self._perform(scope, receive, send, operation, handle, body, media_type)

    async def _perform(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        operation: Operation,
        handle: Handler,
        body: bytes = b"",
        media_type: str = "",
    ) -> None:
        """Call the handler and send its response."""
        if not body and operation.request is not None and operation.body_is_optional:
            body = _NO_BODY

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        request = Request(
            operation.name,
            scope["path"],
            scope["path_params"],
            scope["schedo.headers"],
            parse_query(scope["query_string"], operation.query),
            body,
            scope["schedo.request_id"],
            scope.get("schedo.client_id", ""),
            gone,
            media_type == LINES_TYPE,
            scope.get("schedo.grant"),
            scope.pop("schedo.leave", _leave_nothing),
        )
        if operation.request is EmptyRequest:  # its handler does not read the body
            await request.read(EmptyRequest)
        request_id = request.id
        carrying_out = handle(self._context, request)
        del request, body  # the handler may wait for long; frees the body
        await send_answer(send, await carrying_out, request_id)


def _may_wait(operation: Operation, scope: Scope) -> bool:
    """Return whether the response may come much later."""
    return operation.may_wait or b"wait=" in scope["query_string"]


def _leave_nothing() -> None:
    """Release nothing: a small body has no share of a budget."""


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


async def _read_body(
    body: bytes, message: Message, receive: Receive, operation: Operation, place: BodySlot
) -> bytes:
    """Return the whole body; stop reading beyond the limit."""
    bytes_max = operation.body_bytes_max
    parts, size = [body], len(body)
    async with place.receiving():
        while message.get("more_body", False) and size <= bytes_max:
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            place.note(len(parts[-1]))
    if message["type"] == "http.disconnect":
        raise ClientGone
    if size > bytes_max:
        raise _too_large(bytes_max)
    return body if len(parts) == 1 else b"".join(parts)


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"the body is larger than {bytes_max} bytes")
