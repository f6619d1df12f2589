"""Histograms and counters: their buckets and queues, and their bounded number."""

from __future__ import annotations

import pytest

from schedo.core.changes import AttemptRecord, Changes
from schedo.core.lateness import DURATION_BOUNDS_US
from schedo.core.limits import SECOND
from schedo.core.model import Decision, DecisionRecord, Job, JobSpec
from schedo.engine.metrics import OTHER_QUEUES, QUEUES_NAMED_MAX, Histogram, Metrics


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        (0, 0),
        (50, 0),
        (51, 1),
        (100, 1),
        (1_000, 4),
        (10_000_000, 16),
        (10_000_001, 17),
        (3_600_000_000, 17),
        (-5, 0),
    ],
)
def test_a_value_counts_in_the_first_bucket_whose_bound_is_not_below_it(
    value: int, bucket: int
) -> None:
    histogram = Histogram()

    histogram.observe(value)

    assert histogram.counts == [int(index == bucket) for index in range(18)]
    assert histogram.total == max(value, 0)


def test_the_buckets_reach_from_50_microseconds_to_10_seconds() -> None:
    assert (DURATION_BOUNDS_US[0], DURATION_BOUNDS_US[-1]) == (50, 10 * SECOND)


def test_the_jobs_of_one_submit_are_counted_by_their_queues() -> None:
    metrics = Metrics()
    specs = [JobSpec(task="work", queue=queue) for queue in ("a", "b", "a", "a")]

    metrics.note_submit(specs, 1_500)
    metrics.note_submit(specs[:1], 100)

    assert metrics.queue("a").commit_wait.total == 3 * 1_500 + 100
    assert sum(metrics.queue("a").commit_wait.counts) == 4
    assert sum(metrics.queue("b").commit_wait.counts) == 1


def test_only_a_few_of_many_queues_are_measured_by_name() -> None:
    metrics = Metrics()

    for number in range(100_000):
        metrics.note_submit([JobSpec(task="work", queue=f"q{number}")], 100)

    assert len(metrics.queues) == QUEUES_NAMED_MAX + 1
    assert sum(metrics.queue("q0").commit_wait.counts) == 1
    assert sum(metrics.queues[OTHER_QUEUES].commit_wait.counts) == 100_000 - QUEUES_NAMED_MAX


def test_a_commit_counts_its_jobs_its_attempts_and_its_decisions() -> None:
    metrics = Metrics()
    attempts = [
        AttemptRecord(1, 1, 1, None, None, 0, outcome, None)
        for outcome in ("failed", "lost", "failed")
    ]
    decisions = [
        DecisionRecord(7, 0, 0, Decision.FIRED, 1),
        DecisionRecord(7, 0, 0, Decision.MISSED, None, 12),
    ]
    changes = Changes({1: Job(), 2: Job(), 3: Job()}, attempts=attempts, decisions=decisions)

    metrics.note_commit(changes, 2_000)

    assert (metrics.commit_time.total, metrics.commit_jobs.total) == (2_000, 3)
    assert (metrics.unsuccessful["failed"], metrics.unsuccessful["lost"]) == (2, 1)
    assert (metrics.decisions["fired"], metrics.decisions["missed"]) == (1, 12)
