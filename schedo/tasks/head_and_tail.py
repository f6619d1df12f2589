"""The kept parts of an output stream: its first and its last bytes, in bounded memory."""

from __future__ import annotations

import codecs

from schedo.core import limits

_HALF_BYTES = limits.OUTPUT_BYTES_MAX // 2
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))  # the bytes of a UTF-8 character but its first


class HeadAndTail:
    """The first and the last bytes of a stream of any length."""

    def __init__(self, half_bytes: int = _HALF_BYTES) -> None:
        self._half = half_bytes
        self._head = bytearray()
        self._ring = bytearray()  # allocated when the head is full
        self._next = 0  # the next position to write in the ring
        self.total_bytes = 0

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        self.total_bytes += len(data)
        if len(self._head) < self._half:
            free_bytes = self._half - len(self._head)
            self._head += data[:free_bytes]
            data = data[free_bytes:]
        if data:
            self._turn(data[-self._half :])

    def _turn(self, data: bytes) -> None:
        if not self._ring:
            self._ring = bytearray(self._half)
        first = min(len(data), self._half - self._next)
        self._ring[self._next : self._next + first] = data[:first]
        self._ring[: len(data) - first] = data[first:]
        self._next = (self._next + len(data)) % self._half

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        """The bytes at the end of the stream that are not in the head."""
        if self.total_bytes < 2 * self._half:
            return bytes(self._ring[: self._next])
        return bytes(self._ring[self._next :] + self._ring[: self._next])

    def read_end(self, count: int) -> tuple[str, int]:
        """Return the last `count` bytes as text, and how many bytes the stream has up to its end.

        The text begins and ends with whole characters: the rest of one that is cut off at the end
        does not count yet.
        """
        end = self.tail if self._ring else b""
        if len(end) < count:
            missing = min(len(self._head), count - len(end))
            end = bytes(self._head[len(self._head) - missing :]) + end
        end = end[-count:]
        if len(end) < self.total_bytes:
            end = end.lstrip(_CONTINUATION_BYTES)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(end)
        pending, _ = decoder.getstate()
        return text, self.total_bytes - len(pending)
