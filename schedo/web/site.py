"""The page for browsers: a shell at each of its addresses, and its files.

The shell is small and asks the browser to compare it each time. It names the files under /ui/HASH/,
where the hash is that of all files together, so browsers keep them forever and never mix two
versions. Nothing here is secret: the data comes from the API, which asks for a token.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import zlib
from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from starlette.types import Receive, Scope, Send

from schedo.engine.sharing import in_steps
from schedo.errors import MethodNotAllowed, NotFound
from schedo.web.http import Response, send_response

_FOLDER = Path(__file__).parent / "ui"
_PREFIX = "/ui/"
_SHELLS = {"/docs": "docs.html"}  # each other address has the shell of the screens
_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_NO_SNIFF = (b"x-content-type-options", b"nosniff")
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types schedo",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    _NO_SNIFF,
]
_START = "app.js"
_IMPORT = re.compile(rb"""\bfrom ?["'](\.{1,2}/[^"']+)["']""")
# A line of screens.js, the table of screens.
_SCREEN = re.compile(
    r"path: '([^']+)'.*?(?:style: '([^']+)'.*?)?(?:reads: '([^']+)'.*?)?"
    r"import\('\./(screens/[^']+)'\)"
)
_COMMENTS = {  # by the suffix of a file
    ".css": re.compile(rb"/\*.*?\*/", re.DOTALL),
    ".js": re.compile(rb"^[ \t]*//.*$", re.MULTILINE),  # what is left is an empty line
}
_VARY = (b"vary", b"accept-encoding")
_GZIPPED = (b"content-encoding", b"gzip")
_KEEP = (b"cache-control", b"public, max-age=31536000, immutable")
_STEP_BYTES = 16_384  # are compressed in less than a millisecond
_GZIP = 31  # the window of zlib, with the frame of gzip


def is_page(path: str) -> bool:
    """Return whether a path belongs to the page. It is open to all, like a file of the package."""
    if path == "/" or path in _SHELLS or path.startswith(_PREFIX):
        return True
    first = path[1:].partition("/")[0]
    return first != "" and any(screen.first == first for screen in read_screens())


class Screen(NamedTuple):
    """A screen: the pattern of its address, its style sheet ("": none), and its module.

    reads: the addresses of the API that it reads at first, whatever its own address, by spaces.
    """

    path: str
    style: str
    reads: str
    module: str

    @property
    def first(self) -> str:
        """The first part of its address."""
        return self.path.split("/")[1]

    def matches(self, path: str) -> bool:
        """Return whether a path is an address of this screen."""
        own, others = self.path.split("/"), path.split("/")
        return len(own) == len(others) and all(
            one == other or one.startswith("{") for one, other in zip(own, others, strict=True)
        )


@lru_cache(maxsize=1)
def read_screens() -> list[Screen]:
    """Return the screens of screens.js."""
    text = (_FOLDER / "screens.js").read_text(encoding="utf-8")
    return [Screen(*found) for found in _SCREEN.findall(text)]


class Site:
    """Answers the requests for the page. Its files are read when they are asked for."""

    def __init__(self, base: str = "/") -> None:
        """base: the path under which browsers see this server, with a slash at its end."""
        self._base = base
        self._files = _Files("", {})
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
            response = await self._get_shell(path, scope)
        await send_response(send, response, scope["schedo.request_id"])

    async def _get_shell(self, path: str, scope: Scope) -> Response:
        text = (_FOLDER / _SHELLS.get(path, "index.html")).read_text(encoding="utf-8")
        place = f"{self._base}ui/{self._files.hash}/"
        screens = [screen for screen in read_screens() if screen.matches(path)][:1]
        needed = self._files.find_needed(_START, *(screen.module for screen in screens))
        styles = [f"{place}css/{screen.style}.css" for screen in screens if screen.style]
        # Paints wait for the styles.
        preload = [f'<link rel="stylesheet" href="{style}">' for style in styles]
        preload += [f'<link rel="modulepreload" href="{place}{name}">' for name in needed]
        reads = [read for screen in screens for read in screen.reads.split()]
        # The modules need the data when they have been loaded.
        preload += [
            f'<link rel="preload" as="fetch" crossorigin href="{self._base}{read}">'
            for read in reads
        ]
        head = "\n".join(preload)
        for mark, value in (("base", self._base), ("ui", place), ("head", head)):
            text = text.replace(f"{{{mark}}}", value)
        body = text.encode()
        tag = b'"%b"' % hashlib.sha256(body).hexdigest()[:16].encode()
        shared = [*_HEADERS, _VARY, (b"cache-control", b"no-cache"), (b"etag", tag)]
        if scope["schedo.headers"].get(b"if-none-match") == tag:
            return Response(304, b"", shared=shared)
        if _takes_gzip(scope):
            return Response(
                200, await in_steps(_zip(body)), (_GZIPPED,), _TYPES[".html"], None, shared
            )
        return Response(200, body, content_type=_TYPES[".html"], shared=shared)

    async def _get_file(self, place: str, scope: Scope) -> Response:
        hash_, _, name = place.partition("/")
        if hash_ != self._files.hash or name not in self._files.imports:
            raise NotFound(f"there is no file {place[:100]!a}; load the page again")
        path = _FOLDER / name
        kind, shared = _TYPES[path.suffix], [_NO_SNIFF, _VARY, _KEEP]
        if not _takes_gzip(scope):
            return Response(200, _read(path), content_type=kind, shared=shared)
        if name not in self._zipped:
            self._zipped[name] = await in_steps(_zip(_read(path)))
        return Response(200, self._zipped[name], (_GZIPPED,), kind, shared=shared)


def _takes_gzip(scope: Scope) -> bool:
    return b"gzip" in scope["schedo.headers"].get(b"accept-encoding", b"")


class _Files(NamedTuple):
    """One hash of all files that are served, and what each of them imports, by name."""

    hash: str
    imports: Mapping[str, Sequence[str]]

    def find_needed(self, *names: str) -> list[str]:
        """Return these modules and all that they import: a browser need not find it by steps."""
        found: dict[str, None] = {}
        waiting = [name for name in names if name in self.imports]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = None
                waiting += self.imports[name]
        return sorted(found)


def _find_files() -> Generator[None, None, _Files]:
    found = hashlib.sha256()
    imports = {}
    for path in sorted(_FOLDER.rglob("*")):
        if path.suffix in _TYPES and path.is_file():
            name, text = path.relative_to(_FOLDER).as_posix(), path.read_bytes()
            found.update(b"%b\0%b\0" % (name.encode(), text))
            imports[name] = _find_imports(name, text) if path.suffix == ".js" else []
            yield
    return _Files(found.hexdigest()[:12], imports)


def _find_imports(name: str, text: bytes) -> list[str]:
    """Return the names of the modules that a module imports at its start."""
    folder = posixpath.dirname(name)
    paths = (imported.decode() for imported in _IMPORT.findall(text))
    return [posixpath.normpath(posixpath.join(folder, path)) for path in paths]


def _read(path: Path) -> bytes:
    """Return a file without its comments, a tenth of what a browser would get."""
    text, comment = path.read_bytes(), _COMMENTS.get(path.suffix)
    return comment.sub(b"", text) if comment else text


def _zip(body: bytes) -> Generator[None, None, bytes]:
    packer = zlib.compressobj(9, wbits=_GZIP)
    parts = []
    for at in range(0, len(body), _STEP_BYTES):
        parts.append(packer.compress(body[at : at + _STEP_BYTES]))
        yield
    return b"".join([*parts, packer.flush()])
