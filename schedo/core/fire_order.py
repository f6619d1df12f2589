"""The order in which schedules fire: newly due ones before overdue ones.

A paged index holds the schedules that fire soonest. Overdue schedules beyond it form a backlog that
is loaded page by page. Each fire is computed, so schedules cannot be moved in bulk as jobs are.

Schedules that fire every few seconds stay in memory and go first. In the order of the index they
would wait among, say, a hundred thousand schedules of the same instant, and miss many fires.

The payloads of the schedules in memory are bounded in bytes: the index is shortened when they are
too large together, and no page is loaded while they are large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from schedo.core.backlog import Backlog
from schedo.core.limits import (
    FREQUENT_US,
    SCHEDULE_PAGE_PAYLOADS_BYTES_MAX,
    SCHEDULE_PAYLOADS_BYTES_MAX,
)
from schedo.core.loads import LoadSchedules
from schedo.core.model import Schedule
from schedo.core.paged_index import IndexSize, PagedIndex, Pair
from schedo.core.timers import Timers, earliest


class FireOrder:
    """The ids of the schedules in memory, by their next fire."""

    def __init__(self, capacity: int, payload_bytes: Callable[[Iterable[int]], int]) -> None:
        """payload_bytes: returns the size of the payloads of these schedules together."""
        self._payload_bytes = payload_bytes
        self._capacity = capacity
        self.index = PagedIndex(IndexSize(capacity))
        self.backlog = Backlog()
        self.overdue: dict[int, int] = {}  # next fire by id, loaded from the backlog
        self._frequent = Timers()

    def __len__(self) -> int:
        return len(self.index) + len(self.overdue) + len(self._frequent)

    def __contains__(self, ident: int) -> bool:
        return ident in self.index or ident in self.overdue or ident in self._frequent

    @property
    def is_exhausted(self) -> bool:
        """Whether no schedule fires: neither memory nor the store has one."""
        return (
            self.index.is_exhausted
            and self.backlog.through is None
            and not (self._frequent.live or self.overdue)
        )

    def arm(self, ident: int, at: int) -> bool:
        """Set the next fire; return False if it is after the horizon of the index."""
        self._frequent.cancel(ident)
        self.overdue.pop(ident, None)
        if self.index.add(at, ident):
            return True
        self.index.remove(ident)
        return False

    def keep(self, ident: int, at: int, now: int) -> bool:
        """Keep a schedule in memory that fires again within FREQUENT_US, if there is room."""
        if at - now > FREQUENT_US or len(self._frequent) >= self._capacity:
            return False
        self._frequent.arm(ident, at)
        return True

    def disarm(self, ident: int) -> None:
        """Remove the schedule."""
        self.index.remove(ident)
        self._frequent.cancel(ident)
        self.overdue.pop(ident, None)

    def restart(self) -> None:
        """Remove all schedules and load the order again."""
        self.index.restart()
        self.backlog = Backlog()
        self.overdue = {}
        self._frequent = Timers()

    def trim(self) -> Iterable[int]:
        """Trim the index; return the removed ids, which the store keeps."""
        return self.index.trim()

    def trim_payloads(self) -> list[int]:
        """Shorten the index to payloads that may stay in memory; return the removed ids."""
        removed: list[int] = []
        while (
            len(self.index) > 1
            and self._payload_bytes(self.index.ids()) > SCHEDULE_PAYLOADS_BYTES_MAX
        ):
            removed += self.index.shorten(len(self.index) // 2)
        return removed

    def pop_due(self, now: int, limit: int) -> list[int]:
        """Remove and return up to `limit` due schedules; a fourth is left to overdue ones."""
        due = [ident for _, ident in self._frequent.pop_due(now, limit)]
        free = limit - len(due) - (limit // 4 if self.overdue else 0)
        due += [ident for _, ident in self.index.pop_due(now, max(0, free))]
        self.backlog.take_over(self.index, now)
        late = [*islice(self.overdue, limit - len(due))]
        for ident in late:
            del self.overdue[ident]
        return due + late

    def fresh_at(self) -> int | None:
        """Return the soonest fire in memory outside the backlog."""
        soonest, frequent = self.index.first(), self._frequent.first()
        return earliest(soonest and soonest[0], frequent and frequent[0])

    def next_at(self) -> int | None:
        """Return the soonest fire in memory."""
        overdue_at = next(iter(self.overdue.values()), None)
        return earliest(self.fresh_at(), overdue_at, self.backlog.next_at())

    # Pages.

    def needs_page(self) -> bool:
        """Whether a page must be loaded."""
        if self.index.horizon is None and self.backlog.through is None:
            return False  # as in each turn of a server with few schedules
        return self._needs_soonest() or self._needs_overdue()

    def _needs_soonest(self) -> bool:
        return self.index.needs_page() and self._has_room(self.index.ids())

    def _needs_overdue(self) -> bool:
        return (
            self.backlog.needs_page()
            and len(self.overdue) <= self.index.page_size
            and self._has_room(self.overdue)
        )

    def _has_room(self, ids: Iterable[int]) -> bool:
        return self._payload_bytes(ids) <= SCHEDULE_PAGE_PAYLOADS_BYTES_MAX

    def loads(self) -> list[LoadSchedules]:
        """Return the loads that are needed now, each once."""
        loads = []
        if self._needs_soonest():
            self.index.is_loading = True
            assert self.index.horizon is not None
            loads.append(LoadSchedules(self.index.horizon, self.index.page_size))
        if self._needs_overdue():
            backlog = self.backlog
            backlog.is_loading = True
            page_size = self.index.page_size
            loads.append(LoadSchedules(backlog.after, page_size, until=backlog.until))
        return loads

    def extend(self, load: LoadSchedules, page: Sequence[Schedule]) -> bool:
        """Record that the page is loaded; return False if it must not be used any more."""
        last = _last_of(page) if load.is_full(page) else None
        if load.until is None:
            return self.index.extend(load.after, last)
        if last is not None and last[0] > load.until:
            last = None
        self.backlog.advance(load.after, load.until, last)
        return True

    def take(self, load: LoadSchedules, schedule: Schedule) -> bool:
        """Add a schedule of the page; return False if its next fire does not belong in memory."""
        at, ident = schedule.next_fire_at, schedule.id
        if at is None or schedule.paused:
            return False
        if ident in self:
            return True
        if load.until is None or at > load.until:
            return self.index.add(at, ident)
        self.overdue[ident] = at
        return True


def _last_of(page: Sequence[Schedule]) -> Pair | None:
    last = page[-1]
    assert last.next_fire_at is not None, "the page holds schedules that fire"
    return last.next_fire_at, last.id
