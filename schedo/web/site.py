"""The page for browsers: a shell at each of its addresses, and its files.

The shell is small and asks the browser to compare it each time. It names the files under /ui/HASH/,
where the hash is that of all files together, so browsers keep them forever and never mix two
versions. Nothing here is secret: the data comes from the API, which asks for a token.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

from starlette.types import Receive, Scope, Send

from schedo.engine.sharing import in_steps
from schedo.errors import MethodNotAllowed, NotFound
from schedo.web.http import Response, send_response

_FOLDER = Path(__file__).parent / "ui"
_PREFIX = "/ui/"
# The first parts of the addresses of screens; screens.js has the screens themselves.
_NAMES = "jobs schedules queues workers invoke failures log lateness expectations login"
SCREENS = frozenset(_NAMES.split())
_SHELLS = {"/docs": "docs.html"}  # each other address has the shell of the screens
_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types schedo",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]
_SHARED_FOLDERS = ("lib", "parts", "charts", "vendor")  # of what all screens use
_KEEP = (b"cache-control", b"public, max-age=31536000, immutable")
_STEP_BYTES = 16_384  # are compressed in less than a millisecond
_GZIP = 31  # the window of zlib, with the frame of gzip


def is_page(path: str) -> bool:
    """Return whether a path belongs to the page. It is open to all, like a file of the package."""
    if path == "/" or path in _SHELLS or path.startswith(_PREFIX):
        return True
    return path[:1] == "/" and path[1:].partition("/")[0] in SCREENS


class Site:
    """Answers the requests for the page. Its files are read when they are asked for."""

    def __init__(self, base: str = "/") -> None:
        """base: the path under which browsers see this server, with a slash at its end."""
        self._base = base
        self._files = _Files("", frozenset())
        self._zipped: dict[str, bytes] = {}  # 80 kB together, only where a browser was

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if not is_page(path):
            raise NotFound(f"there is nothing at {path[:100]!a}")
        if scope["method"] not in ("GET", "HEAD"):
            message = f"{path[:100]!a} takes GET, HEAD, not {scope['method'][:20]!a}"
            raise MethodNotAllowed(message, "GET, HEAD")
        if not self._files.hash:
            self._files = await in_steps(_find_files())
        if path.startswith(_PREFIX):
            response = await self._get_file(path.removeprefix(_PREFIX), scope)
        else:
            response = self._get_shell(path, scope)
        await send_response(send, response, scope["schedo.request_id"])

    def _get_shell(self, path: str, scope: Scope) -> Response:
        text = (_FOLDER / _SHELLS.get(path, "index.html")).read_text(encoding="utf-8")
        place = f"{self._base}ui/{self._files.hash}/"
        preload = "".join(
            f'<link rel="modulepreload" href="{place}{name}">\n'
            for name in sorted(self._files.names)
            if _is_needed_first(name, path)
        )
        for mark, value in (("base", self._base), ("ui", place), ("preload", preload)):
            text = text.replace(f"{{{mark}}}", value)
        body = text.encode()
        tag = b'"%b"' % hashlib.sha256(body).hexdigest()[:16].encode()
        shared = [*_HEADERS, (b"cache-control", b"no-cache"), (b"etag", tag)]
        if scope["schedo.headers"].get(b"if-none-match") == tag:
            return Response(304, b"", shared=shared)
        return Response(200, body, content_type=_TYPES[".html"], shared=shared)

    async def _get_file(self, place: str, scope: Scope) -> Response:
        hash_, _, name = place.partition("/")
        if hash_ != self._files.hash or name not in self._files.names:
            raise NotFound(f"there is no file {place[:100]!a}; load the page again")
        path = _FOLDER / name
        kind, shared = _TYPES[path.suffix], [*_HEADERS, _KEEP, (b"vary", b"accept-encoding")]
        if b"gzip" not in scope["schedo.headers"].get(b"accept-encoding", b""):
            return Response(200, path.read_bytes(), content_type=kind, shared=shared)
        if name not in self._zipped:
            self._zipped[name] = await in_steps(_zip(path.read_bytes()))
        encoding = (b"content-encoding", b"gzip")
        return Response(200, self._zipped[name], (encoding,), kind, shared=shared)


class _Files(NamedTuple):
    """The names of the files that are served, and one hash of them all."""

    hash: str
    names: frozenset[str]


def _find_files() -> Generator[None, None, _Files]:
    found = hashlib.sha256()
    names = []
    for path in sorted(_FOLDER.rglob("*")):
        if path.suffix in _TYPES and path.is_file():
            names.append(path.relative_to(_FOLDER).as_posix())
            found.update(b"%b\0%b\0" % (names[-1].encode(), path.read_bytes()))
            yield
    return _Files(found.hexdigest()[:12], frozenset(names))


def _zip(body: bytes) -> Generator[None, None, bytes]:
    packer = zlib.compressobj(9, wbits=_GZIP)
    parts = []
    for at in range(0, len(body), _STEP_BYTES):
        parts.append(packer.compress(body[at : at + _STEP_BYTES]))
        yield
    return b"".join([*parts, packer.flush()])


def _is_needed_first(name: str, path: str) -> bool:
    """Return whether the screen of an address needs the module, so that its shell names it."""
    folder, _, rest = name.partition("/")
    if folder != "screens":
        return folder in _SHARED_FOLDERS and name.endswith(".js")
    return rest.partition("/")[0].removesuffix(".js") == (path.split("/")[1] or "overview")
