"""Lists as JSON: a short one in one piece, a long one rendered while it is sent.

So no list is in memory as a whole, and no list blocks the event loop: other work of the loop runs
between the pieces, and the next one is rendered when the client has received the one before.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import orjson

from schedo.engine.sharing import STEP_S, in_steps
from schedo.web.http import PIECE_BYTES, Header, Response

T = TypeVar("T")

LIST_BYTES = 1_048_576  # what a request for a list of unknown length claims


async def page_response(
    render: Callable[[T], Any],
    items: Iterable[T],
    next_cursor: str | None = None,
    headers: tuple[Header, ...] = (),
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> Response:
    """Return a page of the items, which may be made while they are rendered.

    `render` returns the Struct of an item, the fields of a job, or the JSON of one or more items.
    facts: further fields of the page.
    """
    last = dict(facts) if next_cursor is None else {"next_cursor": next_cursor, **facts}
    texts = _render_page(render, items, last)
    begin, has_more = await in_steps(_join(texts))
    if has_more:
        return Response(200, b"", headers, pieces=_render_rest(begin, texts))
    return Response(200, begin, headers)


def _render_page(
    render: Callable[[T], Any], items: Iterable[T], last: Mapping[str, Any]
) -> Iterator[bytes]:
    yield b'{"items":['
    comma = b""
    for item in items:
        yield comma + _encode(render(item))
        comma = b","
    yield b"],%b" % orjson.dumps(last)[1:] if last else b"]}"


def _encode(item: Any) -> bytes:
    if isinstance(item, bytes):
        return item
    return msgspec.json.encode(item) if isinstance(item, msgspec.Struct) else orjson.dumps(item)


async def _render_rest(begin: bytes, texts: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    piece, has_more = begin, True
    while has_more:
        yield piece
        piece, has_more = await in_steps(_join(texts))
    yield piece


def _join(texts: Iterator[bytes]) -> Generator[None, None, tuple[bytes, bool]]:
    """Return the next texts, about PIECE_BYTES, and whether more may follow."""
    parts: list[bytes] = []
    size = 0
    until = time.perf_counter() + STEP_S
    for text in texts:
        parts.append(text)
        size += len(text)
        if size >= PIECE_BYTES:
            return b"".join(parts), True
        if time.perf_counter() > until:
            yield
            until = time.perf_counter() + STEP_S
    return b"".join(parts), False
