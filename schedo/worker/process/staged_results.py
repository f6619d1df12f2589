"""The results that a child has not sent yet, in memory that it shares with its server.

A child sends the results of one pass of its event loop with one write. Until then each result is
here as well, so none is lost when the next handler ends the process, and none waits for long when
the next handler blocks the loop: then the server reads them here.
"""

from __future__ import annotations

import mmap

from schedo.core.leases import AttemptResult
from schedo.protocol.frames import BadFrame, decode_results

AT = mmap.ALLOCATIONGRANULARITY  # where they begin, behind the start counter
BYTES = 65_536
_HEAD_BYTES = 16
_USED_BITS = 32


class StagedResults:
    """Encoded results, one behind the other; the child writes them and the server reads them.

    The memory begins with two numbers: how often it was cleared, and the count of the results with
    the sum of their bytes. The child writes each number at once, and the second one after the bytes
    that it counts, so what a dead child left is whole.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, BYTES, offset=AT)
        self._view = memoryview(self._memory)
        self._numbers = self._view[:_HEAD_BYTES].cast("Q")
        self.count = self._used = 0  # of the child
        # Of the server: what it saw and what it took last.
        self._seen = self._taken = (0, 0)

    # The child's side.

    def add(self, encoded: bytes) -> bool:
        """Add an encoded result; return False if there is no room for it."""
        start = _HEAD_BYTES + self._used
        end = start + len(encoded)
        if end > BYTES:
            return False
        self._view[start:end] = encoded
        self.count += 1
        self._used += len(encoded)
        self._numbers[1] = self.count << _USED_BITS | self._used
        return True

    def encoded(self) -> bytes:
        """Return the encoded results."""
        return bytes(self._view[_HEAD_BYTES : _HEAD_BYTES + self._used])

    def clear(self) -> None:
        """Remove all results, which are sent."""
        self.count = self._used = 0
        self._numbers[0] += 1
        self._numbers[1] = 0

    # The server's side.

    def take_stuck(self) -> list[AttemptResult]:
        """Return the results if they are the same as at the previous call, and only once."""
        numbers = self._read_numbers()
        was_seen, self._seen = numbers == self._seen, numbers
        if not was_seen or numbers == self._taken:
            return []
        results = self.read()
        if self._read_numbers() != numbers:  # the child has just continued, and sends them
            return []
        self._taken = numbers
        return results

    def read(self) -> list[AttemptResult]:
        """Return the results; none if the child has damaged them."""
        count, used = divmod(self._numbers[1], 1 << _USED_BITS)
        if not count:
            return []
        try:
            return decode_results(count, bytes(self._view[_HEAD_BYTES : _HEAD_BYTES + used]))
        except BadFrame:
            return []

    def _read_numbers(self) -> tuple[int, int]:
        return self._numbers[0], self._numbers[1]

    def close(self) -> None:
        """Unmap the memory."""
        self._numbers.release()
        self._view.release()
        self._memory.close()
