"""The objective for lateness and its error budget."""

from __future__ import annotations

import pytest

from schedo.core.lateness import BUCKETS, DURATION_BOUNDS_US, Budget, count_within, quantile_us


def test_a_start_that_is_as_late_as_the_objective_keeps_it() -> None:
    counts = [0] * BUCKETS
    counts[DURATION_BOUNDS_US.index(10_000)] = 3
    counts[DURATION_BOUNDS_US.index(10_000) + 1] = 1
    counts[-1] = 1

    assert count_within(counts, 10_000) == (5, 3)
    assert count_within(counts, 5_000) == (5, 0)
    assert count_within(counts, 10_000_000) == (5, 4)


@pytest.mark.parametrize(
    ("starts", "late", "left", "is_met"),
    [(0, 0, 1, True), (1_000, 0, 1, True), (10_000, 5, 0.5, True), (1_000, 2, -1, False)],
)
def test_one_start_of_a_thousand_may_be_later(
    starts: int, late: int, left: float, is_met: bool
) -> None:
    budget = Budget(starts, starts - late)

    assert budget.left == pytest.approx(left)
    assert budget.is_met is is_met


def test_the_share_within_the_objective_is_whole_without_starts() -> None:
    assert Budget(0, 0).share_within == 1
    assert Budget(4, 3).share_within == 0.75


def test_a_quantile_lies_within_its_bucket() -> None:
    counts = [0] * BUCKETS
    assert quantile_us(counts, 0.5) is None

    counts[4] = 4  # 500 us to 1 ms
    assert quantile_us(counts, 0.5) == 750
    assert quantile_us(counts, 1) == 1_000

    counts[-1] = 6
    assert quantile_us(counts, 0.99) == DURATION_BOUNDS_US[-1]
    assert quantile_us(counts, 0.4) == 1_000
