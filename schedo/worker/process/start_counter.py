"""How many of its leases a child has begun, in memory that it shares with its server.

A child begins its leases in the order in which they were sent, so one number tells which it has
begun. It is written before the first line of a handler and lies outside of the process: it costs no
message, and it is right even when that line blocks or ends the process.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile

_BYTES = 8


def make_memory() -> int:
    """Return a descriptor of new memory that can be shared; both sides map it, then close it."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("schedo-starts")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, _BYTES)
    return descriptor


class StartCounter:
    """The number, as both processes see it."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _BYTES)
        self._numbers = memoryview(self._memory).cast("Q")

    @property
    def count(self) -> int:
        """How many leases have been begun: so many of those that were sent first."""
        return self._numbers[0]

    @count.setter
    def count(self, count: int) -> None:
        self._numbers[0] = count

    def close(self) -> None:
        """Let go of the memory."""
        self._numbers.release()
        self._memory.close()
