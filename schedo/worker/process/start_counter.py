"""A counter of the leases that a child has started, in memory that it shares with its server.

A child starts its leases in the order in which the server sent them, so one number tells which ones
it has started. The child writes it before the first line of a handler, and the memory outlives the
child: the counter costs no message and is right even when that line blocks or ends the process.
"""

from __future__ import annotations

import mmap

_BYTES = 8


class StartCounter:
    """The shared counter; the child writes it and the server reads it."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _BYTES)
        self._numbers = memoryview(self._memory).cast("Q")

    @property
    def count(self) -> int:
        """The number of started leases, in the order in which they were sent."""
        return self._numbers[0]

    @count.setter
    def count(self, count: int) -> None:
        self._numbers[0] = count

    def close(self) -> None:
        """Unmap the memory."""
        self._numbers.release()
        self._memory.close()
