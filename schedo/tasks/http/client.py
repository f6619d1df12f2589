"""One HTTP/1.1 exchange on a fresh connection, for calls to untrusted servers.

The client connects to an address that the caller has checked, and resolves no names itself. It
supports no redirects, proxies, cookies, compression or kept connections. It limits the size of the
header, of the body and of all bytes together; the caller limits the time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple

import httptools

from schedo.core import limits
from schedo.core.value_limits import fit_count
from schedo.tasks.shortage import is_shortage

BODY_BYTES_MAX = limits.OUTPUT_BYTES_MAX
_HEADER_BYTES_MAX = 32_768
_HEADERS_MAX = 100
_WIRE_BYTES_MAX = 8 * BODY_BYTES_MAX  # chunks of one byte are six on the wire
_READ_BYTES = 65_536
CONNECT_S = 3.0  # for each address but the last, which has the rest of the caller's time
_LENGTH_DIGITS_MAX = 20  # parsers accept no longer Content-Length


class Request(NamedTuple):
    """A request; host and port are for its header and for TLS, not the address to connect to."""

    method: str
    host: str
    port: int
    is_tls: bool
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes = b""


class Response(NamedTuple):
    """A response; header names are in lower case, and the first header of each name counts."""

    status: int
    headers: dict[str, str]
    body: bytes
    total_bytes: int  # of the body, as read or as announced by Content-Length
    is_cut: bool  # the body is longer than BODY_BYTES_MAX


class ExchangeFailed(Exception):
    """The exchange brought no complete response; `kind` is the failure's code."""

    def __init__(self, kind: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


async def exchange(
    request: Request,
    addresses: Sequence[str],
    tls: ssl.SSLContext | None,
    confirm: Callable[[], None] = lambda: None,
) -> Response:
    """Send the request to the first address that accepts a connection, and return the response.

    confirm: called right before the request is sent. What it raises ends the exchange.
    An address that does not answer must not take all of the caller's time.
    Raise ExchangeFailed, or OSError if this machine has no resources for another connection.
    """
    reader, writer = await _connect(request, addresses, tls)
    try:
        confirm()
        # Without drain(): the body is bounded, and a server may respond before it has read it all.
        writer.write(_render(request))
        return await _read_response(reader, request.method)
    except OSError as error:
        raise _blame(error) from None
    finally:
        writer.transport.abort()


async def _connect(
    request: Request, addresses: Sequence[str], tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name = request.host if tls is not None else None
    failed: ExchangeFailed | None = None
    for address in addresses:
        limit_s = None if address == addresses[-1] else CONNECT_S
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.open_connection(
                    address, request.port, ssl=tls, server_hostname=name, limit=_READ_BYTES
                )
        except OSError as error:
            if is_shortage(error):
                raise
            failed = _blame(error)
    assert failed is not None, "there is at least one address"
    raise failed


def _blame(error: OSError) -> ExchangeFailed:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ExchangeFailed("tls", f"the certificate is not valid: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return ExchangeFailed("tls", f"the TLS handshake failed: {error.reason or error}")
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return ExchangeFailed("network", "the connection was reset")
    return ExchangeFailed("network", f"the connection failed: {error.strerror or error}")


def _render(request: Request) -> bytes:
    lines = [f"{request.method} {request.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + request.body


async def _read_response(reader: asyncio.StreamReader, method: str) -> Response:
    incoming = _Incoming(has_body=method != "HEAD")
    try:
        while not incoming.is_complete:
            data = await reader.read(_READ_BYTES)
            if data:
                incoming.feed(data)
            else:
                incoming.end()
        return incoming.response()
    finally:
        incoming.close()


class _Incoming:
    """A response that is being received; the parser calls the on_ methods."""

    def __init__(self, has_body: bool) -> None:
        self._has_body = has_body
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._headers: dict[str, str] = {}
        self._header_count = 0
        self._header_bytes = 0
        self._wire_bytes = 0
        self._body = bytearray()
        self._is_interim = False
        self._has_headers = False
        self.is_complete = False

    def feed(self, data: bytes) -> None:
        """Parse the next bytes; raise ExchangeFailed if they are not HTTP or exceed a limit."""
        self._wire_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise self._fail("bad-response", "it upgraded the protocol without a request") from None
        except httptools.HttpParserError as error:
            if not self.is_complete:  # bytes after a complete response do not matter
                raise self._fail("bad-response", f"it does not speak HTTP/1.1: {error}") from None
        self._check_limits()

    def close(self) -> None:
        """Free the body now: the parser and its callbacks refer to each other."""
        del self._parser, self._body

    def end(self) -> None:
        """Handle the end of the connection, which also ends a body without a length."""
        is_delimited = {"content-length", "transfer-encoding"} & self._headers.keys()
        if not self._has_headers or is_delimited:
            raise self._fail(
                "network", "the connection was closed before the response was complete"
            )
        self.is_complete = True

    def response(self) -> Response:
        """Return the complete response."""
        if not 200 <= self._status <= 599:
            raise self._fail("bad-response", f"it answered with status {self._status}")
        total_bytes = len(self._body)
        is_cut = total_bytes > BODY_BYTES_MAX
        announced = self._headers.get("content-length", "").lstrip("0")
        if is_cut and announced.isdecimal():
            total_bytes = fit_count(max(total_bytes, int(announced[:_LENGTH_DIGITS_MAX])))
        body = bytes(self._body[:BODY_BYTES_MAX])
        return Response(self._status, self._headers, body, total_bytes, is_cut)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_complete:
            return
        self._header_count += 1
        self._header_bytes += len(name) + len(value)
        if not self._has_headers:  # later headers are trailers
            self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        if self.is_complete:
            return
        self._status = self._parser.get_status_code()
        self._is_interim = 100 <= self._status < 200 and self._status != 101
        self._has_headers = not self._is_interim
        self.is_complete = self._has_headers and not self._has_body

    def on_body(self, data: bytes) -> None:
        if not self.is_complete:
            self._body += data
            self.is_complete = len(self._body) > BODY_BYTES_MAX

    def on_message_complete(self) -> None:
        if self._is_interim:  # such as 100 Continue; the final response follows
            self._headers.clear()
        else:
            self.is_complete = True

    def _check_limits(self) -> None:
        if self.is_complete:
            return
        header_bytes = self._header_bytes if self._has_headers else self._wire_bytes
        if header_bytes > _HEADER_BYTES_MAX or self._header_count > _HEADERS_MAX:
            raise self._fail("bad-response", f"its header is larger than {_HEADER_BYTES_MAX} bytes")
        if self._wire_bytes > _WIRE_BYTES_MAX:
            raise self._fail("bad-response", f"it sent more than {_WIRE_BYTES_MAX} bytes")

    def _fail(self, kind: str, message: str) -> ExchangeFailed:
        return ExchangeFailed(kind, message, self._status if self._has_headers else None)
