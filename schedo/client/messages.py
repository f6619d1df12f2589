"""The server's address, requests and responses, as both clients use them. Without I/O.

An Operation is one request and the function that reads its response. transport.py sends it with
blocking sockets, async_transport.py with asyncio.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from schedo.client.errors import NotSchedo, parse_problem
from schedo.errors import Invalid

T = TypeVar("T")
Record = dict[str, Any]

# A job's two streams are 2 MiB at most, and a page 500 jobs of 1 MiB payloads at worst.
RESPONSE_BYTES_MAX = 1 << 30
# More idle connections than this are closed rather than kept.
IDLE_CONNECTIONS_MAX = 32
TIMEOUT_S = 30.0
_EARLY_PAUSE_S = 0.5


class HttpResponse(NamedTuple):
    """An HTTP response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the parsed body; raise NotSchedo if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise NotSchedo.because(f"it answered with {self.content_type}") from None

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "no content type")


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One request, and the function that parses its response."""

    method: str
    target: str  # path and query
    parse: Callable[[HttpResponse], T]
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_repeatable: bool = False  # sending it twice has the same effect as sending it once
    held_s: float = 0.0  # the server may hold the request open this long
    handled_statuses: frozenset[int] = frozenset()  # error statuses that `read` handles
    content_type: str | None = None  # of a body that is passed on in pieces

    def read(self, response: HttpResponse) -> T:
        """Return the result of the response; raise the server's error, or NotSchedo."""
        if response.status >= 400 and response.status not in self.handled_statuses:
            raise parse_problem(response.status, response.headers, response.body)
        self.check_head(response)
        return self.parse(response)

    def early_s(self, took_s: float) -> float:
        """Return the pause before the request is sent again, if its response came early.

        A server that stops ends each wait for a job at once; clients must not ask it in a loop.
        """
        left_s = self.held_s - took_s
        return min(_EARLY_PAUSE_S, left_s) if left_s > self.held_s / 2 else 0.0

    def check_head(self, response: HttpResponse) -> None:
        """Raise NotSchedo if no schedo server responds so, before the body is read."""
        if 300 <= response.status < 400:
            place = response.headers.get("location", "no address")
            raise NotSchedo.because(f"it answered {response.status}, a redirect to {place}")
        wanted = self.content_type
        if wanted is not None and response.content_type.partition(";")[0].strip() != wanted:
            raise NotSchedo.because(f"it answered with {response.content_type}, not {wanted}")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server, and the headers of every request."""

    url: str  # as the user wrote it, for error messages
    is_tls: bool
    host: str
    port: int
    prefix: str
    headers: Mapping[str, str] = field(repr=False)  # they contain the token
    ca_cert: str | None = None  # a file of the authorities to trust; None: the default ones
    socket_path: str | None = None  # of a Unix socket, in place of host and port

    def read(self, operation: Operation[T], response: HttpResponse) -> T:
        """Return the result of the response of this server; NotSchedo says what was asked."""
        with self.naming(operation):
            return operation.read(response)

    @contextmanager
    def naming(self, operation: Operation[Any]) -> Iterator[None]:
        """Add the request and the address to a NotSchedo of the block."""
        try:
            yield
        except NotSchedo as error:
            path = operation.target.partition("?")[0]
            raise NotSchedo(f"{error} ({operation.method} {path} at {self.url})") from None

    def with_token(self, token: str | None) -> Address:
        """Return the same address with this token in the headers."""
        headers = {name: text for name, text in self.headers.items() if name != _AUTHORIZATION}
        return replace(self, headers=headers | _authorize(token))


_AUTHORIZATION = "Authorization"
_UNIX = "unix:"


def parse_address(
    url: str,
    token: str | None,
    agent: str = "schedo",
    ca_cert: str | None = None,
) -> Address:
    """Return the address of http(s)://host[:port][/prefix] or unix:/path; raise Invalid.

    ca_cert: a PEM file of the authorities to trust, in place of the default ones.
    """
    if url.startswith(_UNIX):
        if ca_cert is not None:
            raise _unused_ca(url)
        return _parse_unix(url, token, agent)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Invalid(f"url {url!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid(f"url {url!r}: write it as http://127.0.0.1:8080")
    if parts.username is not None or parts.query or parts.fragment:
        raise Invalid(f"url {url!r}: it has a user, query or fragment; a token is given separately")
    is_tls = parts.scheme == "https"
    if ca_cert is not None and not is_tls:
        raise _unused_ca(url)
    default_port = 443 if is_tls else 80
    prefix = parts.path.rstrip("/")
    headers = _make_headers(parts.netloc, token, agent)
    return Address(url, is_tls, parts.hostname, port or default_port, prefix, headers, ca_cert)


def _unused_ca(url: str) -> Invalid:
    given = "ca_cert=, --ca-cert or SCHEDO_CA_CERT"
    return Invalid(f"url {url!r}: a CA certificate ({given}) is only for an https:// URL")


def _parse_unix(url: str, token: str | None, agent: str) -> Address:
    path = url.removeprefix(_UNIX)
    if not path.startswith("/") or "\0" in path:
        raise Invalid(f"url {url!r}: write it as unix:/run/schedo/api.sock")
    headers = _make_headers("localhost", token, agent)
    return Address(url, False, "localhost", 0, "", headers, socket_path=path)


def _make_headers(host: str, token: str | None, agent: str) -> Mapping[str, str]:
    headers = {"Host": host, "Accept": "application/json", "User-Agent": agent}
    return headers | _authorize(token)


def _authorize(token: str | None) -> dict[str, str]:
    if token is None:
        return {}
    if not token or not all("!" <= character <= "~" for character in token):
        raise Invalid("the token must be one line of visible ASCII characters")
    return {_AUTHORIZATION: f"Bearer {token}"}
