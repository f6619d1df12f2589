"""The leases for a child of one pass of the event loop: they cost one frame and one write.

A frame is bounded, so a batch is sent before a lease would make it too large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import attrgetter

import msgspec

from schedo.core.leases import Lease
from schedo.core.model import PLAIN, Options

BATCH_BYTES_MAX = 1_048_576  # unless a single lease is larger
LEASE_BYTES_MAX = 512  # without its options and its payload
_SHORT_OPTIONS = frozenset({"retry", "timeout_us", "at_most_once"})  # most jobs have only these
_SHORT_OPTIONS_BYTES_MAX = 512
_get_long = attrgetter(*(n for n in Options.__struct_fields__ if n not in _SHORT_OPTIONS))
_NOTHING_LONG = _get_long(PLAIN)
_encoder = msgspec.msgpack.Encoder()


class LeaseBatch:
    """Leases in order; `send` gets them at the end of the pass, or earlier when they are many."""

    def __init__(self, send: Callable[[list[Lease]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._send = send
        self._leases: list[Lease] = []
        self._bytes = 0
        self._options: Options | None = None  # of the last lease, which most others share
        self._options_bytes = 0
        self._is_flush_due = False

    def add(self, lease: Lease) -> None:
        """Add the lease; it is sent at the end of this pass of the loop."""
        options = lease.options
        if options is not self._options:
            self._options, self._options_bytes = options, measure_options(options)
        size = LEASE_BYTES_MAX + self._options_bytes + len(lease.payload or b"")
        if self._bytes + size > BATCH_BYTES_MAX:
            self.flush()
        self._leases.append(lease)
        self._bytes += size
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_due)

    def flush(self) -> None:
        """Send the collected leases now."""
        if self._leases:
            leases, self._leases = self._leases, []
            self._bytes = 0
            self._send(leases)

    def clear(self) -> None:
        """Send none of the collected leases: their child has ended."""
        self._leases, self._bytes = [], 0

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self.flush()


def measure_options(options: Options) -> int:
    """Return an upper bound of the size of the options in a frame, in bytes."""
    if _get_long(options) == _NOTHING_LONG:
        return _SHORT_OPTIONS_BYTES_MAX
    return len(_encoder.encode(options))
