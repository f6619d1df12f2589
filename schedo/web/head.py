"""Parses the head of a request into an ASGI scope and the framing of the body.

llhttp reads one head at a time and nothing else: it cannot be paused, it treats the bytes after an
`Upgrade` as another protocol, and it keeps a reference to its callbacks. This module decides the
framing of the body, strictly: if two readers of the same bytes disagree, a request can be smuggled.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import unquote

import httptools

from schedo.protocol.problems import KINDS, ProblemKind

URL_BYTES_MAX = 8_192
HEAD_BYTES_MAX = 32_768
HEADERS_MAX = 100
_FIRST_LINE_BYTES_MAX = URL_BYTES_MAX + 64
_VERSIONS = frozenset({"1.1", "1.0"})
_HOP_FIELDS = frozenset({b"connection", b"content-length", b"transfer-encoding", b"expect"})
_SCHEMES = frozenset({b"http", b"https"})
_AUTHORITY = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:[0-9]{0,5})?\Z")
_HTTP_2 = b"PRI * HTTP/2.0\r\n"  # the preface of a client with prior knowledge
_END = b"\r\n\r\n"


class BadHead(Exception):
    """The head is refused; `kind` selects the error response."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind: ProblemKind = KINDS[kind]


class Head(NamedTuple):
    """The head of a request, as the connection uses it."""

    scope: dict[str, Any]
    body_bytes: int  # the Content-Length; 0 for a chunked body
    is_chunked: bool
    keeps_alive: bool  # the client may send another request
    expects_continue: bool


class _Fields:
    """The results of llhttp for one head."""

    __slots__ = ("headers", "is_complete", "url")

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.is_complete = True


def find_end(data: bytes) -> int:
    """Return where the head at the beginning of the data ends, 0 if it is not complete."""
    end = data.find(_END)
    return end + len(_END) if end >= 0 else 0


def check_beginning(data: bytes, is_first: bool) -> None:
    """Raise BadHead if the received part cannot become a valid head.

    The parser checks the first part only: a head that arrives byte by byte must not be parsed again
    with every byte.
    """
    _check_size(data)
    if is_first:
        _read_fields(data)


def _check_size(data: bytes) -> None:
    if len(data) > _FIRST_LINE_BYTES_MAX and data.find(b"\r\n", 0, _FIRST_LINE_BYTES_MAX) < 0:
        raise BadHead("uri-too-long")
    if len(data) > HEAD_BYTES_MAX:
        raise BadHead("headers-too-large")


def parse_head(data: bytes) -> Head:
    """Return the parsed head; raise BadHead."""
    _check_size(data)
    if data.startswith(_HTTP_2):
        raise BadHead("http-version")
    fields, parser = _read_fields(data)
    if not fields.is_complete:
        raise BadHead("bad-http")
    if len(fields.url) > URL_BYTES_MAX:
        raise BadHead("uri-too-long")
    if len(fields.headers) > HEADERS_MAX:
        raise BadHead("headers-too-large")
    version = parser.get_http_version()
    if version not in _VERSIONS:
        raise BadHead("http-version" if version == "2.0" else "bad-http")
    scope = _make_scope(parser.get_method().decode("ascii"), version, fields)
    length, is_chunked, connection, expect = _read_hop_fields(fields.headers)
    # An HTTP/1.0 client waits for the end of the connection unless the response says keep-alive,
    # which ours never do. It does not know chunks either.
    is_current = version == "1.1"
    if is_chunked and not is_current:
        raise BadHead("bad-http")
    closes = b"close" in connection and b"close" in map(bytes.strip, connection.split(b","))
    keeps_alive = is_current and not closes
    continues = is_current and expect == b"100-continue"
    return Head(scope, length, is_chunked, keeps_alive, continues)


def _read_hop_fields(headers: list[tuple[bytes, bytes]]) -> tuple[int, bool, bytes, bytes]:
    """Return the body's length, whether it is chunked, and the Connection and Expect headers.

    llhttp refuses a second Content-Length or Transfer-Encoding, and both of them in one head.
    """
    connection, length, is_chunked, expect = b"", 0, False, b""
    for name, value in headers:
        if name not in _HOP_FIELDS:
            continue
        if name == b"connection":
            connection += b"," + value.lower()
        elif name == b"expect":
            expect = value.lower()
        elif name == b"content-length" and value.isdigit():
            length = int(value)
        elif name == b"transfer-encoding" and value.lower() == b"chunked":
            is_chunked = True
        else:  # an encoding that the server does not decode
            raise BadHead("bad-http")
    return length, is_chunked, connection, expect


def _read_fields(data: bytes) -> tuple[_Fields, httptools.HttpRequestParser]:
    fields = _Fields()
    parser = httptools.HttpRequestParser(fields)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade as upgrade:  # ignored, as RFC 9110, 7.8 allows
        if upgrade.args[0] != len(data):
            raise BadHead("bad-http") from None
    except httptools.HttpParserError as error:
        raise BadHead("bad-http") from error
    return fields, parser


def _make_scope(method: str, version: str, fields: _Fields) -> dict[str, Any]:
    target = fields.url
    if method == "CONNECT" or b"#" in target:
        raise BadHead("bad-http")
    if not target.startswith(b"/"):
        target = _take_authority(target, fields.headers)
    raw_path, _, query = target.partition(b"?")
    try:
        path = raw_path.decode("ascii")
    except UnicodeDecodeError:
        raise BadHead("bad-http") from None
    return {
        "type": "http",
        "http_version": version,
        "scheme": "http",
        "method": method,
        "path": unquote(path) if "%" in path else path,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": fields.headers,
    }


def _take_authority(target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return path and query of `http://name/path`; the name replaces the Host header.

    RFC 9112, 3.2.2.
    """
    scheme, mark, rest = target.partition(b"://")
    if not mark or scheme.lower() not in _SCHEMES:
        raise BadHead("bad-http")
    ends = [at for at in map(rest.find, (b"/", b"?")) if at >= 0]
    end = min(ends, default=len(rest))
    authority, path = rest[:end], rest[end:]
    if _AUTHORITY.match(authority) is None:
        raise BadHead("bad-http")
    headers[:] = [pair for pair in headers if pair[0] != b"host"]
    headers.append((b"host", authority))
    return path if path.startswith(b"/") else b"/" + path
