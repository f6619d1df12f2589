"""The memory that a child process shares with its server.

It costs no message, and what a child has written is there even after its sudden death: the number
of the leases that it has started, and the results that it has not sent yet.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple, Self

from schedo.worker.process import staged_results
from schedo.worker.process.staged_results import StagedResults
from schedo.worker.process.start_counter import StartCounter


class ChildMemory(NamedTuple):
    """The parts of the memory, as either side maps them."""

    starts: StartCounter
    staged: StagedResults

    @classmethod
    def map(cls, descriptor: int) -> Self:
        """Map the memory; the descriptor can be closed then."""
        return cls(StartCounter(descriptor), StagedResults(descriptor))

    def close(self) -> None:
        """Unmap the memory."""
        self.starts.close()
        self.staged.close()


def make_memory() -> int:
    """Return a descriptor of new shared memory; both sides map it, then close the descriptor."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("schedo-child")
    else:
        import tempfile  # it takes half a megabyte with what it imports

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, staged_results.AT + staged_results.BYTES)
    return descriptor
