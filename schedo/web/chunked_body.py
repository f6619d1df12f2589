"""Decodes the chunked transfer coding.

Every byte that is not data is counted: sizes, extensions and trailers are bounded, or a client
could send without end and never reach the limit of the body.
"""

from __future__ import annotations

import re

OVERHEAD_BYTES_MAX = 16_384  # in addition to as many bytes as there are data
_LINE_BYTES_MAX = 4_096
_FEW_CHUNKS = 64
_TINY_BYTES = 512
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[\t\x20-\x7e\x80-\xff]*)?\Z")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\Z")


class BadChunk(Exception):
    """The bytes are not a chunked body, or have too little data for their length."""


class Chunks:
    """The decoder of one chunked body."""

    __slots__ = (
        "_data_bytes",
        "_is_last",
        "_left",
        "_line",
        "_overhead",
        "has_tiny_chunks",
        "is_complete",
    )

    def __init__(self) -> None:
        self._line = b""  # a line that has not ended
        self._left = 0  # of the current chunk, including the line end after it
        self._is_last = False
        self._data_bytes = 0
        self._overhead = 0
        self.is_complete = False
        self.has_tiny_chunks = False  # the bytes that came last took long for their number

    def feed(self, wire: bytes) -> tuple[list[bytes], bytes]:
        """Return the data in these bytes, and the bytes after the body; raise BadChunk."""
        parts: list[bytes] = []
        wire = self._line + wire
        at, self._line = 0, b""
        while at < len(wire) and not self.is_complete:
            if self._left > 2:
                part = wire[at : at + self._left - 2]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                self._data_bytes += len(part)
                continue
            end = wire.find(b"\r\n", at)
            if end < 0 or (self._left and end != at):
                self._keep_line(wire[at:])
                break
            self._take_line(wire[at:end])
            at = end + 2
        self.has_tiny_chunks = len(parts) > max(_FEW_CHUNKS, len(wire) // _TINY_BYTES)
        return parts, wire[at:] if self.is_complete else b""

    def _keep_line(self, rest: bytes) -> None:
        if len(rest) > _LINE_BYTES_MAX or (self._left and rest != b"\r"):
            raise BadChunk
        self._line = rest

    def _take_line(self, line: bytes) -> None:
        self._overhead += len(line) + 2
        if len(line) > _LINE_BYTES_MAX or self._overhead > OVERHEAD_BYTES_MAX + self._data_bytes:
            raise BadChunk
        if self._left:  # the end of the line behind the data
            self._left = 0
        elif self._is_last:
            if line and _TRAILER.match(line) is None:
                raise BadChunk
            self.is_complete = not line
        else:
            found = _SIZE.match(line)
            if found is None:
                raise BadChunk
            size = int(found[1], 16)
            self._is_last = size == 0
            self._left = size + 2 if size else 0
