"""The server's address, requests and responses, as both clients use them. Without I/O.

An Operation is one request and the function that reads its response. transport.py sends it with
blocking sockets, async_transport.py with asyncio.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from schedo.client.errors import parse_problem
from schedo.errors import Invalid, SchedoError

T = TypeVar("T")
Record = dict[str, Any]

# A job's two streams are 2 MiB at most, and a page 500 jobs of 1 MiB payloads at worst.
RESPONSE_BYTES_MAX = 1 << 30
# More idle connections than this are closed rather than kept.
IDLE_CONNECTIONS_MAX = 32
TIMEOUT_S = 30.0


class HttpResponse(NamedTuple):
    """An HTTP response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the parsed body; raise SchedoError if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            kind = self.headers.get("content-type", "no content type")
            raise SchedoError(f"this is not a schedo server: it answered with {kind}") from None


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

    def read(self, response: HttpResponse) -> T:
        """Return the result of the response; raise the server's error."""
        if response.status >= 400 and response.status not in self.handled_statuses:
            raise parse_problem(response.status, response.headers, response.body)
        return self.parse(response)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server, and the headers of every request."""

    url: str  # as the user wrote it, for error messages
    is_tls: bool
    host: str
    port: int
    prefix: str
    headers: Mapping[str, str] = field(repr=False)  # they contain the token


def parse_address(url: str, token: str | None, agent: str = "schedo") -> Address:
    """Return the address; raise Invalid unless the URL is http(s)://host[:port][/prefix]."""
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
    headers = {"Host": parts.netloc, "Accept": "application/json", "User-Agent": agent}
    if token is not None:
        if not token or not all("!" <= character <= "~" for character in token):
            raise Invalid("the token must be one line of visible ASCII characters")
        headers["Authorization"] = f"Bearer {token}"
    default_port = 443 if is_tls else 80
    prefix = parts.path.rstrip("/")
    return Address(url, is_tls, parts.hostname, port or default_port, prefix, headers)
