"""Blocking HTTP with persistent connections; safe to share between threads.

A server closes idle connections, and the client may notice only when it writes. So the client
checks an idle connection before it reuses it. If it breaks all the same, a repeatable request is
sent again. Any other failure is raised, never repeated.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    RemoteDisconnected,
)
from io import BufferedReader, RawIOBase
from typing import Any, BinaryIO

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
from schedo.client.tls import client_context, explain_tls
from schedo.trace_context import current_trace

_PIECE_BYTES = 262_144
_DROPPED = (RemoteDisconnected, ConnectionResetError, BrokenPipeError)


class Transport:
    """Sends operations to one server, one connection for each at a time."""

    def __init__(self, address: Address, timeout_s: float = TIMEOUT_S) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._idle: list[HTTPConnection] = []  # append and pop are atomic
        self._process = os.getpid()
        self._tls = client_context(address.ca_cert) if address.is_tls else None
        self.has_answered = False

    def send(self, operation: Operation[T]) -> T:
        """Send the operation and return its result; raise the server's error, or Unreachable."""
        connection, idle = self._take_idle(), self._idle
        if connection is not None:
            try:
                return self._read(connection, operation, idle)
            except _DROPPED as error:
                if not operation.is_repeatable:
                    raise self._broken(error) from error
            except (OSError, HTTPException) as error:
                raise self._broken(error) from error
        try:
            return self._read(self._connect(), operation, idle)
        except (OSError, HTTPException) as error:
            raise self._broken(error) from error

    def download(self, operation: Operation[T], file: BinaryIO) -> T:
        """Send the operation, write the body of its response to the file, and return its result."""
        with self._open_response(operation) as response:
            while piece := self._read_piece(response):
                file.write(piece)
            return self.address.read(operation, _head(response, b""))

    def stream(self, operation: Operation[Any]) -> Generator[bytes, None, None]:
        """Yield the lines of a response as they come; raise the server's error, or Unreachable."""
        with self._open_response(operation) as response:
            while line := self._read_line(response):
                yield line

    @contextmanager
    def _open_response(self, operation: Operation[Any]) -> Iterator[HTTPResponse]:
        """Send the operation and yield its response before its body is read.

        Raise the server's error, or Unreachable.
        """
        with closing(self._connect()) as connection:
            try:
                response = self._request(connection, operation)
                refusal = _read(response) if response.status >= 400 else None
            except (OSError, HTTPException) as error:
                raise self._broken(error) from error
            if refusal is not None:
                operation.read(refusal)
            with self.address.naming(operation):
                operation.check_head(_head(response, b""))
            yield response

    def _read_line(self, response: HTTPResponse) -> bytes:
        try:
            return response.readline(_PIECE_BYTES)
        except (OSError, HTTPException) as error:
            raise self._broken(error) from error

    def _read_piece(self, response: HTTPResponse) -> bytes:
        try:
            piece = response.read(_PIECE_BYTES)
            if not piece and response.length:
                raise HTTPException(f"{response.length} bytes of the response are missing")
        except (OSError, HTTPException) as error:
            raise self._broken(error) from error
        return piece

    def close(self) -> None:
        """Close the connections, and those of open requests after them.

        The next request opens a new one.
        """
        idle, self._idle = self._idle, []
        while idle:
            idle.pop().close()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _take_idle(self) -> HTTPConnection | None:
        """Return an open connection; none that another process has as well, because of a fork."""
        if self._process != os.getpid():
            self.close()  # first: another thread may come here meanwhile
            self._process = os.getpid()
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                # No request is open, so a readable socket means the end of the connection.
                if connection.sock is not None and not _is_readable(connection.sock):
                    return connection
                connection.close()
        return None

    def _connect(self) -> HTTPConnection:
        connection = self._make_connection()
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise Unreachable(
                f"cannot reach schedo at {self.address.url}: {explain(error)}"
            ) from error
        return connection

    def _make_connection(self) -> HTTPConnection:
        address = self.address
        if address.socket_path is not None:
            return _UnixConnection(address.socket_path, self._timeout_s)
        if self._tls is not None:
            return HTTPSConnection(
                address.host, address.port, timeout=self._timeout_s, context=self._tls
            )
        return HTTPConnection(address.host, address.port, timeout=self._timeout_s)

    def _read(
        self, connection: HTTPConnection, operation: Operation[T], idle: list[HTTPConnection]
    ) -> T:
        return self.address.read(operation, self._exchange(connection, operation, idle))

    def _exchange(
        self, connection: HTTPConnection, operation: Operation[Any], idle: list[HTTPConnection]
    ) -> HttpResponse:
        """Return the response, and keep the connection, unless `idle` is from before a close."""
        until_s = time.monotonic() + self._timeout_s + operation.held_s
        connection.response_class = partial(_BoundedResponse, until_s)  # type: ignore[assignment]
        try:
            response = _read(self._request(connection, operation))
        except BaseException:
            connection.close()
            raise
        is_kept = idle is self._idle and len(idle) < IDLE_CONNECTIONS_MAX
        if connection.sock is not None and is_kept:
            idle.append(connection)
        else:
            connection.close()
        return response

    def _request(self, connection: HTTPConnection, operation: Operation[Any]) -> HTTPResponse:
        connection.sock.settimeout(self._timeout_s + operation.held_s)
        connection.request(
            operation.method,
            self.address.prefix + operation.target,
            operation.body or None,
            {**self.address.headers, **operation.headers, **current_trace().headers},
        )
        response = connection.getresponse()
        self.has_answered = True
        return response

    def _broken(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"the connection to schedo at {self.address.url} broke before the response arrived"
            f" ({explain(error)}); the request may or may not have been carried out"
        )


class _UnixConnection(HTTPConnection):
    """A connection to the Unix socket at a path."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _BoundedResponse(HTTPResponse):
    """A response that must be there at an instant; else the time limit would be for each read."""

    def __init__(
        self, until_s: float, sock: socket.socket, *arguments: Any, **options: Any
    ) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = BufferedReader(_BoundedReads(self.fp.detach(), sock, until_s))


class _BoundedReads(RawIOBase):
    """Reads from a socket until an instant, then raises TimeoutError."""

    def __init__(self, raw: RawIOBase, sock: socket.socket, until_s: float) -> None:
        self._raw, self._sock, self._until_s = raw, sock, until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def explain(error: BaseException) -> str:
    """Return the message of the operating system, or of TLS, for the error."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ssl.SSLError):
        return explain_tls(error)
    # asyncio has messages of its own; the system's message for the error number is clearer.
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno).lower()
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return words[:1].lower() + words[1:]


def _is_readable(sock: Any) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _read(response: HTTPResponse) -> HttpResponse:
    body = response.read(RESPONSE_BYTES_MAX + 1)
    if len(body) > RESPONSE_BYTES_MAX:
        raise HTTPException(f"the response is larger than {RESPONSE_BYTES_MAX} bytes")
    if response.length:  # http.client takes the end of the connection for that of the body
        raise HTTPException(f"{response.length} bytes of the response are missing")
    response.close()
    return _head(response, body)


def _head(response: HTTPResponse, body: bytes) -> HttpResponse:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return HttpResponse(response.status, headers, body)
