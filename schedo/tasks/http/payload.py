"""The payload of http jobs, checked so that it cannot inject anything into the request.

The check rejects control characters and spaces in the URL or the headers (urlsplit would drop a
line break silently), credentials in the URL, schemes other than http and https, and headers that
frame the message or that schedo itself sends.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from schedo.core import limits
from schedo.errors import Problem
from schedo.tasks.http.egress import is_host_name
from schedo.tasks.http.signatures import parse_secrets
from schedo.tasks.payloads import Seconds, decode_payload, find_duration_problem, refuse_all

_URL_CHARACTERS_MAX = 8_192
_HEADERS_MAX = 64
_HEADERS_CHARACTERS_MAX = 16_384
_TIMEOUT_US_MIN = limits.MILLISECOND
_TIMEOUT_US_MAX = limits.HOUR
_STATUSES_MAX = 500
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PORTS = {"http": 80, "https": 443}

_VISIBLE = re.compile(r"[!-~]+\Z")  # ASCII without space, control characters and DEL
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_HEADER_VALUE = re.compile(r"[\t -~]*\Z")
_RESERVED_HEADER = re.compile(
    r"(host|connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|content-length|upgrade"
    r"|expect|http2-settings|webhook-.*|schedo-.*)\Z"
)
_STATUS_CLASS = re.compile(r"[2-5]xx\Z")

Status = int | str  # 204, or "2xx"


class HttpPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of an http job."""

    url: str
    method: str | None = None
    headers: dict[str, str] = {}
    body: msgspec.Raw = msgspec.Raw(b"null")
    expected_status: Status | list[Status] = "2xx"
    timeout: Seconds = "30s"
    secret: str | None = None
    secret_name: str | None = None

    def content(self) -> tuple[bytes | None, str | None]:
        """Return the body and its media type: a string is sent as text, other values as JSON."""
        raw = bytes(self.body).strip()
        if raw == b"null":
            return None, None
        if raw.startswith(b'"'):
            return msgspec.json.decode(raw, type=str).encode(), "text/plain; charset=utf-8"
        return raw, "application/json"

    def expects(self, status: int) -> bool:
        """Return whether a response with this status completes the job."""
        return any(s in (status, f"{status // 100}xx") for s in self.expected_statuses())

    def expected_statuses(self) -> list[Status]:
        """Return the expected statuses as a list."""
        expected = self.expected_status
        return expected if isinstance(expected, list) else [expected]


class Url(NamedTuple):
    """The parts of a URL, ready to be used in a request."""

    is_tls: bool
    host: str
    port: int
    host_header: str
    target: str

    @property
    def origin(self) -> str:
        """The part for messages and logs: paths and queries may contain secrets."""
        return f"{'https' if self.is_tls else 'http'}://{self.host_header}"


def check_http_payload(payload: bytes) -> HttpPayload:
    """Decode the payload of an http job, or raise Invalid that points at every bad field."""
    found = decode_payload(payload, HttpPayload)
    refuse_all(_check_request(found), _check_headers(found.headers), _check_secrets(found))
    return found


def parse_url(text: str) -> Url:
    """Return the parts of an http or https URL, or raise ValueError."""
    if len(text) > _URL_CHARACTERS_MAX:
        raise ValueError(f"it is longer than {_URL_CHARACTERS_MAX} characters")
    if not _VISIBLE.match(text) or "\\" in text:
        raise ValueError(
            "it must be visible ASCII; percent-encode other characters, write hosts as xn--..."
        )
    parts = urlsplit(text)
    if parts.scheme not in _PORTS:
        raise ValueError("it must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError(
            "it must not contain a user name or password; send an authorization header"
        )
    host = parts.hostname or ""
    if not _is_host(host, parts.netloc):
        raise ValueError("it has no valid host")
    port = parts.port  # raises ValueError beyond 65535
    if port == 0:
        raise ValueError("the port must not be 0")
    shown = f"[{host}]" if ":" in host else host
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Url(
        is_tls=parts.scheme == "https",
        host=host,
        port=port or _PORTS[parts.scheme],
        host_header=shown if port in (None, _PORTS[parts.scheme]) else f"{shown}:{port}",
        target=target,
    )


def _is_host(host: str, netloc: str) -> bool:
    if not netloc.startswith("["):
        return is_host_name(host)
    try:
        return ipaddress.IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _check_request(payload: HttpPayload) -> Iterator[Problem]:
    try:
        parse_url(payload.url)
    except ValueError as error:
        yield Problem("/url", str(error))
    if payload.method is not None and payload.method not in _METHODS:
        yield Problem("/method", f"it must be one of {', '.join(sorted(_METHODS))}")
    if wrong := find_duration_problem(payload.timeout, _TIMEOUT_US_MIN, _TIMEOUT_US_MAX):
        yield Problem("/timeout", wrong)
    statuses = payload.expected_statuses()
    if not statuses or not all(map(_is_status, statuses[:_STATUSES_MAX])):
        yield Problem("/expected_status", 'give statuses from 200 to 599, or classes such as "2xx"')
    elif len(statuses) > _STATUSES_MAX:
        yield Problem("/expected_status", f"give at most {_STATUSES_MAX} statuses")


def _is_status(status: Status) -> bool:
    if isinstance(status, int):
        return 200 <= status <= 599
    return _STATUS_CLASS.match(status) is not None


def _check_headers(headers: dict[str, str]) -> Iterator[Problem]:
    characters = sum(len(name) + len(value) for name, value in headers.items())
    if len(headers) > _HEADERS_MAX or characters > _HEADERS_CHARACTERS_MAX:
        limit = f"{_HEADERS_MAX} headers and {_HEADERS_CHARACTERS_MAX} characters"
        yield Problem("/headers", f"there may be at most {limit}")
        return
    for name, value in headers.items():
        pointer = "/headers/" + name[:100].replace("~", "~0").replace("/", "~1")
        if not _HEADER_NAME.match(name):
            yield Problem(pointer, "this is not a valid header name")
        elif _RESERVED_HEADER.match(name.lower()):
            yield Problem(pointer, "schedo sets this header itself; remove it")
        elif not _HEADER_VALUE.match(value):
            yield Problem(pointer, "a header value must be printable ASCII on one line")


def _check_secrets(payload: HttpPayload) -> Iterator[Problem]:
    if payload.secret is not None and payload.secret_name is not None:
        yield Problem("/secret", "give either secret or secret_name, not both")
    if payload.secret is not None:
        try:
            parse_secrets(payload.secret)
        except ValueError as error:
            yield Problem("/secret", str(error))
    if payload.secret_name is not None and not payload.secret_name:
        yield Problem("/secret_name", "it must not be empty")
