"""Sessions of browsers: a signed cookie in place of a token, and one-time links to get one.

A session is not stored. Its cookie names a token by the beginning of its SHA-256, and has an expiry
and an HMAC. The key of the HMAC is made from a random key of the store and the token's SHA-256, so
a session ends when its token is taken out of its file, and a copy of the store signs nothing. The
HMAC covers the host name, too: a cookie is only good where it was given.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from schedo.core.limits import HOUR, MINUTE, SECOND

SESSION_US = 12 * HOUR
LINK_US = MINUTE
_LINKS_MAX = 64  # the oldest ones are dropped
_COOKIES_MAX = 4  # of this name in a request; other paths of the host may have their own
_ID_CHARACTERS = 16
_NAME_CHARACTERS = 8  # of the cookie's name, that tell stores apart


class Session(NamedTuple):
    """A session that is valid now."""

    token: bytes  # the SHA-256 of its token
    expires_at: int


class Sessions:
    """Signs and checks the cookies of one server, and keeps its links that are not yet used."""

    def __init__(self, load_key: Callable[[], Awaitable[bytes]], now: Callable[[], int]) -> None:
        """load_key: returns the random key of the store; now: the present instant."""
        self._load_key = load_key
        self._now = now
        self._key: bytes | None = None
        self._links: dict[bytes, Session] = {}  # by the SHA-256 of their codes

    async def load(self) -> None:
        """Load the key, which the other methods need, if that is not done."""
        if self._key is None:
            self._key = await self._load_key()

    @property
    def cookie(self) -> str:
        """The name of the cookie. Browsers tell no ports apart, so each store has another one."""
        return "schedo-" + self._derive(b"the name of the cookie").hex()[:_NAME_CHARACTERS]

    def begin(self, token: bytes, host: str) -> tuple[str, int]:
        """Return the value of a new cookie for the token on this host, and its expiry."""
        expires_at = (self._now() + SESSION_US) // SECOND * SECOND
        payload = f"{token_id(token)}-{expires_at // SECOND}"
        return f"{payload}.{self._sign(payload, token, host)}", expires_at

    def find(self, cookies: bytes, host: str, tokens: Mapping[str, bytes]) -> Session | None:
        """Return the session of a Cookie header, if it is valid. tokens: the SHA-256s by id."""
        if self._key is None:  # the store has not given it
            return None
        for value in _read_cookies(cookies, self.cookie):
            payload, _, signature = value.partition(".")
            name, _, expiry = payload.partition("-")
            token = tokens.get(name)
            if token is None or not (expiry.isascii() and expiry.isdigit()) or len(expiry) > 12:
                continue
            expires_at = int(expiry) * SECOND
            wanted = self._sign(payload, token, host)
            if hmac.compare_digest(wanted.encode(), signature.encode()) and (
                expires_at > self._now()
            ):
                return Session(token, expires_at)
        return None

    def make_link(self, token: bytes) -> tuple[str, int]:
        """Return a code that begins one session for the token, and its expiry."""
        code, expires_at = secrets.token_urlsafe(24), self._now() + LINK_US
        while len(self._links) >= _LINKS_MAX:
            del self._links[next(iter(self._links))]
        self._links[_digest(code)] = Session(token, expires_at)
        return code, expires_at

    def take_link(self, code: str) -> bytes | None:
        """Return the token of a code, which is void from now on; None if it is not valid."""
        found = self._links.pop(_digest(code), None)
        return found.token if found is not None and found.expires_at > self._now() else None

    def _sign(self, payload: str, token: bytes, host: str) -> str:
        return hmac.digest(self._derive(token), f"{payload}|{host}".encode(), "sha256").hex()

    def _derive(self, text: bytes) -> bytes:
        """Return a key for one purpose, made from that of the store."""
        assert self._key is not None, "load() has not been called"
        return hmac.digest(self._key, text, "sha256")


def token_id(token: bytes) -> str:
    """Return the id of a token in logs and cookies: the beginning of its SHA-256."""
    return token.hex()[:_ID_CHARACTERS]


def render_cookie(name: str, value: str, age_us: int, path: str, *, is_secure: bool) -> bytes:
    """Return a Set-Cookie header; an age of 0 deletes the cookie."""
    text = f"{name}={value}; Path={path}; Max-Age={age_us // SECOND}; HttpOnly; SameSite=Strict"
    return (text + "; Secure" * is_secure).encode()


def _read_cookies(header: bytes, name: str) -> list[str]:
    """Return the values of the cookies of this name, the most specific path first."""
    prefix = name + "="
    parts = (part.strip() for part in header.decode("latin-1").split(";"))
    return [part.removeprefix(prefix) for part in parts if part.startswith(prefix)][:_COOKIES_MAX]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
