"""Windows: memory holds the head of an order, the store holds the rest, and nothing is between."""

from __future__ import annotations

from schedo.core.paged_index import START, PagedIndex, Pair, Room


def complete(*pairs: Pair, capacity: int = 2) -> PagedIndex:
    """Return a window that knows its store to be empty behind it."""
    window = PagedIndex(Room(capacity), empty=True)
    for key, ident in pairs:
        assert window.add(key, ident)
    return window


def test_a_window_on_an_unknown_store_takes_nothing_in_before_its_first_page() -> None:
    window = PagedIndex(Room(2))

    assert window.horizon == START
    assert not window.add(-5, 1)
    assert window.needs_page()
    assert not window.is_exhausted


def test_a_window_on_an_empty_store_takes_everything_and_wants_no_page() -> None:
    window = complete((30, 3), (10, 1), (20, 2))

    assert len(window) == 3
    assert 3 in window
    assert not window.needs_page()
    assert window.first() == (10, 1)


def test_pairs_leave_in_order() -> None:
    window = complete((30, 3), (10, 1), (20, 2))

    assert window.pop_first(1) == [(10, 1)]
    assert window.pop_due(25, 10) == [(20, 2)]
    window.remove(3)
    window.remove(4)

    assert window.pop_first(1) == []
    assert window.is_exhausted


def test_up_to_half_again_its_capacity_nothing_is_trimmed() -> None:
    window = complete((10, 1), (20, 2), (30, 3))

    assert list(window.trim()) == []
    assert window.horizon is None


def test_above_that_the_tail_goes_and_the_horizon_is_the_last_kept() -> None:
    window = complete((50, 5), (10, 1), (20, 2), (30, 3), (40, 4))

    assert list(window.trim()) == [3, 4, 5]
    assert window.horizon == (20, 2)
    assert len(window) == 2


def test_an_entry_behind_the_horizon_stays_in_the_store_only() -> None:
    window = complete((10, 1), (20, 2), (30, 3), (40, 4), (50, 5))
    window.trim()

    assert not window.add(20, 3)
    assert not window.add(25, 6)
    assert window.add(20, 1)
    assert window.add(15, 7)
    assert 6 not in window


def test_a_page_is_wanted_when_half_the_capacity_is_left_and_only_once() -> None:
    window = complete((10, 1), (20, 2), (30, 3), (40, 4), (50, 5))
    window.trim()
    assert not window.needs_page()

    window.pop_first(1)

    assert window.needs_page()
    window.is_loading = True
    assert not window.needs_page()


def test_a_full_page_moves_the_horizon_to_its_last_pair() -> None:
    window = PagedIndex(Room(2))
    window.is_loading = True

    assert window.extend(START, (20, 2))

    assert window.horizon == (20, 2)
    assert not window.is_loading
    assert window.add(20, 2)
    assert not window.add(20, 3)


def test_a_short_page_was_the_end_so_everything_is_here() -> None:
    window = PagedIndex(Room(2))
    window.is_loading = True

    assert window.extend(START, None)

    assert window.horizon is None
    assert window.is_exhausted


def test_a_page_for_a_horizon_that_was_trimmed_meanwhile_is_dropped() -> None:
    window = complete((10, 1), (20, 2), (30, 3), (40, 4), (50, 5))
    window.trim()
    window.is_loading = True
    for ident in (6, 7, 8):
        window.add(5, ident)
    assert list(window.trim()) == [8, 1, 2]

    assert not window.extend((20, 2), (60, 6))

    assert window.horizon == (5, 7)
    assert not window.is_loading
    window.pop_first(1)
    assert window.needs_page()


def test_a_retreat_lets_go_of_what_is_behind_so_that_it_is_loaded_again_in_order() -> None:
    window = complete((10, 1), (20, 2), (30, 3))

    assert window.retreat((20, 2)) == [2, 3]

    assert window.horizon == (20, 1)
    assert 1 in window
    assert not window.add(20, 2)
    assert window.needs_page()


def test_a_retreat_to_what_is_beyond_the_horizon_changes_nothing() -> None:
    window = complete((50, 5), (10, 1), (20, 2), (30, 3), (40, 4))
    window.trim()

    assert window.retreat((20, 3)) == []

    assert window.horizon == (20, 2)
    assert len(window) == 2


def test_a_window_that_skips_ahead_keeps_what_it_has_and_loads_from_there_on() -> None:
    window = PagedIndex(Room(4))
    window.extend(START, (20, 2))
    window.add(10, 1)

    window.skip_to((90, 9))

    assert window.first() == (10, 1)
    assert window.add(50, 5)
    assert not window.add(90, 10)
    assert window.needs_page()
