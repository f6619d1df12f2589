"""The paged index: an ordered index whose first entries are in memory and all of them in the store.

The entries are (key, id) pairs: jobs by due time, ready jobs by rank, or schedules by next fire.
Every pair up to the horizon is in memory, and every pair after it is in the store only. A horizon
of None means that all pairs are in memory. So memory stays bounded for any number of jobs, and a
starting server loads one page instead of the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from schedo.core.limits import FIRST_PAGE_ENTRIES, PAGE_ENTRIES_MAX, WINDOW_ENTRIES
from schedo.core.timers import Timers

Pair = tuple[int, int]
START: Pair = (-(1 << 62), 0)
_END = 1 << 62


class Window(NamedTuple):
    """How many entries of the store's orders memory holds."""

    capacity: int  # of each index
    ready_limit: int | None = None  # of all ready indexes together; None: the default of IndexSize


DEFAULT_WINDOW = Window(WINDOW_ENTRIES)


class IndexSize:
    """The size of an index: above `limit` entries it is trimmed to `capacity`. It can be shared."""

    __slots__ = ("capacity", "limit")

    def __init__(self, capacity: int, limit: int | None = None) -> None:
        """Without a limit, the limit is one and a half times the capacity."""
        self.capacity = capacity
        self.limit = 3 * capacity // 2 if limit is None else limit


class PagedIndex:
    """The head of one order. It loads a page below half of the capacity, and trims at the limit."""

    __slots__ = ("_live", "_timers", "horizon", "is_loading", "size")

    def __init__(self, size: IndexSize, *, empty: bool = False) -> None:
        """Start without entries. `empty` means that the store has no entry of this order either."""
        self.size = size
        self._timers = Timers()
        self._live = self._timers.live
        self.horizon: Pair | None = None if empty else START
        self.is_loading = False

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, ident: int) -> bool:
        return ident in self._timers

    def ids(self) -> Iterable[int]:
        """Return the ids in memory, in no order."""
        return self._live

    @property
    def is_exhausted(self) -> bool:
        """Whether neither memory nor the store has an entry."""
        return self.horizon is None and not self._live

    def add(self, key: int, ident: int) -> bool:
        """Add the entry; return False if it is after the horizon, so that only the store has it."""
        if self.horizon is not None and (key, ident) > self.horizon:
            return False
        self._timers.arm(ident, key)
        return True

    def add_page(self, entries: Iterable[Pair]) -> None:
        """Add loaded entries up to the horizon that are not in memory."""
        self._timers.arm_new(entries)

    def skip_to(self, pair: Pair) -> None:
        """Continue to load after the pair. The caller handles the stored entries before it."""
        self.horizon = pair

    def retreat(self, first: Pair) -> list[int]:
        """Move the horizon back to before the pair, and return the ids that are removed for it.

        The store has new entries from the pair on; the removed ones are loaded again with them.
        """
        last = (first[0], first[1] - 1)
        if self.horizon is not None and self.horizon <= last:
            return []
        self.horizon = last
        return [ident for _, ident in self._timers.keep_through(last)]

    def restart(self) -> list[int]:
        """Remove all entries and load the order from its start again; return the removed ids."""
        self.horizon = START
        self.is_loading = False
        return [ident for _, ident in self._timers.keep_first(0)]

    def remove(self, ident: int) -> None:
        """Remove the entry if it is in memory."""
        self._timers.cancel(ident)

    def first(self) -> Pair | None:
        """Return the first pair in memory, or None."""
        return self._timers.first()

    def bound(self) -> Pair | None:
        """Return the first pair in memory; if only the store has some, a pair that is before them.

        None: neither has one.
        """
        first = self._timers.first()
        return self.horizon if first is None else first

    def pop_first(self, limit: int) -> list[Pair]:
        """Remove and return the first pairs in memory, at most `limit`."""
        return self._timers.pop_due(_END, limit)

    def pop_due(self, now: int, limit: int) -> list[Pair]:
        """Remove and return, in order, up to `limit` pairs whose key is not after `now`."""
        return self._timers.pop_due(now, limit)

    @property
    def is_overfull(self) -> bool:
        """Whether the index has more entries than its limit."""
        return len(self._live) > self.size.limit

    def trim(self) -> Iterable[int]:
        """Trim an overfull index to its capacity; return the removed ids, which the store keeps.

        It keeps more where the low mark is above the capacity: the next page would bring back at
        once what was removed.
        """
        if not self.is_overfull:
            return ()
        return self.shorten(max(self.size.capacity, self.low_mark + 1))

    def shorten(self, count: int) -> list[int]:
        """Keep the first `count` entries, which must be at least one; return the removed ids."""
        rest = self._timers.keep_first(count)
        self.horizon = self._timers.last()
        return [ident for _, ident in rest]

    @property
    def page_size(self) -> int:
        """The number of entries per page. It is small, because commits wait for the read."""
        most = FIRST_PAGE_ENTRIES if self.horizon == START else PAGE_ENTRIES_MAX
        return min(self.size.capacity, most)

    @property
    def low_mark(self) -> int:
        """The number of entries in memory at which the next page is loaded."""
        return self.size.capacity // 2

    def needs_page(self) -> bool:
        """Whether the store has more entries, few are in memory, and no page is loading."""
        return self.horizon is not None and not self.is_loading and len(self._live) <= self.low_mark

    def extend(self, after: Pair, last: Pair | None) -> bool:
        """Move the horizon to the last pair of the page that was loaded after `after`.

        `last` is None if the page reaches the end of the order. Return False if the horizon has
        moved since the load, for then the page leaves a gap and must not be used.
        """
        self.is_loading = False
        if self.horizon != after:
            return False
        self.horizon = last
        return True
