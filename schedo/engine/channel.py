"""A small bounded channel between the engine's parts: send from any thread, drain in batches.

The receiver is one callback in the loop, called once however many items arrived before it ran.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from schedo.errors import Overloaded

T = TypeVar("T")


class Channel(Generic[T]):
    """Items in order; `notify` runs soon after the first one arrives in an empty channel."""

    __slots__ = ("_items", "_limit", "_loop", "_notify")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, notify: Callable[[], None], limit: int
    ) -> None:
        self._loop = loop
        self._notify = notify
        self._limit = limit
        self._items: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def send(self, item: T) -> None:
        """Add an item from the loop's own thread; raise Overloaded when the channel is full."""
        items = self._items
        if len(items) >= self._limit:
            raise Overloaded(f"{self._limit} requests are waiting already; try again soon")
        items.append(item)
        if len(items) == 1:
            self._notify()

    def send_threadsafe(self, item: T) -> None:
        """Add an item from any thread; it is never refused, for the sender could not be told."""
        self._items.append(item)
        self._loop.call_soon_threadsafe(self._notify)

    def drain(self) -> list[T]:
        """Remove and return all items."""
        items = self._items
        return [items.popleft() for _ in range(len(items))]
