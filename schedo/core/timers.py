"""Timers by key, soonest first: coarse buckets in front of a queue and a heap.

Distant entries are unsorted in buckets, so arming a timer is an append. When a bucket becomes the
soonest one, it becomes the queue, or the heap if it is large. From then on, an entry behind the
last one of the queue is appended to it, and only the others go into the heap: most jobs come in the
order in which they start, and a heap takes a microsecond for each. Cancelling is lazy: a stale
entry is dropped when it comes first. When more than half of all entries are stale, the structure is
rebuilt, so memory stays within twice the number of live entries. One lock guards everything, so any
thread may arm a timer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from threading import Lock

# 2^26 us = 67 s: at 5,000 timers a second a bucket holds 335,000, a heap of 18 levels.
_BUCKET_BITS = 26
_STALE_KEPT = 64
_SORTED_MAX = 16_384  # entries of a bucket that is sorted at once; a larger one becomes a heap
_Entry = tuple[int, int]
_KEY_MAX = 1 << 63


def earliest(*instants: int | None) -> int | None:
    """Return the first of the instants, or None if there is none."""
    found = None
    for at in instants:
        if at is not None and (found is None or at < found):
            found = at
    return found


class Timers:
    """An instant for each key. Every method takes the lock, and none blocks for long."""

    __slots__ = ("_buckets", "_current", "_heap", "_lock", "_order", "_queue", "_stale", "live")

    def __init__(self) -> None:
        self._lock = Lock()
        self.live: dict[int, int] = {}  # the instants by key; callers only read it
        # The entries of the buckets up to _current: those that came in order, and the others.
        self._queue: deque[_Entry] = deque()
        self._heap: list[_Entry] = []
        self._buckets: dict[int, list[_Entry]] = {}
        self._order: list[int] = []  # heap of the numbers of the buckets
        self._current = -(1 << 62)
        self._stale = 0

    def __len__(self) -> int:
        return len(self.live)

    def __contains__(self, key: int) -> bool:
        return key in self.live

    def arm(self, key: int, at: int) -> None:
        """Set the key's instant, and replace an earlier one."""
        with self._lock:
            old = self.live.get(key)
            if old == at:
                return
            if old is not None:
                del self.live[key]  # before a sweep, which must not keep the old entry
                self._drop_one()
            self.live[key] = at
            number = at >> _BUCKET_BITS
            if number <= self._current:
                self._add((at, key))
                return
            bucket = self._buckets.get(number)
            if bucket is None:
                self._buckets[number] = [(at, key)]
                heappush(self._order, number)
            else:
                bucket.append((at, key))

    def arm_new(self, entries: Iterable[_Entry]) -> None:
        """Set the instants of keys that are not armed; the entries are (instant, key)."""
        with self._lock:
            live, add, buckets, current = self.live, self._add, self._buckets, self._current
            for at, key in entries:
                live[key] = at
                number = at >> _BUCKET_BITS
                if number <= current:
                    add((at, key))
                elif number in buckets:
                    buckets[number].append((at, key))
                else:
                    buckets[number] = [(at, key)]
                    heappush(self._order, number)

    def cancel(self, key: int) -> bool:
        """Remove the key; return whether it was armed."""
        with self._lock:
            if self.live.pop(key, None) is None:
                return False
            self._drop_one()
            return True

    def first(self) -> tuple[int, int] | None:
        """Return the soonest (instant, key), or None."""
        if not self.live:
            return None  # each turn looks into several timers, most of which are empty
        with self._lock:
            return self._settle()

    def pop_due(self, now: int, limit: int) -> list[_Entry]:
        """Remove and return up to `limit` entries that are due at `now`, soonest first."""
        due: list[_Entry] = []
        if not self.live:
            return due
        with self._lock:
            while len(due) < limit:
                first = self._settle()
                if first is None or first[0] > now:
                    break
                if self._heap and self._heap[0] is first:
                    heappop(self._heap)
                    del self.live[first[1]]
                    due.append(first)
                else:
                    self._take_queued(due, now, limit)
        return due

    def _take_queued(self, due: list[_Entry], now: int, limit: int) -> None:
        """Move entries that are due from the queue to the list, up to the first of the heap."""
        queue, live = self._queue, self.live
        last = min((now, _KEY_MAX), self._heap[0]) if self._heap else (now, _KEY_MAX)
        while queue and queue[0] <= last and len(due) < limit:
            entry = queue.popleft()
            if live.get(entry[1]) == entry[0]:
                del live[entry[1]]
                due.append(entry)
            else:
                self._stale -= 1

    def keep_first(self, count: int) -> list[_Entry]:
        """Keep the first `count` entries; remove and return the others in order."""
        with self._lock:
            return self._drop(sorted((at, key) for key, at in self.live.items())[count:])

    def shift(self, delta_us: int) -> None:
        """Move every instant by so much."""
        for at, key in self.keep_first(0):
            self.arm(key, at + delta_us)

    def keep_through(self, last: tuple[int, int]) -> list[_Entry]:
        """Keep the entries up to the (instant, key); remove and return the others in order."""
        with self._lock:
            return self._drop(
                sorted((at, key) for key, at in self.live.items() if (at, key) > last)
            )

    def last(self) -> tuple[int, int] | None:
        """Return the latest (instant, key), or None. It reads every entry."""
        with self._lock:
            return max(((at, key) for key, at in self.live.items()), default=None)

    def _settle(self) -> tuple[int, int] | None:
        """Bring the soonest live entry to the front of the queue or the heap, and return it."""
        live, queue, heap = self.live, self._queue, self._heap
        while True:
            while queue and live.get(queue[0][1]) != queue[0][0]:
                queue.popleft()
                self._stale -= 1
            while heap and live.get(heap[0][1]) != heap[0][0]:
                heappop(heap)
                self._stale -= 1
            if queue:
                return min(queue[0], heap[0]) if heap else queue[0]
            if heap:
                return heap[0]
            if not self._order:
                return None
            self._current = heappop(self._order)
            bucket = self._buckets.pop(self._current)
            if len(bucket) <= _SORTED_MAX:
                bucket.sort()
                queue.extend(bucket)
            else:
                heapify(bucket)
                self._heap = heap = bucket

    def _add(self, entry: _Entry) -> None:
        """Add an entry of the buckets up to _current."""
        queue = self._queue
        if not queue or entry > queue[-1]:
            queue.append(entry)
        else:
            heappush(self._heap, entry)

    def _drop(self, entries: list[_Entry]) -> list[_Entry]:
        for _, key in entries:
            del self.live[key]
        if entries:
            self._sweep()
        return entries

    def _drop_one(self) -> None:
        self._stale += 1
        if self._stale > _STALE_KEPT and self._stale > len(self.live):
            self._sweep()

    def _sweep(self) -> None:
        """Rebuild queue, heap and buckets from the live entries."""
        entries = sorted((at, key) for key, at in self.live.items())
        self._queue.clear()
        self._heap = []
        self._buckets = {}
        for entry in entries:
            number = entry[0] >> _BUCKET_BITS
            if number <= self._current:
                self._queue.append(entry)
            else:
                self._buckets.setdefault(number, []).append(entry)
        self._order = sorted(self._buckets)
        self._stale = 0
