"""Rings of figures: what they keep, add up and call a gap."""

from __future__ import annotations

import sys

from schedo.core.lateness import BUCKETS
from schedo.core.series import (
    COUNTS,
    FIGURE_MAX,
    FIGURES,
    GAUGES,
    SUMMED,
    UNKNOWN,
    Ring,
    Row,
    larger,
    merge,
)

DAY_ROWS, QUARTER_ROWS, QUEUES_MAX = 1_440, 900, 17


def row(number: int, *, started: int = 0, due: int = 0, queues: tuple[int, ...] = ()) -> Row:
    figures = [0] * FIGURES
    figures[COUNTS.index("started")] = started
    figures[len(COUNTS) + BUCKETS - 1] = started  # timers, all of them very late
    figures[SUMMED + GAUGES.index("due")] = due
    return Row(number, [*figures, *queues])


def fold(ring: Ring, first: int, width: int, points: int) -> list[Row | None]:
    steps = ring.fold(first, width, points)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[Row | None] = end.value
            return found


def started(rows: list[Row | None]) -> list[int | None]:
    return [None if row is None else row.counts[COUNTS.index("started")] for row in rows]


def test_rows_that_are_too_old_leave_the_ring_and_its_sums() -> None:
    ring = Ring(3)
    for number in range(1, 6):
        ring.add(row(number, started=number))

    assert [each.number for each in ring.since(0)] == [5, 4, 3]
    assert [each.number for each in ring.since(5)] == [5]
    assert ring.sums[COUNTS.index("started")] == 3 + 4 + 5
    last = ring.last
    assert last is not None
    assert sum(last.lateness("timer")) == 5
    assert sum(last.lateness("submit")) == 0


def test_the_most_recent_rows_have_sums_of_their_own() -> None:
    ring = Ring(10, recent=2)
    for number in (1, 2, 3):
        ring.add(row(number, started=number))
    assert ring.recent_sums[COUNTS.index("started")] == 2 + 3

    ring.add(row(3, started=10))
    assert ring.recent_sums[COUNTS.index("started")] == 2 + 13

    ring.add(row(1, started=20))  # the clock was set back
    assert ring.recent_sums[COUNTS.index("started")] == 21
    assert ring.sums[COUNTS.index("started")] == 21

    ring.add(row(9))
    assert ring.recent_sums[COUNTS.index("started")] == 0


def test_intervals_without_rows_are_gaps() -> None:
    ring = Ring(100)
    assert ring.last is None
    for number in (10, 11, 16, 17):
        ring.add(row(number, started=number))

    assert started(fold(ring, 10, 2, 5)) == [21, None, None, 33, None]
    assert started(fold(ring, 11, 1, 2)) == [11, None]


def test_an_interval_has_the_largest_value_of_a_gauge() -> None:
    assert larger(3, 5) == 5
    assert larger(UNKNOWN, 5) == larger(5, UNKNOWN) == 5
    assert larger(UNKNOWN, UNKNOWN) == UNKNOWN
    merged = merge(row(1, due=7).figures, row(1, due=UNKNOWN).figures)
    assert merged[SUMMED + GAUGES.index("due")] == 7


def test_a_row_of_the_same_second_is_added_to_the_first() -> None:
    ring = Ring(9)
    ring.add(row(5, started=1, due=4))

    merged = ring.add(row(5, started=2, due=3))

    assert len(ring) == 1
    assert merged.counts[COUNTS.index("started")] == 3
    assert merged.gauges[GAUGES.index("due")] == 4
    assert ring.sums[COUNTS.index("started")] == 3


def test_rows_of_the_future_are_dropped_when_the_clock_was_set_back() -> None:
    ring = Ring(9)
    for number in (5, 6, 7):
        ring.add(row(number, started=1))

    ring.add(row(6, started=10))

    assert started(fold(ring, 5, 1, 3)) == [1, 11, None]
    assert ring.sums[COUNTS.index("started")] == 12


def test_the_queues_of_a_row_may_be_fewer_than_those_of_a_later_one() -> None:
    merged = Row(1, merge(row(1, queues=(1, 2, 3, 4)).figures, row(1).figures))
    assert merged.queue(0) == [1, 2, 3, 4]
    assert merged.queue(1) is None

    both = (10, 20, 30, UNKNOWN, 5, 6, 7, 8)
    merged = Row(1, merge(merged.figures, row(1, queues=both).figures))
    assert merged.queue(0) == [11, 22, 30, 4]
    assert merged.queue(1) == [5, 6, 7, 8]


def test_a_count_that_is_too_large_stays_at_its_bound() -> None:
    merged = merge(row(1, started=FIGURE_MAX).figures, row(1, started=1).figures)

    assert merged[COUNTS.index("started")] == FIGURE_MAX


def test_all_rings_together_stay_below_a_megabyte() -> None:
    seconds, minutes = Ring(QUARTER_ROWS), Ring(DAY_ROWS)
    for number in range(2 * DAY_ROWS):
        seconds.add(row(number))
        minutes.add(row(number, queues=(1, 2, 3, 4) * QUEUES_MAX))
    rows = len(seconds) + len(minutes)
    object_bytes = sys.getsizeof(b"") + 8  # and its place in the ring

    assert rows == QUARTER_ROWS + DAY_ROWS
    assert seconds.size_bytes + minutes.size_bytes + rows * object_bytes < 1_000_000


def test_a_row_of_the_past_takes_the_place_of_that_with_its_number() -> None:
    ring = Ring(9)
    for number in (2, 4, 6):
        ring.add(row(number, started=number))

    for number in (4, 3, 1, 7):
        ring.replace(row(number, started=10 * number))

    assert [each.number for each in ring.since(0)] == [7, 6, 4, 3, 2, 1]
    assert ring.sums[COUNTS.index("started")] == 70 + 6 + 40 + 30 + 2 + 10
    assert started(fold(ring, 1, 2, 4)) == [12, 70, 6, 70]


def test_a_row_of_the_past_that_is_too_old_is_left_out() -> None:
    ring = Ring(3)
    ring.replace(row(9, started=1))

    ring.replace(row(6, started=1))
    ring.replace(row(7, started=1))

    assert [each.number for each in ring.since(0)] == [9, 7]
    assert ring.sums[COUNTS.index("started")] == 2
