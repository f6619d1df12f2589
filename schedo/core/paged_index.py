"""The head of one order: memory holds its first entries, the store holds them all.

An order is a set of (key, id) pairs: jobs by due time, a lane's jobs by rank, schedules by next
fire. The horizon is the last pair that is surely in memory: every pair up to it is here, every
pair behind it is in the store only. No horizon means that everything is here. So memory stays
bounded however many jobs there are, and a start loads one page instead of the table.
"""

from __future__ import annotations

from collections.abc import Iterable

from schedo.core.limits import PAGE_ENTRIES_MAX
from schedo.core.timers import Timers

Pair = tuple[int, int]
START: Pair = (-(1 << 62), 0)
_END = 1 << 62


class Room:
    """How much a window may hold: above limit entries, capacity are kept. Windows can share one."""

    __slots__ = ("capacity", "limit")

    def __init__(self, capacity: int, limit: int | None = None) -> None:
        """Without a limit it is half again the capacity."""
        self.capacity = capacity
        self.limit = 3 * capacity // 2 if limit is None else limit


class PagedIndex:
    """The first entries of one order: from half of its room's capacity up to its limit."""

    __slots__ = ("_live", "_room", "_timers", "horizon", "is_loading")

    def __init__(self, room: Room, *, empty: bool = False) -> None:
        """Start with nothing known; empty says that the store has no entry of this order."""
        self._room = room
        self._timers = Timers()
        self._live = self._timers.live
        self.horizon: Pair | None = None if empty else START
        self.is_loading = False

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, ident: int) -> bool:
        return ident in self._timers

    @property
    def is_exhausted(self) -> bool:
        """Whether neither memory nor store has an entry."""
        return self.horizon is None and not self._live

    def add(self, key: int, ident: int) -> bool:
        """Take the entry in; False if it sorts behind the horizon and stays in the store only."""
        if self.horizon is not None and (key, ident) > self.horizon:
            return False
        self._timers.arm(ident, key)
        return True

    def skip_to(self, pair: Pair) -> None:
        """Go on loading behind the pair; somebody else sees to what the store has before it."""
        self.horizon = pair

    def retreat(self, first: Pair) -> list[int]:
        """Note that the store has new entries from the pair on; return the ids behind it.

        Those are no longer here: they are loaded again, in order with the new ones.
        """
        last = (first[0], first[1] - 1)
        if self.horizon is not None and self.horizon <= last:
            return []
        self.horizon = last
        return [ident for _, ident in self._timers.keep_through(last)]

    def restart(self) -> list[int]:
        """Forget all entries and begin anew with what the store has; return their ids."""
        self.horizon = START
        self.is_loading = False
        return [ident for _, ident in self._timers.keep_first(0)]

    def remove(self, ident: int) -> None:
        """Forget the entry if it is here."""
        self._timers.cancel(ident)

    def first(self) -> Pair | None:
        """Return the first pair in memory, or None."""
        return self._timers.first()

    def pop_first(self, limit: int) -> list[Pair]:
        """Remove and return up to limit pairs, the first ones in memory."""
        return self._timers.pop_due(_END, limit)

    def pop_due(self, now: int, limit: int) -> list[Pair]:
        """Remove and return up to limit pairs whose key is not after now, first ones first."""
        return self._timers.pop_due(now, limit)

    @property
    def is_overfull(self) -> bool:
        """Whether there is more here than may stay."""
        return len(self._live) > self._room.limit

    def trim(self) -> Iterable[int]:
        """Return the ids that no longer fit, now in the store only; a little too many still fit."""
        if not self.is_overfull:
            return ()
        rest = self._timers.keep_first(self._room.capacity)
        self.horizon = self._timers.last()
        return [ident for _, ident in rest]

    @property
    def page_size(self) -> int:
        """How many entries are loaded at a time: few, for commits wait while a page is read."""
        return min(self._room.capacity, PAGE_ENTRIES_MAX)

    def needs_page(self) -> bool:
        """Whether the store has more and too little is here; one page is asked for at a time."""
        return (
            self.horizon is not None
            and not self.is_loading
            and len(self._live) <= self._room.capacity // 2
        )

    def extend(self, after: Pair, last: Pair | None) -> bool:
        """Move the horizon to the last pair of the page loaded after `after`; None: the end.

        Return False if the window was trimmed meanwhile: the page no longer joins up.
        """
        self.is_loading = False
        if self.horizon != after:
            return False
        self.horizon = last
        return True
