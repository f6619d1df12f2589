"""What was due before memory came to it: a stretch of one order that is moved in bulk.

A window loads the entries of its order one page after the other. When so much is due that its
horizon itself is overdue, loading on would keep everything that comes due next behind what is
overdue already. So the window skips to the present, and what it skipped is the backlog: a stretch
of the order that only the store has, moved page by page beside the window, oldest first.
"""

from __future__ import annotations

from schedo.core.ids import ID_MAX
from schedo.core.limits import BACKLOG_AGE_US, MINUTE, SECOND
from schedo.core.paged_index import START, PagedIndex, Pair

# What is skipped has been overdue so long; one step further if more is overdue than one page.
_AGES = (1 << 62, MINUTE, 10 * SECOND, SECOND, 5 * BACKLOG_AGE_US, BACKLOG_AGE_US)


class Backlog:
    """The entries behind `after` up to the instant `through`, or none."""

    __slots__ = ("_reach", "_skipped", "_skipped_at", "_step", "_through", "after", "is_loading")

    def __init__(self) -> None:
        self.after: Pair = START  # everything up to this pair is moved, or in memory
        self._through: int | None = None
        self._reach = 0  # `through`, but never after now: the clock may have been set back
        self._skipped: Pair | None = None  # to where the window skipped last, and when
        self._skipped_at = START[0]
        self._step = 0
        self.is_loading = False

    def __bool__(self) -> bool:
        """Tell whether something may be left to move."""
        return self._through is not None

    def take_over(self, index: PagedIndex, now: int) -> None:
        """Take from the window what has been overdue for BACKLOG_AGE_US and is not in memory.

        No more of it than must be: at first only the instant of the horizon, for many may share
        it. If the next page is overdue too, all but the last minute is skipped, then all but the
        last ten seconds, and so on: what came due while a server started again is still on time.
        """
        horizon = index.horizon
        if (
            horizon is not None
            and horizon[0] < now - BACKLOG_AGE_US
            and horizon != self._skipped  # the page behind it is still on its way
        ):
            edge = max(horizon[0], now - self._next_age(now))
            # The window may have been trimmed to before what was moved already.
            self.after = horizon if self._through is None else min(self.after, horizon)
            self._through = edge if self._through is None else max(self._through, edge)
            self._skipped = (edge, ID_MAX)
            index.skip_to(self._skipped)
        if self._through is not None:
            self._reach = min(self._through, now)

    def _next_age(self, now: int) -> int:
        """Return how long overdue is what the window skips now."""
        self._step = 0 if now - self._skipped_at > SECOND else min(self._step + 1, len(_AGES) - 1)
        self._skipped_at = now
        return _AGES[self._step]

    @property
    def until(self) -> int:
        """The instant up to which entries may be moved now."""
        return self._reach

    def needs_page(self) -> bool:
        """Tell whether a page can be moved now; one page is asked for at a time."""
        return (
            self._through is not None and not self.is_loading and self.after < (self._reach, ID_MAX)
        )

    def next_at(self) -> int | None:
        """Return when the rest is due, if the clock was set back to before that."""
        if self._through is None or self.is_loading or self.needs_page():
            return None
        return self.after[0] + 1

    def advance(self, after: Pair, until: int, last: Pair | None) -> None:
        """Note that the page behind `after` is moved: to its last pair, or (None) up to `until`."""
        self.is_loading = False
        if self.after != after:
            return  # more was taken over meanwhile, and it begins further back
        self.after = (until, ID_MAX) if last is None else last
        if self._through is not None and self.after >= (self._through, ID_MAX):
            self._through = None

    def age_us(self, now: int) -> int:
        """Return how long the oldest entry that may be left has been due."""
        if self._through is None or self.after == START:
            return 0
        return max(0, now - self.after[0])
