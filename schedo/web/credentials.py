"""Who sends a request: found by its bearer token, or by the cookie of a session."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping

from starlette.types import Scope

from schedo.errors import Conflict, Forbidden, Unauthorized, Unavailable
from schedo.protocol.roles import Role
from schedo.web.elsewhere import Elsewhere
from schedo.web.permissions import TokenPermission
from schedo.web.sessions import Session, Sessions, token_id
from schedo.web.settings import WebSettings
from schedo.web.token_throttle import TokenThrottle

_HOW = "send it as 'Authorization: Bearer <token>'"
ANYONE_ID = "anyone"  # the client id of all who send no token


class Credentials:
    """The tokens of a server, the sessions that they began, and the wrong ones that were sent."""

    def __init__(self, settings: WebSettings, sessions: Sessions) -> None:
        self.sessions = sessions
        self.peers: Elsewhere | None = None  # who sign what they send to this server
        self._throttle = TokenThrottle()
        self.use(settings)

    def use(self, settings: WebSettings) -> None:
        """Use these tokens from now on; the sessions of all other tokens end."""
        self.tokens = settings.tokens
        self.anyone = settings.anyone
        self.has_login = settings.has_login
        self._by_id = {token_id(token): token for token in settings.tokens}

    def find_changed(self, settings: WebSettings) -> set[str]:
        """Return the ids of the clients that may not do the same with these settings."""
        changed = {
            token_id(token)
            for token, permission in self.tokens.items()
            if settings.tokens.get(token) != permission
        }
        return changed if settings.anyone == self.anyone else {*changed, ANYONE_ID}

    def check_unchanged(self, client_id: str, permission: TokenPermission | None) -> None:
        """Raise an error if a client, of whom this was known, may not do the same any more."""
        token = self._by_id.get(client_id, b"")
        present = self.anyone if client_id == ANYONE_ID else self.tokens.get(token)
        if present is None:
            raise Unauthorized("the token is not valid any more")
        if present != permission:
            raise Unavailable("the token permits something else now; poll again")

    def identify(self, headers: Mapping[bytes, bytes], scope: Scope) -> bool:
        """Note the permission and the id of the client in the scope; raise Unauthorized.

        The id is for logs and Idempotency-Keys, and never the token itself. Return whether the
        client is known by a cookie alone.
        """
        scope["schedo.permission"] = self.anyone
        scope["schedo.client_id"] = ANYONE_ID
        if not self.tokens:
            return False
        if b"authorization" not in headers:
            return self._find_session(headers, scope)
        scheme, _, value = headers[b"authorization"].partition(b" ")
        token = value.strip() if scheme.lower() == b"bearer" else b""
        found = self._find(token)
        if found is not None:
            scope["schedo.permission"] = self.tokens[found]
            scope["schedo.client_id"] = token_id(found)
        elif self.has_login:
            self._count_wrong(find_address(scope.get("schedo.transport")))
            if not token:
                raise Unauthorized(f"the Authorization header has no bearer token; {_HOW}")
            raise Unauthorized("the token is wrong")
        return False

    def find_session(self, headers: Mapping[bytes, bytes], host: str) -> Session | None:
        """Return the session of the request's cookie, if that is valid."""
        cookies = headers.get(b"cookie")
        return self.sessions.find(cookies, host, self._by_id) if cookies else None

    def _find_session(self, headers: Mapping[bytes, bytes], scope: Scope) -> bool:
        if b"cookie" in headers:
            session = self.find_session(headers, host_name(headers[b"host"].decode("latin-1")))
            if session is not None:
                scope["schedo.permission"] = self.tokens[session.token]
                scope["schedo.client_id"] = token_id(session.token)
                return True
        if self.anyone is None:
            raise Unauthorized(f"the token is missing; {_HOW}")
        return False

    def log_in(self, token: str | None, link: str | None, address: str) -> bytes:
        """Return the SHA-256 of a token that may begin a session; raise Unauthorized."""
        if not self.has_login:
            raise Conflict("this server needs no login: every client may do everything")
        found = (
            self._find((token or "").encode()) if link is None else self.sessions.take_link(link)
        )
        if found is None or found not in self.tokens:
            self._count_wrong(address)
            raise Unauthorized(
                "the token is wrong"
                if link is None
                else "the link has been used, or is older than a minute; make another one"
            )
        permission = self.tokens[found]
        if not permission.includes(Role.VIEWER):
            raise Forbidden(
                f"the token {permission.name!r} has the role {permission.role}, which is for"
                " programs; log in with one of a viewer, an operator or an admin"
            )
        return found

    def make_link(self, client_id: str) -> tuple[str, int]:
        """Return the code of a link for the client's token, and its expiry."""
        if client_id not in self._by_id:
            raise Conflict("only a token can make a link, and this request has none")
        return self.sessions.make_link(self._by_id[client_id])

    def _find(self, token: bytes) -> bytes | None:
        digest = hashlib.sha256(token).digest()
        # Compare with every token: the time must not reveal which one was similar.
        found = [known for known in self.tokens if hmac.compare_digest(known, digest)]
        return found[0] if found else None

    def _count_wrong(self, address: str) -> None:
        self._throttle.count(address, time.monotonic())


def find_address(transport: object) -> str:
    """Return the address of the other end of a transport, or "". It can cost a system call."""
    get = getattr(transport, "get_extra_info", None)
    try:
        peer = get("peername") if get is not None else None
    except (AttributeError, ValueError):  # by uvloop, if the client was gone when it was accepted
        return ""
    return str(peer[0]) if isinstance(peer, tuple) else ""


def host_name(host: str) -> str:
    """Return the name in a Host header: lower case, without the port, brackets kept."""
    name = host.lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0].removesuffix(".")
