"""Percentiles and histograms of durations."""

from __future__ import annotations

import pytest

from schedo.cli.latency import count_buckets, render_histogram, render_us, summarize


def test_percentiles_are_values_that_occurred() -> None:
    values = [1_000 * n for n in range(100, 0, -1)]

    assert summarize(values) == {"p50": 51_000, "p95": 96_000, "p99": 100_000, "max": 100_000}


def test_every_percentile_of_a_single_value_is_that_value() -> None:
    assert summarize([7]) == {"p50": 7, "p95": 7, "p99": 7, "max": 7}


def test_without_values_there_are_no_percentiles_and_no_buckets() -> None:
    assert summarize([]) == {}
    assert count_buckets([]) == []
    assert render_histogram([]) == []


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0µs"),
        (999, "999µs"),
        (1_000, "1ms"),
        (1_254, "1.25ms"),
        (99_940, "99.9ms"),
        (412_300, "412ms"),
        (1_000_000, "1s"),
        (2_413_000, "2.41s"),
        (99_900_000, "99.9s"),
        (4_000_000_000, "1h6m"),
    ],
)
def test_a_duration_has_up_to_three_digits(us: int, text: str) -> None:
    assert render_us(us) == text


def test_a_bucket_includes_its_upper_bound() -> None:
    assert count_buckets([100, 101, 1_000]) == [(100, 1), (200, 1), (500, 0), (1_000, 1)]


def test_values_below_zero_or_above_all_bounds_are_counted() -> None:
    assert count_buckets([-5]) == [(10, 1)]
    assert count_buckets([10**15]) == [(500_000_000_000, 1)]


def test_the_longest_bar_belongs_to_the_fullest_bucket() -> None:
    assert render_histogram([100] * 80 + [200] * 20 + [500]) == [
        "  <=  100µs  80  ████████████████████████████████████████",
        "  <=  200µs  20  ██████████",
        "  <=  500µs   1  ▌",
    ]
