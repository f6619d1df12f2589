"""Collects the items of one pass of the event loop, so that they cost one frame and one write.

A frame is bounded, so a batch is flushed before an item would make it too large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

BATCH_BYTES_MAX = 1_048_576  # unless a single item is larger


class Batcher(Generic[T]):
    """Items in order; `send` gets them at the end of the pass, or earlier when they are many."""

    def __init__(self, measure: Callable[[T], int], send: Callable[[list[T]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._measure = measure
        self._send = send
        self._items: list[T] = []
        self._bytes = 0
        self._is_flush_due = False

    def add(self, item: T) -> None:
        """Add the item; it is sent at the end of this pass of the loop."""
        size = self._measure(item)
        if self._bytes + size > BATCH_BYTES_MAX:
            self.flush()
        self._items.append(item)
        self._bytes += size
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_due)

    def flush(self) -> None:
        """Send the collected items now."""
        if self._items:
            items, self._items = self._items, []
            self._bytes = 0
            self._send(items)

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self.flush()
