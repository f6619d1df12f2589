"""The lateness of a local async task after its due instant, beside a bare timerfd in the same run.

    make bench K=lateness

The jobs are durable jobs in a real SQLite file, due at Poisson instants, so the commits of their
starts and ends run at the same time. The table shows the lateness of single jobs; the lines above
it show the percentiles. bench/server/lateness.py measures a whole server.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import uvloop
from pytest_benchmark.fixture import BenchmarkFixture

from bench.embedded import fire
from bench.figures import QUICK, percentiles, poisson_offsets_us, replay, show
from bench.floors import measure_timerfd
from bench.server.filling import fill

SECONDS = 1 if QUICK else 5
RATES = [100, 1_000] if QUICK else [100, 1_000, 5_000, 10_000]
ARMED = [0, 10_000] if QUICK else [0, 1_000_000]
FAR_S = 4 * 3600.0


def print_percentiles(name: str, rate: int, late_us: list[int]) -> None:
    figures = "  ".join(f"{share} {us:>6} us" for share, us in percentiles(late_us).items())
    print(f"\n{rate:>6}/s  {name:<26}  {figures}", end="")


@pytest.mark.parametrize("armed", ARMED, ids=lambda armed: f"{armed:>9,} others armed")
@pytest.mark.parametrize("rate", RATES, ids=lambda rate: f"{rate:>6,}/s")
@pytest.mark.benchmark(group="lateness: due to handler's start", timer=replay)
def test_embedded(benchmark: BenchmarkFixture, tmp_path: Path, rate: int, armed: int) -> None:
    path = tmp_path / "bench.db"
    if armed:
        fill(path, armed, FAR_S)
    offsets = poisson_offsets_us(rate, rate * SECONDS)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        late = runner.run(fire(path, offsets))

    assert min(late) >= 0, "none ran early"
    print_percentiles(f"job, {armed:,} armed", rate, late)
    show(benchmark, [us / 1_000_000 for us in late])


@pytest.mark.parametrize("rate", RATES, ids=lambda rate: f"{rate:>6,}/s")
@pytest.mark.benchmark(group="lateness: due to handler's start", timer=replay)
def test_bare_timerfd(benchmark: BenchmarkFixture, rate: int) -> None:
    start = time.time_ns() // 1000 + 100_000
    late = measure_timerfd([start + at for at in poisson_offsets_us(rate, rate * SECONDS)])

    print_percentiles("bare timerfd", rate, late)
    show(benchmark, [us / 1_000_000 for us in late])
