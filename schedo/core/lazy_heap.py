"""A priority queue that checks the key of an item only when the item reaches the top.

Each item is filed under a lower bound of its key. When it reaches the top, an item whose key has
grown sinks to its new place, and an item that has no key any more is removed. So a key that grows
or disappears costs nothing until then. When a key shrinks or returns, the caller pushes the item
again.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count, islice
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Key = tuple[Any, ...]

_STALE_KEPT = 16


class LazyHeap(Generic[Item]):
    """Items by key, the smallest key first."""

    __slots__ = ("_bounds", "_heap", "_key", "_numbers")

    def __init__(self, key: Callable[[Item], Key | None]) -> None:
        """Set the function that returns the current key of an item; None: the item is not ready."""
        self._key = key
        self._bounds: dict[Item, Key] = {}
        self._heap: list[tuple[Key, int, Item]] = []
        self._numbers = count()  # so that equal keys never compare the items

    def __len__(self) -> int:
        """Return the number of items, including those that may have lost their key."""
        return len(self._bounds)

    def sample(self, count: int) -> list[Item]:
        """Return at most `count` items in any order; some of them may have lost their key."""
        return [*islice(self._bounds, count)]

    def push(self, item: Item, bound: Key) -> bool:
        """File the item, whose key is at least `bound`; return False if it already is filed so."""
        known = self._bounds.get(item)
        if known is not None and known <= bound:
            return False
        self._bounds[item] = bound
        heappush(self._heap, (bound, next(self._numbers), item))
        if len(self._heap) > 2 * len(self._bounds) + _STALE_KEPT:
            self._heap = [(key, next(self._numbers), each) for each, key in self._bounds.items()]
            heapify(self._heap)
        return True

    def discard(self, item: Item) -> None:
        """Remove the item if it is in the heap."""
        self._bounds.pop(item, None)

    def first(self) -> Item | None:
        """Return the item with the smallest key, or None."""
        heap, bounds = self._heap, self._bounds
        while heap:
            bound, _, item = heap[0]
            if bounds.get(item) != bound:
                heappop(heap)  # it was pushed again, or discarded
                continue
            key = self._key(item)
            if key == bound:
                return item
            if key is None:
                heappop(heap)
                del bounds[item]
            else:
                bounds[item] = key
                heapreplace(heap, (key, next(self._numbers), item))
        return None

    def pop(self) -> Item | None:
        """Remove and return the item with the smallest key, or None."""
        item = self.first()
        if item is not None:
            heappop(self._heap)
            del self._bounds[item]
        return item
