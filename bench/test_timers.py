"""Timers: arm, cancel or pop a thousand timers beside up to a million others."""

from __future__ import annotations

import random

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.figures import QUICK
from schedo.core.limits import HOUR
from schedo.core.timers import Timers

SIZES = [100, 10_000] if QUICK else [100, 1_000, 10_000, 100_000, 1_000_000]
ROUNDS = 5 if QUICK else 30
MORE = 1_000
SPREAD_US = 4 * HOUR


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"{size:>9,} armed")
def timers(request: pytest.FixtureRequest) -> Timers:
    draw = random.Random(1)
    timers = Timers()
    for key in range(request.param):
        timers.arm(key, draw.randrange(SPREAD_US))
    return timers


@pytest.fixture
def others() -> list[tuple[int, int]]:
    """Return keys that are not armed yet, with their instants."""
    draw = random.Random(2)
    return [(-1 - n, draw.randrange(SPREAD_US)) for n in range(MORE)]


def arm_all(timers: Timers, entries: list[tuple[int, int]]) -> None:
    for key, at in entries:
        timers.arm(key, at)


def cancel_all(timers: Timers, entries: list[tuple[int, int]]) -> None:
    for key, _ in entries:
        timers.cancel(key)


def pop_all(timers: Timers, count: int) -> None:
    for _ in range(count):
        timers.pop_due(SPREAD_US, 1)


@pytest.mark.benchmark(group="timers: arm 1,000")
def test_arm(benchmark: BenchmarkFixture, timers: Timers, others: list[tuple[int, int]]) -> None:
    def setup() -> None:
        cancel_all(timers, others)

    benchmark.pedantic(arm_all, (timers, others), setup=setup, rounds=ROUNDS)
    cancel_all(timers, others)


@pytest.mark.benchmark(group="timers: cancel 1,000")
def test_cancel(benchmark: BenchmarkFixture, timers: Timers, others: list[tuple[int, int]]) -> None:
    def setup() -> None:
        arm_all(timers, others)

    benchmark.pedantic(cancel_all, (timers, others), setup=setup, rounds=ROUNDS)


@pytest.mark.benchmark(group="timers: pop 1,000, one by one")
def test_pop(benchmark: BenchmarkFixture, timers: Timers, others: list[tuple[int, int]]) -> None:
    def setup() -> None:
        arm_all(timers, [(key, -1 - at) for key, at in others])

    benchmark.pedantic(pop_all, (timers, MORE), setup=setup, rounds=ROUNDS)


@pytest.mark.benchmark(group="timers: pop 1,000 that are due")
def test_pop_due(
    benchmark: BenchmarkFixture, timers: Timers, others: list[tuple[int, int]]
) -> None:
    def setup() -> None:
        arm_all(timers, [(key, -1 - at) for key, at in others])

    benchmark.pedantic(timers.pop_due, (-1, MORE), setup=setup, rounds=ROUNDS)
