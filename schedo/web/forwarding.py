"""Answers the requests on the connections of the old process: the new server responds to them.

An open connection cannot move to another process. So the old process passes each request on as it
came, with the client's own token, and the response back, with `Connection: close`: the next
connection of the client reaches the new server itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import httptools
from starlette.types import Receive, Scope, Send

from schedo.client.async_transport import Connect, Streams
from schedo.errors import Unavailable
from schedo.web.auth import ClientGone
from schedo.web.http import problem_response, send_response

CONNECT_S = 5.0  # until a server that has died is replaced as well
_RETRY_S = 0.02
_READ_BYTES = 65_536
# They belong to one connection. The date is added to every response of this process.
_NOT_FORWARDED = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"expect", b"upgrade", b"te", b"date")
)

log = logging.getLogger("schedo.web")


class _Response:
    """Collects a response; httptools calls the on_ methods."""

    def __init__(self, *, has_body: bool) -> None:
        self._has_body = has_body
        self._parser = httptools.HttpResponseParser(self)
        self.headers: list[tuple[bytes, bytes]] = []
        self.status = 0
        self.parts: list[bytes] = []
        self.is_complete = False

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in _NOT_FORWARDED:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.is_complete = not self._has_body

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = True


class Forwarder:
    """An ASGI application whose responses are those of another server."""

    def __init__(self, connect: Connect) -> None:
        """connect: opens a connection to the server, which checks the tokens of the requests."""
        self._connect = connect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reader, writer = await self._open()
        except Unavailable as error:
            await send_response(send, problem_response(error, "none"), "none")
            return
        sending = asyncio.create_task(_send_request(scope, receive, writer))
        responding = asyncio.create_task(_respond(scope, reader, send))
        try:
            await asyncio.wait((sending, responding), return_when=asyncio.FIRST_COMPLETED)
            if responding.done():
                responding.result()
        except (OSError, httptools.HttpParserError, EOFError) as error:
            # As if this process had died: the client cannot know whether it was carried out.
            log.warning("the new server broke a connection before its response: %s", error)
            scope["schedo.transport"].abort()
        except ClientGone:
            log.debug("a forwarded request: the client went away")
        finally:
            for task in (sending, responding):
                task.cancel()
            await asyncio.gather(sending, responding, return_exceptions=True)
            writer.close()

    async def _open(self) -> Streams:
        loop = asyncio.get_running_loop()
        until = loop.time() + CONNECT_S
        while True:
            try:
                return await self._connect()
            except OSError as error:
                if loop.time() > until:
                    raise Unavailable("the new server cannot be reached; try again soon") from error
            await asyncio.sleep(_RETRY_S)


async def _send_request(scope: Scope, receive: Receive, writer: asyncio.StreamWriter) -> None:
    """Send the request; return when the client has disconnected."""
    is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    with contextlib.suppress(OSError):  # the response may have come before the whole request
        writer.write(_render_head(scope, is_chunked=is_chunked))
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            more = message.get("more_body", False)
            writer.write(_frame(message["body"], is_chunked=is_chunked, more=more))
            await writer.drain()
    while (await receive())["type"] != "http.disconnect":
        pass


def _render_head(scope: Scope, *, is_chunked: bool) -> bytes:
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    lines = [b"%s %s%s HTTP/1.1" % (scope["method"].encode(), scope["raw_path"], query)]
    lines += [
        name + b": " + value for name, value in scope["headers"] if name not in _NOT_FORWARDED
    ]
    lines += [b"transfer-encoding: chunked"] if is_chunked else []
    return b"\r\n".join([*lines, b"connection: close", b"", b""])


def _frame(body: bytes, *, is_chunked: bool, more: bool) -> bytes:
    if not is_chunked:
        return body
    end = b"" if more else b"0\r\n\r\n"
    return b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end


async def _respond(scope: Scope, reader: asyncio.StreamReader, send: Send) -> None:
    """Send the server's response to the client, part by part."""
    response = _Response(has_body=scope["method"] != "HEAD")
    has_begun = False
    while not response.is_complete:
        data = await reader.read(_READ_BYTES)
        if not data:
            raise EOFError("the connection ended")
        response.feed(data)
        if response.status and not has_begun:
            has_begun = True
            head = {"status": response.status, "headers": response.headers}
            await send({"type": "http.response.start", **head})
        parts, response.parts = b"".join(response.parts), []
        if parts and not response.is_complete:
            await send({"type": "http.response.body", "body": parts, "more_body": True})
    await send({"type": "http.response.body", "body": parts})
