"""Whether a child process can take another large payload.

It can while it reads what is sent, and while the attempts that it holds have few bytes of payloads.
Without the second bound, a thousand slots could bring a thousand payloads of a megabyte into it.
"""

from __future__ import annotations

import asyncio

from schedo.core.leases import Lease
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX

HELD_BYTES_MAX = 16_777_216  # of one child; the last payload may exceed it


class PayloadRoom:
    """The bytes of large payloads that a child holds; `event` is set while it can take more."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.event.set()
        self._bytes = 0
        self._is_read = True
        self._is_retired = False

    def hold(self, lease: Lease) -> int:
        """Count the payload of a lease that is sent; return the bytes to release at its end."""
        size = len(lease.payload or b"")
        if size <= PAYLOAD_INLINE_BYTES_MAX:
            return 0
        self._bytes += size
        self._update()
        return size

    def release(self, size: int) -> None:
        """Count a payload no longer."""
        if size:
            self._bytes -= size
            self._update()

    def note_reading(self, is_read: bool) -> None:
        """Note whether the child reads what is sent to it."""
        self._is_read = is_read
        self._update()

    def retire(self) -> None:
        """Take leases from now on: a retired child gets none, so those that wait are released."""
        self._is_retired = True
        self._update()

    def _update(self) -> None:
        has_room = self._is_read and self._bytes < HELD_BYTES_MAX
        (self.event.set if has_room or self._is_retired else self.event.clear)()
