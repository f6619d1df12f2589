"""Durable throughput: from the first submit until every job's end is durable.

The table shows the time for each job; OPS is the number of jobs a second. The floor is a bare
SQLite file in which the same rows are inserted and completed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from pytest_benchmark.fixture import BenchmarkFixture

from bench.embedded import complete
from bench.figures import QUICK, replay, show
from bench.floors import commit_groups
from bench.server.evidence import check_completed
from bench.server.process import NOOP_APP, Server
from bench.server.throughput import complete_by_http

COUNT = 2_000 if QUICK else 20_000
ROUNDS = 1 if QUICK else 3
SIZES = [1, 100] if QUICK else [1, 10, 100, 1_000]
IN_FLIGHT = 16

pytestmark = pytest.mark.benchmark(group="throughput: submit to durable end", timer=replay)
by_batch = pytest.mark.parametrize("batch", SIZES, ids=lambda size: f"batches of {size:>5,}")


def measure(
    benchmark: BenchmarkFixture, tmp_path: Path, batch: int, run: Callable[[Path, int], float]
) -> None:
    """Run several times, each in a new directory, and show the seconds for each job."""
    count = COUNT if batch > 1 else COUNT // 4
    rates = []
    for number in range(ROUNDS):
        place = tmp_path / str(number)
        place.mkdir()
        rates.append(run(place, count))
    show(benchmark, [1 / rate for rate in rates])


@by_batch
def test_embedded(benchmark: BenchmarkFixture, tmp_path: Path, batch: int) -> None:
    def run(place: Path, count: int) -> float:
        path = place / "bench.db"
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rate = runner.run(complete(path, count, batch, min(IN_FLIGHT, count // batch)))
        check_completed(path, "probe", count)
        return rate

    measure(benchmark, tmp_path, batch, run)


@by_batch
def test_http_and_child_processes(benchmark: BenchmarkFixture, tmp_path: Path, batch: int) -> None:
    def run(place: Path, count: int) -> float:
        with Server(place, "--concurrency", "1000", app=NOOP_APP) as server:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                rate = runner.run(complete_by_http(server, count, batch, IN_FLIGHT))
            server.stop()
            check_completed(server.store, "noop", count)
        return rate

    measure(benchmark, tmp_path, batch, run)


@by_batch
def test_bare_sqlite(benchmark: BenchmarkFixture, tmp_path: Path, batch: int) -> None:
    measure(
        benchmark,
        tmp_path,
        batch,
        lambda place, count: commit_groups(place / "bare.db", count, batch),
    )
