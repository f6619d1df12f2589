"""Percentiles of measured values, and their display in pytest-benchmark's tables."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence

from pytest_benchmark.fixture import BenchmarkFixture

QUICK = bool(os.environ.get("SCHEDO_BENCH_QUICK"))
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


class Replay:
    """A timer for `pytest.mark.benchmark(timer=replay)` that shows durations measured elsewhere.

    pytest-benchmark measures calls in a row; a lateness or a throughput is measured over a whole
    run and then shown in the same table.
    """

    def __init__(self) -> None:
        self._readings: list[float] = []

    def load(self, durations_s: Sequence[float]) -> None:
        """Show these durations, one in each round."""
        for duration in reversed(durations_s):
            self._readings += [duration, 0.0]

    def __call__(self) -> float:
        return self._readings.pop() if self._readings else time.perf_counter()


replay = Replay()


def show(benchmark: BenchmarkFixture, durations_s: Sequence[float]) -> None:
    """Show measured durations in the table of a test whose timer is `replay`."""
    replay.load(durations_s)
    benchmark.pedantic(_nothing, rounds=len(durations_s))


def _nothing() -> None:
    """Do nothing; pytest-benchmark calls this in place of the work, which is already measured."""


def percentile(sorted_values: Sequence[int], share: float) -> int:
    """Return the value below which this share of the values lies."""
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


def percentiles(values: Sequence[int]) -> dict[str, int]:
    """Return p50, p95, p99, p99.9 and the maximum."""
    ordered = sorted(values)
    return {name: percentile(ordered, share) for name, share in SHARES.items()} | {
        "max": ordered[-1]
    }


def poisson_offsets_us(rate: int, count: int, seed: int = 1) -> list[int]:
    """Return `count` random instants, starting at 0, at an average of `rate` a second."""
    draw = random.Random(seed)
    at = 0.0
    offsets = []
    for _ in range(count):
        at += draw.expovariate(rate) * 1_000_000
        offsets.append(int(at))
    return offsets
