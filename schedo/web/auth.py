"""Access control: checks the Host header, the token and the origin of every request.

A server on loopback without a token still has an attacker: any web page in the user's browser can
send requests to it, and with DNS rebinding read the responses. So the Host header must name this
server, and a request that changes something must not come from another origin. This middleware also
turns every exception into a response.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import logging
import secrets
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from schedo.errors import (
    BadRequest,
    CrossSite,
    Misdirected,
    NoCapacity,
    SchedoError,
    Unauthorized,
    Unavailable,
)
from schedo.protocol.operations import OPERATIONS
from schedo.web.http import index_headers, problem_response, send_response
from schedo.web.permissions import TokenPermission
from schedo.web.settings import WebSettings
from schedo.web.site import is_page
from schedo.web.token_throttle import TokenThrottle

log = logging.getLogger("schedo.web")

# What probes and browsers request, which have no token; parameters are at the end of a path.
_OPEN = [operation.path for operation in OPERATIONS if operation.role is None]
_OPEN_PATHS = frozenset(path for path in _OPEN if "{" not in path)
_OPEN_PREFIXES = tuple(path.partition("{")[0] for path in _OPEN if "{" in path)
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_OWN_SITES = frozenset({b"same-origin", b"none"})
_HOSTS_REMEMBERED_MAX = 64
_HOW = "send it as 'Authorization: Bearer <token>'"


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class AccessMiddleware:
    """ASGI middleware: passes a request on, or answers it with a problem document."""

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self._app = app
        self.use(settings)
        self._throttle = TokenThrottle()
        self._numbers = itertools.count(1)
        self._prefix = secrets.token_hex(4)

    def use(self, settings: WebSettings) -> None:
        """Check the requests that follow by these tokens and host names."""
        self._tokens = settings.tokens
        self._anyone = settings.anyone
        # A token is proof enough: a page that uses DNS rebinding cannot send it.
        hosts = settings.allowed_hosts if settings.anyone else ("*",)
        self._hosts = frozenset(_bracket(host.lower()) for host in hosts)
        self._known_hosts: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = f"{self._prefix}-{next(self._numbers):06x}"
        scope["schedo.request_id"] = request_id
        try:
            headers = scope["schedo.headers"] = index_headers(scope)
            try:
                self._check(headers, scope)
            except SchedoError:
                if not _is_open(scope["path"]):
                    raise
            await self._app(scope, receive, send)
        except SchedoError as error:
            if error.status >= 500 and not isinstance(error, NoCapacity | Unavailable):
                log.warning("request %s: %s", request_id, error)
            await send_response(send, problem_response(error, request_id), request_id)
        except ClientGone:
            log.debug("request %s: the client went away", request_id)
        except Exception:
            log.exception("request %s: a bug in schedo", request_id)
            bug = SchedoError(f"a bug in schedo; its log has more under {request_id}")
            await send_response(send, problem_response(bug, request_id), request_id)

    def _check(self, headers: Mapping[bytes, bytes], scope: Scope) -> None:
        self._check_host(headers)
        scope["schedo.client_id"] = self._check_token(headers, scope)
        if scope["method"] not in _SAFE_METHODS:
            _check_site(headers)

    def _check_host(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host")
        if host in self._known_hosts:
            return
        if host is None:
            raise BadRequest("the Host header is missing")
        name = host_name(host.decode("latin-1"))
        if "*" not in self._hosts and name not in self._hosts:
            raise Misdirected(
                f"this server is not {name[:100]!r}; allow the name with --allowed-hosts"
            )
        if len(self._known_hosts) < _HOSTS_REMEMBERED_MAX:
            self._known_hosts.add(host)

    def _check_token(self, headers: Mapping[bytes, bytes], scope: Scope) -> str:
        """Return an id of the client for logs and Idempotency-Keys, never the token itself."""
        scope["schedo.permission"] = self._anyone
        if not self._tokens:
            return "anyone"
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        token = token.strip() if scheme.lower() == b"bearer" else b""
        digest = hashlib.sha256(token).digest()
        # Compare with every token: the time must not reveal which one was similar.
        found = [known for known in self._tokens if hmac.compare_digest(known, digest)]
        if found:
            scope["schedo.permission"] = self._tokens[found[0]]
            return digest.hex()[:16]
        if self._anyone is not None:
            return "anyone"
        if b"authorization" not in headers:
            raise Unauthorized(f"the token is missing; {_HOW}")
        self._throttle.count(_find_address(scope), time.monotonic())
        if not token:
            raise Unauthorized(f"the Authorization header has no bearer token; {_HOW}")
        raise Unauthorized("the token is wrong")


class TrustingMiddleware(AccessMiddleware):
    """As AccessMiddleware, for connections whose other end is known without a token."""

    def __init__(
        self, app: ASGIApp, settings: WebSettings, permission: TokenPermission, client_id: str
    ) -> None:
        super().__init__(app, settings)
        self._permission = permission
        self._client_id = client_id

    def _check(self, headers: Mapping[bytes, bytes], scope: Scope) -> None:
        scope["schedo.client_id"] = self._client_id
        scope["schedo.permission"] = self._permission


def _is_open(path: str) -> bool:
    return path in _OPEN_PATHS or path.startswith(_OPEN_PREFIXES) or is_page(path)


def _find_address(scope: Scope) -> str:
    """Return the client's address. Called only for wrong tokens: it can cost a system call."""
    transport = scope.get("schedo.transport")
    peer = transport.get_extra_info("peername") if transport is not None else None
    return str(peer[0]) if isinstance(peer, tuple) else ""


def _check_site(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a change that a browser sends for another origin; others send no such header."""
    site = headers.get(b"sec-fetch-site")
    if site is not None and site not in _OWN_SITES:
        raise CrossSite("a page of another site sent this request")
    origin = headers.get(b"origin")
    if origin is None:
        return
    host = headers.get(b"host", b"").decode("latin-1").lower()
    try:
        sender = urlsplit(origin.decode("latin-1").lower()).netloc
    except ValueError:
        sender = ""
    if sender != host:
        raise CrossSite("the Origin header names another site")


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def host_name(host: str) -> str:
    """Return the name in a Host header: lower case, without the port, brackets kept."""
    name = host.lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0].removesuffix(".")
