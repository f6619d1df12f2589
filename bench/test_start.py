"""The time from a submit to the handler's start, one job after the other; it includes a commit."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import uvloop
from pytest_benchmark.fixture import BenchmarkFixture

from bench.embedded import embedded, probe_job
from bench.figures import QUICK, replay, show
from bench.floors import BareTable
from bench.server.connection import job_request
from bench.server.process import NOOP_APP, Server
from bench.server.start import commit_singly, read_starts, submit_singly

COUNT = 100 if QUICK else 1_000

pytestmark = pytest.mark.benchmark(group="start: submit to handler's start", timer=replay)


async def start_embedded(path: Path) -> list[int]:
    async with embedded(path) as (engine, probe):
        took = []
        for n in range(COUNT):
            began = time.time_ns() // 1000
            await engine.submit([probe_job()], view=lambda job: job.id)
            await probe.ran(n + 1)
            took.append(probe.started_at - began)
        return took


def test_embedded(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        took = runner.run(start_embedded(tmp_path / "bench.db"))

    show(benchmark, [us / 1_000_000 for us in took])


def test_http_and_child_process(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    with Server(tmp_path, app=NOOP_APP) as server:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            sent = runner.run(submit_singly(server, job_request({"task": "stamp"}), COUNT))
        server.stop()
        starts = read_starts(server)

    show(benchmark, [(at - us) / 1_000_000 for (at, _), us in zip(starts, sent, strict=True)])


def test_bare_sqlite_commit(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    table = BareTable(tmp_path / "bare.db")
    took = commit_singly(table, COUNT)
    table.close()

    show(benchmark, [us / 1_000_000 for us in took])
