"""A channel between the engine's parts: senders add single items, the receiver drains batches.

The receiver is one callback in the loop. It runs once for all items that arrived before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from schedo.errors import Overloaded

T = TypeVar("T")


class Channel(Generic[T]):
    """Items in order; `notify` is called when the first one arrives in an empty channel."""

    __slots__ = ("_items", "_limit", "_notify")

    def __init__(self, notify: Callable[[], None], limit: int) -> None:
        self._notify = notify
        self._limit = limit
        self._items: list[T] = []

    def __len__(self) -> int:
        return len(self._items)

    def try_send(self, item: T) -> None:
        """Add an item; raise Overloaded when the channel is full."""
        if len(self._items) >= self._limit:
            raise Overloaded(f"{self._limit} requests are waiting already; try again soon")
        self.send(item)

    def send(self, item: T) -> None:
        """Add an item even if the channel is full, for senders that limit themselves."""
        self._items.append(item)
        if len(self._items) == 1:
            self._notify()

    def put_back(self, items: list[T]) -> None:
        """Put items before all others; `notify` is called if there are any."""
        self._items[:0] = items
        if items:
            self._notify()

    def drain(self) -> list[T]:
        """Remove and return all items."""
        items, self._items = self._items, []
        return items
