"""A priority queue whose keys are looked at only when they surface.

Each item is filed under a lower bound of its key. An item that surfaces under a key that has grown
meanwhile sinks to its place, and one that has no key any more leaves. So a key that grows or goes
costs nothing until its turn comes; whoever lets a key shrink, or come back, pushes the item again.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Key = tuple[Any, ...]

_STALE_KEPT = 16
_numbers = count()  # so that equal keys never compare the items


class LazyHeap(Generic[Item]):
    """Items by key, the smallest key first."""

    __slots__ = ("_bounds", "_heap", "_key")

    def __init__(self, key: Callable[[Item], Key | None]) -> None:
        """The function returns an item's present key; None means that it is not to be found."""
        self._key = key
        self._bounds: dict[Item, Key] = {}
        self._heap: list[tuple[Key, int, Item]] = []

    def __len__(self) -> int:
        """Return how many items there may be: some may have lost their key."""
        return len(self._bounds)

    def push(self, item: Item, bound: Key) -> bool:
        """Let the item be found; its key is the bound or larger. False if it would be anyway."""
        known = self._bounds.get(item)
        if known is not None and known <= bound:
            return False
        self._bounds[item] = bound
        heappush(self._heap, (bound, next(_numbers), item))
        if len(self._heap) > 2 * len(self._bounds) + _STALE_KEPT:
            self._heap = [(key, next(_numbers), each) for each, key in self._bounds.items()]
            heapify(self._heap)
        return True

    def discard(self, item: Item) -> None:
        """Forget the item if it is here."""
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
                heapreplace(heap, (key, next(_numbers), item))
        return None

    def pop(self) -> Item | None:
        """Remove and return the item with the smallest key, or None."""
        item = self.first()
        if item is not None:
            heappop(self._heap)
            del self._bounds[item]
        return item
