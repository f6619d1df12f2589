"""Parsing of a /metrics page."""

from __future__ import annotations

import pytest

from schedo.client.metrics import Buckets, parse_metrics
from schedo.errors import SchedoError

PAGE = b"""\
# HELP jobs_total Jobs.
# TYPE jobs_total counter
jobs_total{queue="a",state="failed"} 1
jobs_total{queue="a",state="completed"} 20
jobs_total{queue="b\\"\\\\\\n",state="completed"} 300
lag_seconds 0.00025
t_seconds_bucket{queue="a",le="0.001"} 2
t_seconds_bucket{queue="a",le="+Inf"} 5
t_seconds_sum{queue="a"} 7.5
t_seconds_count{queue="a"} 5
"""
TEN = (0.001, 0.01, float("inf"))


def test_a_sample_is_found_by_its_name_and_all_its_labels() -> None:
    scrape = parse_metrics(PAGE)

    assert scrape.value("lag_seconds") == 0.00025
    assert scrape.value("jobs_total", state="failed", queue="a") == 1
    assert scrape.value("jobs_total", state="failed") == 0
    assert scrape.value("unknown") == 0


def test_samples_are_added_up_by_one_label() -> None:
    scrape = parse_metrics(PAGE)

    assert scrape.by_label("jobs_total", "state") == {"failed": 1, "completed": 320}
    assert scrape.by_label("jobs_total", "queue") == {"a": 21, 'b"\\\n': 300}


def test_the_buckets_of_a_histogram_are_not_cumulative() -> None:
    found = parse_metrics(PAGE).buckets("t_seconds", queue="a")

    assert found == Buckets((0.001, float("inf")), (2, 3), 7.5)
    assert (found.count, found.mean) == (5, 1.5)


@pytest.mark.parametrize(
    ("share", "value"), [(0.25, 0.0005), (0.5, 0.001), (0.75, 0.0055), (0.9, 0.0082), (1, 0.01)]
)
def test_a_quantile_is_interpolated_within_its_bucket(share: float, value: float) -> None:
    assert Buckets(TEN, (10, 10, 0), 0.0).quantile(share) == pytest.approx(value)


def test_a_quantile_above_the_last_bound_is_infinite() -> None:
    assert Buckets(TEN, (1, 0, 99), 0.0).quantile(0.5) == float("inf")


def test_a_quantile_of_no_observations_is_none() -> None:
    assert Buckets(TEN, (0, 0, 0), 0.0).quantile(0.5) is None
    assert parse_metrics(b"").buckets("t_seconds").quantile(0.5) is None


def test_observations_since_an_earlier_reading_are_the_difference() -> None:
    before, after = Buckets(TEN, (1, 2, 3), 10.0), Buckets(TEN, (5, 2, 4), 12.0)

    assert after.since(before) == Buckets(TEN, (4, 0, 1), 2.0)


def test_after_a_restart_of_the_server_observations_count_from_zero() -> None:
    before, after = Buckets(TEN, (100, 0, 0), 10.0), Buckets(TEN, (5, 0, 0), 1.0)

    assert after.since(before) == after
    assert after.since(Buckets((), (), 0.0)) == after


@pytest.mark.parametrize("page", [b"<html>", b"jobs_total", b"jobs_total x", b"\xff"], ids=repr)
def test_a_malformed_page_of_metrics_is_refused(page: bytes) -> None:
    with pytest.raises(SchedoError, match="page of metrics is malformed"):
        parse_metrics(page)
