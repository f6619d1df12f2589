"""How late a local async task starts after its due time, beside a bare timerfd loop in the same
run.

    make bench K=lateness

Each firing is a durable job in a real SQLite file: the commits of starts and ends go on beside it.
The floor is the same number of alarms on the same clock with nothing behind them.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import uvloop
from pytest_benchmark.fixture import BenchmarkFixture

from bench.embedded import embedded, percentile, probe_job
from schedo.clock import SystemClock

QUICK = bool(os.environ.get("SCHEDO_BENCH_QUICK"))
SECONDS = 2 if QUICK else 5
HEAD_START_US = 300_000


async def _fire(directory: Path, rate: int) -> list[int]:
    """Run rate jobs a second, evenly spread, and return how late each started."""
    count = rate * SECONDS
    async with embedded(directory) as (engine, probe):
        step_us = 1_000_000 / rate
        specs = [probe_job(HEAD_START_US + int(i * step_us)) for i in range(count)]
        for start in range(0, count, 1_000):
            await engine.submit(specs[start : start + 1_000], view=lambda job: job.id)
        await probe.ran(count)
        return probe.lateness_us


async def _ring(rate: int) -> list[int]:
    """Ring a bare alarm rate times a second and return how late each was."""
    clock = SystemClock()
    step_us = 1_000_000 // rate
    count = rate * SECONDS
    lateness: list[int] = []
    due = clock.now() + HEAD_START_US
    done = asyncio.Event()

    def ring() -> None:
        nonlocal due
        while due <= clock.now():
            lateness.append(clock.now() - due)
            due += step_us
        if len(lateness) >= count:
            done.set()
        else:
            clock.arm(due)

    clock.start(ring, lambda delta_us: None)
    clock.arm(due)
    await done.wait()
    clock.close()
    return lateness


@pytest.mark.parametrize("rate", [100, 1_000] if QUICK else [100, 1_000, 5_000])
@pytest.mark.benchmark(group="lateness")
def test_lateness_of_a_local_task(benchmark: BenchmarkFixture, tmp_path: Path, rate: int) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        floor = sorted(runner.run(_ring(rate)))
        run = benchmark.pedantic(lambda: runner.run(_fire(tmp_path, rate)), rounds=1)
    late = sorted(run)

    assert len(late) == rate * SECONDS, "every job ran once"
    assert late[0] >= 0, "none ran early"
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    for name, values in (("job", late), ("bare timer", floor)):
        figures = {share: percentile(values, part) for share, part in shares.items()}
        benchmark.extra_info[name] = figures
        text = "  ".join(f"{share} {figure:>6} us" for share, figure in figures.items())
        print(f"\n{rate:>6}/s  {name:<10}  {text}  max {values[-1]:>6} us", end="")
    print()
