"""HTTP/1.1 over asyncio streams; repeats requests by the rules of transport.py.

Every request has a connection of its own while it runs, so that a long wait blocks no other. Idle
connections are kept.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import httptools

from schedo.client.errors import Unreachable
from schedo.client.messages import (
    IDLE_CONNECTIONS_MAX,
    RESPONSE_BYTES_MAX,
    TIMEOUT_S,
    Address,
    HttpResponse,
    Operation,
    T,
)
from schedo.client.tls import client_context
from schedo.client.transport import explain
from schedo.trace_context import current_trace

_READ_BYTES = 65_536
CONNECT_S = 3.0  # for each address of a host but the last, which has the rest of the time
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


class _Dropped(ConnectionError):
    """The connection ended before the first byte of the response."""


class _Response:
    """Collects one response; httptools calls the on_ methods."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.has_begun = False
        self.has_headers = False
        self.is_complete = False
        self.can_continue = False
        self.status = 0  # once it has headers
        self._body = bytearray()
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self.has_begun = True
        self._parser.feed_data(data)

    def end(self) -> None:
        """Handle the end of the connection, which completes only a response of unknown length."""
        if not self.has_begun:
            raise _Dropped("the server closed the connection")
        sized = "content-length" in self.headers or "transfer-encoding" in self.headers
        if not self.has_headers or sized:
            raise ConnectionError("the response is incomplete")
        self.is_complete = True

    def result(self) -> HttpResponse:
        return HttpResponse(self._parser.get_status_code(), self.headers, bytes(self._body))

    def take(self) -> bytes:
        """Return the part of the body that has arrived since the last call."""
        body = bytes(self._body)
        self._body.clear()
        return body

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.has_headers = True
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > RESPONSE_BYTES_MAX:
            raise ConnectionError(f"the response is larger than {RESPONSE_BYTES_MAX} bytes")

    def on_message_complete(self) -> None:
        self.is_complete = True
        # The status must be read here: the parser forgets it when this callback returns.
        self.can_continue = bool(self._parser.should_keep_alive())


class _Connection:
    """One open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def exchange(self, request: bytes) -> tuple[HttpResponse, bool]:
        """Return the response, and whether the connection can be reused."""
        response = _Response()
        try:
            self._writer.write(request)
            await self._writer.drain()
            while not response.is_complete:
                data = await self._reader.read(_READ_BYTES)
                response.feed(data) if data else response.end()
        except (ConnectionResetError, BrokenPipeError) as error:
            if response.has_begun:
                raise
            raise _Dropped(explain(error)) from error
        return response.result(), response.can_continue and self.is_open

    async def stream(self, request: bytes, timeout_s: float) -> AsyncIterator[_Response]:
        """Yield the response after each read, until its end; timeout_s: for each read."""
        response = _Response()
        self._writer.write(request)
        while not response.is_complete:
            async with asyncio.timeout(timeout_s):
                data = await self._reader.read(_READ_BYTES)
            response.feed(data) if data else response.end()
            yield response

    def close(self) -> None:
        if self._writer.get_extra_info("ssl_object") is None:
            self._writer.close()
        else:  # close() would wait for the server, and the program may end its loop before
            self._writer.transport.abort()


async def open_streams(host: str, port: int, tls: ssl.SSLContext | None) -> Streams:
    """Connect to the first address of the host that accepts; raise OSError if none does.

    A machine that is lost must not take all of the time that the caller has for the others.

    The name is looked up here, because a cancelled create_connection() of uvloop 0.22 leaves a
    failed look-up that nobody awaits, and asyncio then logs an error with a traceback.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    refusal: OSError | None = None
    addresses = [str(address) for *_, (address, *_) in found]
    for address in addresses:
        limit_s = None if address == addresses[-1] else CONNECT_S
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.open_connection(
                    address, port, ssl=tls, server_hostname=host if tls else None
                )
        except OSError as error:
            refusal = refusal or error
    raise refusal or OSError(f"{host} has no address")


class AsyncTransport:
    """Sends operations to one server from one event loop."""

    def __init__(
        self, address: Address, timeout_s: float = TIMEOUT_S, connect: Connect | None = None
    ) -> None:
        """connect: opens a connection to the server; None: to the host and port of its address."""
        self.address = address
        self._timeout_s = timeout_s
        self._open = connect or self._open_address
        self._idle: list[_Connection] = []
        self._tls = client_context(address.ca_cert) if address.is_tls else None

    async def send(self, operation: Operation[T]) -> T:
        """Send the operation and return its result; raise the server's error, or Unreachable."""
        try:
            async with asyncio.timeout(self._timeout_s + operation.held_s):
                return self.address.read(operation, await self._ask(operation))
        except (OSError, httptools.HttpParserError) as error:
            raise Unreachable(
                f"the connection to schedo at {self.address.url} broke before the response arrived"
                f" ({explain(error)}); the request may or may not have been carried out"
            ) from error

    async def stream(self, operation: Operation[Any]) -> AsyncGenerator[bytes, None]:
        """Yield the body of a response as it comes; raise the server's error, or Unreachable."""
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._connect()
        except TimeoutError as error:
            url = self.address.url
            raise Unreachable(f"cannot reach schedo at {url}: {explain(error)}") from error
        try:
            timeout_s = self._timeout_s + operation.held_s
            async for response in connection.stream(self._render(operation), timeout_s):
                if response.status < 400 and response.has_headers:
                    with self.address.naming(operation):
                        operation.check_head(HttpResponse(response.status, response.headers, b""))
                    yield response.take()
                elif response.is_complete:
                    operation.read(response.result())
        except (OSError, httptools.HttpParserError) as error:
            raise Unreachable(
                f"the stream of schedo at {self.address.url} broke ({explain(error)})"
            ) from error
        finally:
            connection.close()

    def use_token(self, token: str | None) -> None:
        """Send this token with the requests that follow."""
        self.address = self.address.with_token(token)

    async def close(self) -> None:
        """Close the connections, and those of open requests after them.

        The next request opens a new one.
        """
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    async def _ask(self, operation: Operation[Any]) -> HttpResponse:
        request, idle = self._render(operation), self._idle
        connection = self._take_idle()
        if connection is not None:
            try:
                return await self._exchange(connection, request, idle)
            except _Dropped:
                if not operation.is_repeatable:
                    raise
        return await self._exchange(await self._connect(), request, idle)

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        address = self.address
        try:
            return _Connection(*await self._open())
        except OSError as error:
            raise Unreachable(f"cannot reach schedo at {address.url}: {explain(error)}") from error

    async def _open_address(self) -> Streams:
        address = self.address
        if address.socket_path is not None:
            return await asyncio.open_unix_connection(address.socket_path)
        return await open_streams(address.host, address.port, self._tls)

    async def _exchange(
        self, connection: _Connection, request: bytes, idle: list[_Connection]
    ) -> HttpResponse:
        """Return the response, and keep the connection, unless `idle` is from before a close."""
        try:
            result, can_continue = await connection.exchange(request)
        except BaseException:
            connection.close()
            raise
        if can_continue and idle is self._idle and len(idle) < IDLE_CONNECTIONS_MAX:
            idle.append(connection)
        else:
            connection.close()
        return result

    def _render(self, operation: Operation[Any]) -> bytes:
        headers = {**self.address.headers, **operation.headers, **current_trace().headers}
        headers["Content-Length"] = str(len(operation.body))
        lines = [f"{operation.method} {self.address.prefix}{operation.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + operation.body
