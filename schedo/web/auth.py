"""Access control: checks the Host header, the token and the origin of every request.

A server on loopback without a token still has an attacker: any web page in the user's browser can
send requests to it, and with DNS rebinding read the responses. So the Host header must name this
server, and a request that changes something must not come from another origin. This middleware also
turns every exception into a response.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from schedo.engine.effects import watch_effects
from schedo.errors import (
    BadRequest,
    CrossSite,
    Misdirected,
    NoCapacity,
    Overloaded,
    SchedoError,
    StoreError,
    StoreUnsuitable,
    Unauthorized,
    Unavailable,
)
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.public_url import PublicUrl
from schedo.web.credentials import Credentials, host_name
from schedo.web.elsewhere import HOP
from schedo.web.holding import NothingChanged
from schedo.web.http import index_headers, problem_response, send_response
from schedo.web.permissions import TokenPermission
from schedo.web.refusal_log import RefusalLog
from schedo.web.settings import WebSettings

log = logging.getLogger("schedo.web")

# What probes and browsers request, which have no token; parameters are at the end of a path.
_OPEN = [operation.path for operation in OPERATIONS if operation.role is None]
_OPEN_PATHS = frozenset(path for path in _OPEN if "{" not in path)
_OPEN_PREFIXES = tuple(path.partition("{")[0] for path in _OPEN if "{" in path)
_SAFE_METHODS = frozenset({"GET", "HEAD"})
# The store raises these, and knows nothing of the request. All other kinds of StoreError say in
# their message what is known of its effect.
_OF_THE_STORE = (StoreError, StoreUnsuitable, NothingChanged)
_SAME_ORIGIN = b"same-origin"
_OWN_SITES = frozenset({_SAME_ORIGIN, b"none"})
_HOSTS_REMEMBERED_MAX = 64


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


def _tell_effect(error: SchedoError, method: str, *, may_have_any: bool) -> SchedoError:
    """Say in an error of the store what is known of the effect that the request had."""
    if method in _SAFE_METHODS:
        return Unavailable(f"{error}; this request changes nothing, so send it again")
    if type(error) not in _OF_THE_STORE:
        return error
    if may_have_any:
        return StoreError(f"{error}; the change may or may not have been carried out")
    return Unavailable(f"{error}; this request has changed nothing, so send it again")


class AccessMiddleware:
    """ASGI middleware: passes a request on, or answers it with a problem document."""

    def __init__(self, app: ASGIApp, settings: WebSettings, credentials: Credentials) -> None:
        self._app = app
        self._credentials = credentials
        self.use(settings)
        self._refusals = RefusalLog()
        self._numbers = itertools.count(1)
        self._prefix = secrets.token_hex(4)

    def use(self, settings: WebSettings) -> None:
        """Check the requests that follow by these host names."""
        self._url = settings.public_url
        hosts = [*settings.allowed_hosts]
        if self._url is not None:
            hosts.append(host_name(self._url.host))
        # A token is proof enough: a page that uses DNS rebinding cannot send it. The same goes for
        # the cookie of a session, which is only good for the host that gave it.
        self._allows_any = "*" in hosts or (settings.anyone is None and self._url is None)
        self._has_login = settings.has_login
        self._hosts = frozenset(_bracket(host.lower()) for host in hosts)
        self._known_hosts: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = f"{self._prefix}-{next(self._numbers):06x}"
        scope["schedo.request_id"] = request_id
        effects = watch_effects()
        try:
            headers = scope["schedo.headers"] = index_headers(scope)
            if b"cookie" in headers:
                await self._load_key(scope)
            self._admit(headers, scope)
            request_id = scope["schedo.request_id"]  # another server may have given it
            await self._app(scope, receive, send)
        except SchedoError as error:
            if error.status >= 500 and not isinstance(error, NoCapacity | Unavailable):
                self._refusals.note(request_id, error)
            if error.code == StoreError.code:
                error = _tell_effect(error, scope["method"], may_have_any=effects.has_any)
            await send_response(send, problem_response(error, request_id), request_id)
        except ClientGone:
            log.debug("request %s: the client went away", request_id)
        except Exception:
            log.exception("request %s: a bug in schedo", request_id)
            bug = SchedoError(f"a bug in schedo; its log has more under {request_id}")
            await send_response(send, problem_response(bug, request_id), request_id)

    def check(self, scope: Scope) -> None:
        """Raise the error of a request that has the wrong host or no valid token."""
        self._check(index_headers(scope), scope)

    async def _load_key(self, scope: Scope) -> None:
        try:
            await self._credentials.sessions.load()
        except SchedoError as error:  # the store does not respond
            if not _is_open(scope, error):
                raise

    def _admit(self, headers: Mapping[bytes, bytes], scope: Scope) -> None:
        """Check the request; raise its error unless the operation is open."""
        try:
            self._check(headers, scope)
        except SchedoError as error:
            if not _is_open(scope, error):
                raise

    def _check(self, headers: Mapping[bytes, bytes], scope: Scope) -> None:
        peers = self._credentials.peers
        if peers is not None and HOP in headers:
            peers.identify(headers, scope)
            return
        self._check_host(headers)
        is_safe = scope["method"] in _SAFE_METHODS
        if not is_safe:
            _check_site(headers, self._url)
        has_session = self._credentials.identify(headers, scope)
        if has_session and not is_safe:
            _check_proof(headers)

    def _check_host(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host")
        if host in self._known_hosts:
            return
        if host is None:
            raise BadRequest("the Host header is missing")
        if self._allows_any or (self._has_login and b"authorization" in headers):
            return
        name = host_name(host.decode("latin-1"))
        if name not in self._hosts:
            raise Misdirected(
                f"this server is not {name[:100]!r}; allow the name with --allowed-hosts"
            )
        if len(self._known_hosts) < _HOSTS_REMEMBERED_MAX:
            self._known_hosts.add(host)


class TrustingMiddleware(AccessMiddleware):
    """As AccessMiddleware, for connections whose other end is known without a token."""

    def __init__(
        self,
        app: ASGIApp,
        settings: WebSettings,
        credentials: Credentials,
        permission: TokenPermission,
        client_id: str,
    ) -> None:
        super().__init__(app, settings, credentials)
        self._permission = permission
        self._client_id = client_id

    def _check(self, headers: Mapping[bytes, bytes], scope: Scope) -> None:
        scope["schedo.client_id"] = self._client_id
        scope["schedo.permission"] = self._permission


def _is_open(scope: Scope, error: SchedoError) -> bool:
    """Return whether the operation needs no token, and so passes in spite of the error.

    One that changes something still needs the right Host, and no other site behind it.
    """
    path: str = scope["path"]
    from schedo.web.site import is_page  # a path that is no operation is rare

    if is_page(path):  # but a page of a host that is not allowed could read nothing
        return scope["method"] in _SAFE_METHODS and not isinstance(error, Misdirected)
    if not (path in _OPEN_PATHS or path.startswith(_OPEN_PREFIXES)):
        return False
    return scope["method"] in _SAFE_METHODS or isinstance(error, Unauthorized | Overloaded)


def _check_site(headers: Mapping[bytes, bytes], url: PublicUrl | None) -> None:
    """Refuse a change that a browser sends for another origin; others send no such header."""
    site = headers.get(b"sec-fetch-site")
    if site is not None and site not in _OWN_SITES:
        raise CrossSite("a page of another site sent this request")
    origin = headers.get(b"origin")
    if origin is None:
        return
    text = origin.decode("latin-1").lower()
    host = headers.get(b"host", b"").decode("latin-1").lower()
    try:
        sender = urlsplit(text).netloc
    except ValueError:
        sender = ""
    if url is not None and text == url.origin:  # a proxy may change the Host header
        return
    if sender != host or (url is not None and sender == url.host):
        raise CrossSite("the Origin header names another site")


def _check_proof(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a change by a cookie unless the browser says that a page of this server sent it."""
    if headers.get(b"sec-fetch-site") != _SAME_ORIGIN and b"origin" not in headers:
        raise CrossSite(
            "a change with a cookie needs 'Sec-Fetch-Site: same-origin' or the Origin of this"
            " server, which browsers send; programs send a token"
        )


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
