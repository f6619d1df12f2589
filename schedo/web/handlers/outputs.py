"""Captured output, read and rendered in pieces.

A job may keep 8 MiB of output, which is up to six times as much in JSON. So the server never holds
all of it: it reads the next piece when the client has received the one before.
"""

from __future__ import annotations

import base64
import codecs
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Literal, Protocol

import orjson

from schedo.engine.sharing import in_steps
from schedo.store.base import OutputPiece, OutputSize


class OutputSource(Protocol):
    """Where the output of a job is: the store, or memory for a moment."""

    async def list_output_sizes(self, job_id: int) -> list[OutputSize]:
        """Return the sizes of the captured streams."""

    async def read_output(self, job_id: int, piece: OutputPiece) -> bytes:
        """Return a range of a captured stream; empty if it is gone."""


_PIECE_BYTES = 49_152  # a multiple of three, so that the base64 of the pieces joins
_PARTS: tuple[Literal["head"], Literal["tail"]] = ("head", "tail")


async def render_outputs(
    source: OutputSource, job_id: int, sizes: Sequence[OutputSize]
) -> AsyncGenerator[bytes, None]:
    """Yield the page of a job's outputs as JSON; an output that was pruned meanwhile is empty."""
    yield b'{"items":['
    before = b""
    for size in sizes:
        name = orjson.dumps(size.stream)
        yield before + b'{"attempt":%d,"stream":%b,"text":"' % (size.attempt, name)
        before = b","
        text = codecs.getincrementaldecoder("utf-8")("replace")
        check = _Utf8Check()
        async for part in read_output(source, job_id, size):
            yield await in_steps(_render_text(text, check, part))
        end = orjson.dumps(text.decode(b"", final=True))[1:-1]
        truncated = b"true" if _left_out(size) else b"false"
        yield b'%b","total_bytes":%d,"truncated":%b' % (end, size.total, truncated)
        if not check.is_utf8():
            yield b',"encoding":"base64","base64":"'
            async for piece in _encode(source, job_id, size):
                yield piece
            yield b'"'
        yield b"}"
    yield b"]}"


def _render_text(
    text: codecs.IncrementalDecoder, check: _Utf8Check, part: bytes
) -> Generator[None, None, bytes]:
    """Return the part as the inside of a JSON string."""
    check.feed(part)
    yield
    return orjson.dumps(text.decode(part))[1:-1]


class _Utf8Check:
    """Checks whether bytes that come in pieces are UTF-8."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._is_broken = False

    def feed(self, part: bytes, is_last: bool = False) -> None:
        try:
            if not self._is_broken:
                self._decoder.decode(part, final=is_last)
        except UnicodeDecodeError:
            self._is_broken = True

    def is_utf8(self) -> bool:
        self.feed(b"", is_last=True)
        return not self._is_broken


async def _encode(
    source: OutputSource, job_id: int, size: OutputSize
) -> AsyncGenerator[bytes, None]:
    rest = b""
    async for part in read_output(source, job_id, size):
        data = rest + part
        end = len(data) // 3 * 3
        rest = data[end:]
        yield base64.b64encode(data[:end])
    yield base64.b64encode(rest)


async def read_output(
    source: OutputSource, job_id: int, size: OutputSize
) -> AsyncGenerator[bytes, None]:
    """Yield the kept bytes of a stream, with a line of text where bytes are missing."""
    for part in _PARTS:
        length = size.head if part == "head" else size.tail
        if part == "tail" and _left_out(size):
            yield b"\n[... %d bytes left out ...]\n" % _left_out(size)
        for at in range(0, length, _PIECE_BYTES):
            piece = OutputPiece(size.attempt, size.stream, part, at, min(_PIECE_BYTES, length - at))
            yield await source.read_output(job_id, piece)


def _left_out(size: OutputSize) -> int:
    return max(0, size.total - size.head - size.tail)
