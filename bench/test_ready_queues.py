"""Ready queues: add and take a thousand jobs, in one queue or in many."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.figures import QUICK
from schedo.core.model import Job
from schedo.core.ready_queues import ReadyQueues
from schedo.core.worker_pool import WorkerPool, WorkerSpec

JOBS = 1_000
ROUNDS = 5 if QUICK else 30
QUEUES = {"  1 queue": 1, " 10 queues": 10, "100 queues": 100}


def make_jobs(queues: int) -> list[Job]:
    return [
        Job(id=n, task="work", queue=f"q{n % queues}", rank=n * 7_919 % JOBS) for n in range(JOBS)
    ]


def add_all(ready: ReadyQueues, jobs: list[Job]) -> None:
    for job in jobs:
        ready.add(job)


def take_all(ready: ReadyQueues) -> None:
    for _ in range(JOBS):
        assert ready.take() is not None


@pytest.mark.parametrize("queues", QUEUES.values(), ids=list(QUEUES))
@pytest.mark.benchmark(group="ready queues: add 1,000 jobs")
def test_add(benchmark: BenchmarkFixture, queues: int) -> None:
    jobs = make_jobs(queues)

    benchmark.pedantic(
        add_all, setup=lambda: ((ReadyQueues(WorkerPool()), jobs), {}), rounds=ROUNDS
    )


@pytest.mark.parametrize("queues", QUEUES.values(), ids=list(QUEUES))
@pytest.mark.benchmark(group="ready queues: take 1,000 jobs")
def test_take(benchmark: BenchmarkFixture, queues: int) -> None:
    jobs = make_jobs(queues)
    workers = WorkerPool()
    workers.attach(WorkerSpec("bench", 10))

    def setup() -> tuple[tuple[ReadyQueues], dict[str, object]]:
        ready = ReadyQueues(workers)
        add_all(ready, jobs)
        return (ready,), {}

    benchmark.pedantic(take_all, setup=setup, rounds=ROUNDS)
