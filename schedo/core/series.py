"""Series of figures over time, in rings of fixed size that fill as time passes.

A ring has a row for each second or minute in which the server ran; what is missing is a gap. A row
is bytes: the number of its second or minute since 1970, COUNTS (which a longer interval adds up),
GAUGES (of which it has the largest), and four figures of each queue that is measured by name.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from schedo.core.lateness import BUCKETS, START_KINDS

COUNTS = (
    "submitted",
    "started",
    "completed",
    "failed",
    "cancelled",
    "expired",
    "attempts_failed",
    "commits",
    "commit_us",
)
GAUGES = ("due", "later", "running", "slots", "loop_lag_us", "commit_p99_us")
PARTED_GAUGES = frozenset(("due", "later", "running", "slots"))  # each server has a part of them
QUEUE_COUNTS = ("submitted", "started")
QUEUE_PARTS = ("due",)  # of which each server has a part
QUEUE_FIGURES = (*QUEUE_COUNTS, "due", "delay_p99_us")
UNKNOWN = 0xFFFFFFFF  # of a gauge
FIGURE_MAX = UNKNOWN - 1

_LATENESS = len(START_KINDS) * BUCKETS
SUMMED = len(COUNTS) + _LATENESS  # figures of a row that are counts; the lateness comes last
FIGURES = SUMMED + len(GAUGES)
_QUEUE = len(QUEUE_FIGURES)
_ROWS_IN_A_STEP = 64


class Row(NamedTuple):
    """The figures of one second or minute: SUMMED counts, the gauges, and those of the queues."""

    number: int  # of the second or minute since 1970
    figures: Sequence[int]

    @property
    def counts(self) -> Sequence[int]:
        return self.figures[:SUMMED]

    @property
    def gauges(self) -> Sequence[int]:
        return self.figures[SUMMED:FIGURES]

    def lateness(self, kind: str) -> Sequence[int]:
        """Return the counts of the buckets of one kind of starts."""
        return lateness_of(self.figures, kind)

    def queue(self, place: int) -> Sequence[int] | None:
        """Return the figures of a queue; None if it was not measured yet."""
        first = FIGURES + place * _QUEUE
        return self.figures[first : first + _QUEUE] or None


def lateness_of(counts: Sequence[int], kind: str) -> Sequence[int]:
    """Return the counts of the buckets of one kind of starts, of SUMMED counts."""
    first = len(COUNTS) + START_KINDS.index(kind) * BUCKETS
    return counts[first : first + BUCKETS]


def merge(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Return the figures of the two intervals together."""
    merged = [_add(a, b) for a, b in zip(one[:SUMMED], other[:SUMMED], strict=True)]
    merged += map(larger, one[SUMMED:FIGURES], other[SUMMED:FIGURES])
    for at in range(FIGURES, max(len(one), len(other)), _QUEUE):
        merged += merge_queue(one[at : at + _QUEUE], other[at : at + _QUEUE])
    return merged


def merge_queue(one: Sequence[int], other: Sequence[int]) -> Sequence[int]:
    """Return the figures of a queue in two intervals together; either may have none."""
    if not one or not other:
        return one or other
    counts = len(QUEUE_COUNTS)
    return [*map(_add, one[:counts], other[:counts]), *map(larger, one[counts:], other[counts:])]


def larger(one: int, other: int) -> int:
    """Return the larger value of a gauge, which may be unknown in an interval."""
    if one == UNKNOWN or other == UNKNOWN:
        return min(one, other)
    return max(one, other)


def _add(one: int, other: int) -> int:
    return min(one + other, FIGURE_MAX)


class Ring:
    """The rows of the last seconds or minutes, oldest first, and the sums of their counts."""

    def __init__(self, length: int, recent: int = 0) -> None:
        """length: for how many seconds or minutes a row is kept; recent: how many have own sums."""
        self.length = length
        self._rows: deque[bytes] = deque()
        self.sums = [0] * SUMMED
        self.recent_sums = [0] * SUMMED
        self._recent, self._recent_rows = recent, 0

    def add(self, row: Row) -> Row:
        """Add a row and drop those that are too old; merge it with an earlier row of its number.

        Rows that are in the future are dropped, because the clock was set back. Return the row as
        it is in the ring now.
        """
        while self._rows and _number(self._rows[-1]) > row.number:
            self._drop_newest()
        if self._rows and _number(self._rows[-1]) == row.number:
            row = Row(row.number, merge(self._drop_newest().figures, row.figures))
        self._rows.append(_pack(row))
        _change(self.sums, row, 1)
        _change(self.recent_sums, row, 1)
        self._recent_rows += 1
        while self._recent_rows and (
            _number(oldest := self._rows[-self._recent_rows]) <= row.number - self._recent
        ):
            _change(self.recent_sums, _unpack(oldest), -1)
            self._recent_rows -= 1
        while _number(self._rows[0]) <= row.number - self.length:
            _change(self.sums, _unpack(self._rows.popleft()), -1)
        return row

    def replace(self, row: Row) -> None:
        """Put a row of the past in the place of that with its number, if there is one.

        It does not count as recent. One that is too old is left out.
        """
        newest = _number(self._rows[-1]) if self._rows else row.number - 1
        if newest < row.number:
            self.add(row)
        elif newest - self.length < row.number:
            place = bisect_left(self._rows, row.number, key=_number)
            if _number(self._rows[place]) == row.number:
                _change(self.sums, _unpack(self._rows[place]), -1)
                del self._rows[place]
            self._rows.insert(place, _pack(row))
            _change(self.sums, row, 1)

    def _drop_newest(self) -> Row:
        row = _unpack(self._rows.pop())
        _change(self.sums, row, -1)
        if self._recent_rows:
            _change(self.recent_sums, row, -1)
            self._recent_rows -= 1
        return row

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def last(self) -> Row | None:
        """The newest row."""
        return _unpack(self._rows[-1]) if self._rows else None

    @property
    def size_bytes(self) -> int:
        """The bytes of all rows."""
        return sum(map(len, self._rows))

    def since(self, number: int) -> Iterator[Row]:
        """Yield the rows from the newest back to this number."""
        for row in reversed(self._rows):
            if _number(row) < number:
                return
            yield _unpack(row)

    def fold(self, first: int, width: int, points: int) -> Generator[None, None, list[Row | None]]:
        """Return the figures of intervals of `width` rows' numbers; None for a gap.

        Point n begins at number first + n * width. It is made in short steps.
        """
        found: list[Row | None] = [None] * points
        for count, row in enumerate(list(self._rows)):
            place = (_number(row) - first) // width
            if 0 <= place < points:
                known, added = found[place], _unpack(row)
                figures = added.figures if known is None else merge(known.figures, added.figures)
                found[place] = Row(first + place * width, figures)
            if count % _ROWS_IN_A_STEP == 0:
                yield
        return found


def _change(sums: list[int], row: Row, sign: int) -> None:
    for place, count in enumerate(row.counts):
        sums[place] += sign * count


def _number(row: bytes) -> int:
    return int.from_bytes(row[:8], "little")


def _pack(row: Row) -> bytes:
    return struct.pack(f"<q{len(row.figures)}I", row.number, *row.figures)


def _unpack(row: bytes) -> Row:
    number, *figures = struct.unpack(f"<q{len(row) // 4 - 2}I", row)
    return Row(number, figures)
