"""The results of one pass of a child's event loop: they cost one frame and one write.

A result waits for the end of the pass only while other attempts run, and a handler begins only when
the results before it are new. What a handler can still hold up, because it blocks the loop or ends
the process, the server reads from the staged results.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from schedo.core.leases import AttemptResult
from schedo.protocol.frames import encode_result, frame_results
from schedo.worker.process.staged_results import StagedResults

NEW_S = 0.001  # how old a result may be when the next handler begins


class ResultBatch:
    """Results in order; `write` gets them at the end of the pass, or earlier when they are many."""

    def __init__(self, staged: StagedResults, write: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._staged = staged
        self._write = write
        self._since = 0.0  # when the first of them was added, on the monotonic clock
        self._is_flush_due = False

    def add(self, result: AttemptResult) -> None:
        """Add the result; it is sent at the end of this pass of the loop."""
        encoded = encode_result(result)
        if not self._staged.add(encoded):
            self.flush()
            if not self._staged.add(encoded):  # it is larger than the memory
                self._write(frame_results(1, encoded))
                return
        if self._staged.count == 1:
            self._since = time.monotonic()
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_due)

    def flush_old(self, now: float) -> None:
        """Send the results now if one is older than NEW_S; `now` is on the monotonic clock."""
        if self._staged.count and now - self._since > NEW_S:
            self.flush()

    def flush(self) -> None:
        """Send the collected results now."""
        if self._staged.count:
            # They are cleared after the write: the server drops a result that it gets twice.
            self._write(frame_results(self._staged.count, self._staged.encoded()))
            self._staged.clear()

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self.flush()
