"""Paged indexes: memory holds the head of an order, the store the rest, and no entry is lost."""

from __future__ import annotations

from schedo.core.paged_index import START, IndexSize, PagedIndex, Pair


def complete(*pairs: Pair, capacity: int = 2) -> PagedIndex:
    """Return an index of which the store has no more entries."""
    index = PagedIndex(IndexSize(capacity), empty=True)
    for key, ident in pairs:
        assert index.add(key, ident)
    return index


def test_an_index_of_a_stored_order_holds_no_entry_before_its_first_page() -> None:
    index = PagedIndex(IndexSize(2))

    assert index.horizon == START
    assert not index.add(-5, 1)
    assert index.needs_page()
    assert not index.is_exhausted


def test_an_index_of_an_empty_order_holds_every_entry_and_needs_no_page() -> None:
    index = complete((30, 3), (10, 1), (20, 2))

    assert len(index) == 3
    assert 3 in index
    assert not index.needs_page()
    assert index.first() == (10, 1)


def test_entries_leave_the_index_in_order() -> None:
    index = complete((30, 3), (10, 1), (20, 2))

    assert index.pop_first(1) == [(10, 1)]
    assert index.pop_due(25, 10) == [(20, 2)]
    index.remove(3)
    index.remove(4)

    assert index.pop_first(1) == []
    assert index.is_exhausted


def test_an_index_is_not_trimmed_below_one_and_a_half_times_its_capacity() -> None:
    index = complete((10, 1), (20, 2), (30, 3))

    assert list(index.trim()) == []
    assert index.horizon is None


def test_a_trimmed_index_loses_its_tail_and_its_horizon_is_the_last_entry_kept() -> None:
    index = complete((50, 5), (10, 1), (20, 2), (30, 3), (40, 4))

    assert list(index.trim()) == [3, 4, 5]
    assert index.horizon == (20, 2)
    assert len(index) == 2


def test_an_entry_behind_the_horizon_stays_in_the_store_only() -> None:
    index = complete((10, 1), (20, 2), (30, 3), (40, 4), (50, 5))
    index.trim()

    assert not index.add(20, 3)
    assert not index.add(25, 6)
    assert index.add(20, 1)
    assert index.add(15, 7)
    assert 6 not in index


def test_an_index_needs_a_page_once_it_is_down_to_half_of_its_capacity() -> None:
    index = complete((10, 1), (20, 2), (30, 3), (40, 4), (50, 5))
    index.trim()
    assert not index.needs_page()

    index.pop_first(1)

    assert index.needs_page()
    index.is_loading = True
    assert not index.needs_page()


def test_a_full_page_moves_the_horizon_to_its_last_entry() -> None:
    index = PagedIndex(IndexSize(2))
    index.is_loading = True

    assert index.extend(START, (20, 2))

    assert index.horizon == (20, 2)
    assert not index.is_loading
    assert index.add(20, 2)
    assert not index.add(20, 3)


def test_after_a_short_page_the_index_holds_every_entry() -> None:
    index = PagedIndex(IndexSize(2))
    index.is_loading = True

    assert index.extend(START, None)

    assert index.horizon is None
    assert index.is_exhausted


def test_a_page_for_a_trimmed_horizon_is_dropped() -> None:
    index = complete((10, 1), (20, 2), (30, 3), (40, 4), (50, 5))
    index.trim()
    index.is_loading = True
    for ident in (6, 7, 8):
        index.add(5, ident)
    assert list(index.trim()) == [8, 1, 2]

    assert not index.extend((20, 2), (60, 6))

    assert index.horizon == (5, 7)
    assert not index.is_loading
    index.pop_first(1)
    assert index.needs_page()


def test_a_retreat_removes_the_later_entries_to_load_them_again() -> None:
    index = complete((10, 1), (20, 2), (30, 3))

    assert index.retreat((20, 2)) == [2, 3]

    assert index.horizon == (20, 1)
    assert 1 in index
    assert not index.add(20, 2)
    assert index.needs_page()


def test_a_retreat_beyond_the_horizon_changes_nothing() -> None:
    index = complete((50, 5), (10, 1), (20, 2), (30, 3), (40, 4))
    index.trim()

    assert index.retreat((20, 3)) == []

    assert index.horizon == (20, 2)
    assert len(index) == 2


def test_an_index_that_skips_a_range_keeps_its_entries_and_loads_behind_the_range() -> None:
    index = PagedIndex(IndexSize(4))
    index.extend(START, (20, 2))
    index.add(10, 1)

    index.skip_to((90, 9))

    assert index.first() == (10, 1)
    assert index.add(50, 5)
    assert not index.add(90, 10)
    assert index.needs_page()
