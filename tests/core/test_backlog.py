"""Backlogs: overdue entries beyond an index's horizon move beside it, and none is lost."""

from __future__ import annotations

import pytest

from schedo.core.backlog import Backlog
from schedo.core.ids import ID_MAX
from schedo.core.limits import BACKLOG_AGE_US
from schedo.core.paged_index import START, IndexSize, PagedIndex, Pair
from tests.core.builders import HOUR, MINUTE, SECOND

NOW = HOUR


def reaching(horizon: Pair | None) -> PagedIndex:
    """Return an index whose horizon is the pair."""
    index = PagedIndex(IndexSize(2))
    index.extend(START, horizon)
    return index


def taken_over(horizon: Pair, now: int = NOW) -> tuple[Backlog, PagedIndex]:
    """Return a backlog that begins after the horizon, and the index that skipped it."""
    backlog, index = Backlog(), reaching(horizon)
    for _ in range(6):
        backlog.take_over(index, now)
        assert index.horizon is not None
        index.skip_to((index.horizon[0], ID_MAX - 1))  # the next page is overdue as well
    index.skip_to((now - BACKLOG_AGE_US, ID_MAX))
    assert backlog.through is not None
    return backlog, index


@pytest.mark.parametrize("horizon", [None, (NOW, 1), (NOW - BACKLOG_AGE_US, 1), (NOW + 5, 1)])
def test_a_paged_index_that_reaches_the_present_has_no_backlog(horizon: Pair | None) -> None:
    backlog, index = Backlog(), reaching(horizon)

    backlog.take_over(index, NOW)

    assert backlog.through is None
    assert not backlog.needs_page()
    assert index.horizon == horizon


def test_the_range_that_an_overdue_paged_index_skips_is_the_backlog() -> None:
    backlog, index = taken_over((SECOND, 7))

    assert backlog.needs_page()
    assert backlog.after == (SECOND, 7)
    assert backlog.until == NOW - BACKLOG_AGE_US
    assert index.horizon == (NOW - BACKLOG_AGE_US, ID_MAX)


def test_only_the_instant_of_the_horizon_is_skipped_first() -> None:
    backlog, index = Backlog(), reaching((SECOND, 7))

    backlog.take_over(index, NOW)

    assert backlog.until == SECOND
    assert index.horizon == (SECOND, ID_MAX)


def test_the_backlog_does_not_grow_while_the_next_page_loads() -> None:
    backlog, index = Backlog(), reaching((SECOND, 7))
    backlog.take_over(index, NOW)

    backlog.take_over(index, NOW + 1)
    assert index.horizon == (SECOND, ID_MAX)

    index.extend((SECOND, ID_MAX), None)
    backlog.take_over(index, NOW + 1)
    assert index.horizon is None


def test_each_extension_of_the_backlog_skips_no_more_than_necessary() -> None:
    backlog, index = Backlog(), reaching((SECOND, 7))
    edges = []

    for _ in range(7):
        backlog.take_over(index, NOW)
        edges.append(NOW - backlog.until)
        index.skip_to((backlog.until, 9))

    assert edges == [
        *(NOW - SECOND, MINUTE, 10 * SECOND, SECOND, 5 * BACKLOG_AGE_US),
        *(BACKLOG_AGE_US, BACKLOG_AGE_US),
    ]


def test_the_next_instant_with_too_many_jobs_is_skipped_alone_again() -> None:
    backlog, index = Backlog(), reaching((SECOND, 7))
    backlog.take_over(index, NOW)
    index.skip_to((NOW, 9))

    backlog.take_over(index, NOW + 2 * SECOND)

    assert index.horizon == (NOW, ID_MAX)


def test_the_backlog_moves_one_page_after_the_other() -> None:
    backlog, _ = taken_over((SECOND, 7))
    backlog.is_loading = True
    assert not backlog.needs_page()

    backlog.advance((SECOND, 7), backlog.until, (2 * SECOND, 1))

    assert backlog.needs_page()
    assert backlog.after == (2 * SECOND, 1)
    assert backlog.age_us(NOW) == NOW - 2 * SECOND


def test_a_short_page_ends_the_backlog() -> None:
    backlog, _ = taken_over((SECOND, 7))

    backlog.advance((SECOND, 7), backlog.until, None)

    assert backlog.through is None
    assert backlog.age_us(NOW) == 0


def test_entries_that_become_overdue_during_a_move_are_moved_after_it() -> None:
    backlog, index = taken_over((SECOND, 7))
    requested_loads = backlog.until
    backlog.is_loading = True
    later = NOW + SECOND
    index.skip_to((NOW, 3))
    backlog.take_over(index, later)

    backlog.advance((SECOND, 7), requested_loads, None)

    assert backlog.needs_page()
    assert backlog.after == (requested_loads, ID_MAX)
    assert backlog.until == later - BACKLOG_AGE_US


def test_a_trimmed_index_moves_the_start_of_the_backlog_back() -> None:
    backlog, index = taken_over((SECOND, 7))
    backlog.is_loading = True
    index.skip_to((0, 3))
    backlog.take_over(index, NOW)

    backlog.advance((SECOND, 7), backlog.until, (2 * SECOND, 1))

    assert backlog.after == (0, 3)
    assert backlog.needs_page()


def test_no_entry_of_the_backlog_moves_before_it_is_due_after_a_clock_step_back() -> None:
    backlog, index = taken_over((SECOND, 7))
    assert backlog.next_at() is None, "a page can be moved at once"

    backlog.take_over(index, SECOND // 2)
    assert not backlog.needs_page()
    assert backlog.next_at() == SECOND + 1

    backlog.take_over(index, 2 * SECOND)
    assert backlog.needs_page()
    assert backlog.until == 2 * SECOND
