"""A size that a varying number of indexes share."""

from __future__ import annotations

from schedo.core.paged_index import IndexSize

_LIMIT_MIN = 4  # entries: an index always has room for a few


class Share:
    """The size of each index, so that all members together hold about `limit` entries.

    Without a limit, the size does not depend on the number of members.
    """

    def __init__(self, capacity: int, limit: int | None) -> None:
        self.size = IndexSize(capacity, limit)
        self._capacity = capacity
        self._limit = limit
        self._members = 0
        self._shares = 1  # a power of two, so that the size changes seldom

    def join(self) -> bool:
        """Count a new member; return whether the size has changed."""
        self._members += 1
        return self._members > self._shares and self._divide(2 * self._shares)

    def leave(self) -> bool:
        """Count a member less; return whether the size has changed."""
        self._members -= 1
        return 4 * self._members < self._shares and self._divide(self._shares // 2)

    def _divide(self, shares: int) -> bool:
        if shares < 1:
            return False
        self._shares = shares
        if self._limit is None:
            return False
        self.size.limit = max(_LIMIT_MIN, self._limit // shares)
        self.size.capacity = min(self._capacity, max(2, self.size.limit // 2))
        return True
