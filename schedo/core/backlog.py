"""The backlog: overdue entries that memory has not loaded, and that are moved in bulk.

A paged index loads its order page by page. If its horizon itself is overdue, more is due than the
index can load in time, and entries that become due now would wait behind all overdue ones. So the
index skips to the present. The skipped range is the backlog: only the store has it, and it is moved
page by page, oldest first, while the index loads its own pages.
"""

from __future__ import annotations

from schedo.core.ids import ID_MAX
from schedo.core.limits import BACKLOG_AGE_US, MINUTE, SECOND
from schedo.core.paged_index import START, PagedIndex, Pair

# Minimum ages of skipped entries. If the next page is overdue as well, the next age applies.
_AGES = (1 << 62, MINUTE, 10 * SECOND, SECOND, 5 * BACKLOG_AGE_US, BACKLOG_AGE_US)


class Backlog:
    """The entries after the pair `after` up to the instant `through`; None: no entries."""

    __slots__ = ("_reach", "_skipped", "_skipped_at", "_step", "after", "is_loading", "through")

    def __init__(self) -> None:
        self.after: Pair = START  # all entries up to this pair are moved or in memory
        self.through: int | None = None  # only this class sets it
        self._reach = 0  # `through`, but not after now: the clock may have been set back
        self._skipped: Pair | None = None  # the pair to which the index skipped last, and when
        self._skipped_at = START[0]
        self._step = 0
        self.is_loading = False

    def take_over(self, index: PagedIndex, now: int) -> None:
        """Take over unloaded entries of the index if its horizon is overdue for BACKLOG_AGE_US.

        Each step takes over no more than necessary: first only the instant of the horizon, since
        many entries may share it. If the next page is overdue as well, it takes all but the last
        minute, then all but the last ten seconds, and so on. So jobs that became due while a
        server restarted still start on time.
        """
        horizon = index.horizon
        if (
            horizon is not None
            and horizon[0] < now - BACKLOG_AGE_US
            and horizon != self._skipped  # the page after it is still loading
        ):
            edge = max(horizon[0], now - self._next_age(now))
            # A trimmed index can have its horizon before entries that were moved already.
            self.after = horizon if self.through is None else min(self.after, horizon)
            self.through = edge if self.through is None else max(self.through, edge)
            self._skipped = (edge, ID_MAX)
            index.skip_to(self._skipped)
        if self.through is not None:
            self._reach = min(self.through, now)

    def _next_age(self, now: int) -> int:
        """Return the minimum age of the entries that the index skips now."""
        self._step = 0 if now - self._skipped_at > SECOND else min(self._step + 1, len(_AGES) - 1)
        self._skipped_at = now
        return _AGES[self._step]

    @property
    def until(self) -> int:
        """The instant up to which entries may be moved now."""
        return self._reach

    def needs_page(self) -> bool:
        """Return whether a page can be moved now. Only one page is moved at a time."""
        return (
            self.through is not None and not self.is_loading and self.after < (self._reach, ID_MAX)
        )

    def next_at(self) -> int | None:
        """Return when the next entry becomes due; after a clock step back it may be later."""
        if self.through is None or self.is_loading or self.needs_page():
            return None
        return self.after[0] + 1

    def advance(self, after: Pair, until: int, last: Pair | None) -> None:
        """Record that the page after `after` is moved: to its last pair or, if None, to `until`."""
        self.is_loading = False
        if self.after != after:
            return  # the backlog has grown since, and begins earlier now
        self.after = (until, ID_MAX) if last is None else last
        if self.through is not None and self.after >= (self.through, ID_MAX):
            self.through = None

    def age_us(self, now: int) -> int:
        """Return for how long the oldest entry that may be left has been due."""
        if self.through is None or self.after == START:
            return 0
        return max(0, now - self.after[0])
