"""Commands: one spawn alone, and many simultaneous durable shell jobs, beside xargs."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
import uvloop
from pytest_benchmark.fixture import BenchmarkFixture

from bench.embedded import embedded
from bench.figures import QUICK, replay, show
from bench.floors import run_xargs
from schedo.core.model import JobSpec
from schedo.tasks.shell.spawner import Command, Spawner
from schedo.tasks.shell.task import ShellRunner

COUNT = 200 if QUICK else 2_000
AT_ONCE = 16
ROUNDS = 1 if QUICK else 3
TRUE = "/bin/true"

one_spawn = pytest.mark.benchmark(group="shell: one /bin/true, start to end")
many = pytest.mark.benchmark(group="shell: /bin/true, 16 at a time", timer=replay)


async def run_true(commands: Spawner) -> int:
    return await commands.start(Command([TRUE], os.environ), 1, 2).ended


@one_spawn
def test_start(benchmark: BenchmarkFixture) -> None:
    commands = Spawner()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert benchmark(lambda: runner.run(run_true(commands))) == 0
        commands.close()


@one_spawn
def test_bare_posix_spawn(benchmark: BenchmarkFixture) -> None:
    def run() -> int:
        return os.waitpid(os.posix_spawn(TRUE, [TRUE], os.environ), 0)[1]

    assert benchmark(run) == 0


async def run_jobs(path: Path) -> float:
    """Return the number of commands a second, from the first submit until all ends are durable."""
    runner = ShellRunner()
    async with embedded(path, AT_ONCE, {"shell": runner}) as (engine, _):
        specs = [JobSpec("shell", b'{"command":["/bin/true"]}')] * COUNT
        began = time.perf_counter()
        accepted = await engine.submit(specs, view=lambda job: job.id)
        for each in accepted:
            assert not isinstance(each, Exception)
            job = await engine.wait(each.job, 60.0)
            assert job.result is not None, "the command succeeded"
        rate = COUNT / (time.perf_counter() - began)
    runner.close()
    return rate


@many
def test_jobs(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rates = [runner.run(run_jobs(tmp_path / f"{n}.db")) for n in range(ROUNDS)]

    show(benchmark, [1 / rate for rate in rates])


@many
def test_xargs(benchmark: BenchmarkFixture) -> None:
    show(benchmark, [1 / run_xargs(COUNT, AT_ONCE) for _ in range(ROUNDS)])
