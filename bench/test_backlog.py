"""The cost of one start while 10,000 jobs wait: an attempt ends, and the next job gets its slot.

All slots are in use, and the jobs wait under one ready key or under many. The figure is for 100
ends and starts, each pair in a turn. It must not grow with the number of queues or tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.figures import QUICK
from schedo.core.commands import AttachWorker, Submit
from schedo.core.leases import AttemptResult, Completed, Lease
from schedo.core.limits import BATCH_JOBS_MAX
from schedo.core.model import JobSpec, Options, Queue
from schedo.core.paged_index import Window
from schedo.core.requirements import Requirements
from schedo.core.scheduler import Scheduler
from schedo.core.worker_pool import WorkerSpec

NOW = 1_795_172_645_000_000
JOBS = 10_000
STARTS = 100
ROUNDS = 5 if QUICK else 30

Make = Callable[[], tuple[list[WorkerSpec], Iterable[JobSpec]]]
BUSY = WorkerSpec("busy", 10)


def one_ready_key() -> tuple[list[WorkerSpec], Iterable[JobSpec]]:
    return [BUSY], (JobSpec("work") for _ in range(JOBS))


def two_queues() -> tuple[list[WorkerSpec], Iterable[JobSpec]]:
    return [BUSY], (JobSpec("work", queue=f"q{n % 2}") for n in range(JOBS))


def tasks() -> tuple[list[WorkerSpec], Iterable[JobSpec]]:
    names = [f"t{n}" for n in range(1_000)]
    return [WorkerSpec("busy", 10, frozenset(names))], (
        JobSpec(names[n % 1_000]) for n in range(JOBS)
    )


def queues() -> tuple[list[WorkerSpec], Iterable[JobSpec]]:
    return [BUSY], (JobSpec("work", queue=f"q{n}") for n in range(JOBS))


def idle_beside() -> tuple[list[WorkerSpec], Iterable[JobSpec]]:
    """Return jobs in many queues, and a second worker with free slots that cannot run them."""
    offers = [
        WorkerSpec("busy", 10, frozenset({"work"})),
        WorkerSpec("idle", 10, frozenset({"x"})),
    ]
    return offers, (JobSpec("work", queue=f"q{n}") for n in range(JOBS))


def workers() -> tuple[list[WorkerSpec], Iterable[JobSpec]]:
    offers = [WorkerSpec(f"w{n}", 1) for n in range(1_000)]
    return offers, (JobSpec("work", queue=f"q{n % 100}") for n in range(JOBS))


def one_key_per_worker() -> tuple[list[WorkerSpec], Iterable[JobSpec]]:
    """Return jobs that each require one of a thousand workers by name."""
    options = [Options(requirements=Requirements(worker=f"w{n}")) for n in range(1_000)]
    offers = [WorkerSpec(f"w{n}", 1) for n in range(1_000)]
    return offers, (JobSpec("work", options=options[n % 1_000]) for n in range(JOBS))


SCENES: dict[str, Make] = {
    "         1 ready key": one_ready_key,
    "            2 queues": two_queues,
    " 1,000 tasks, 1 queue": tasks,
    "       10,000 queues": queues,
    "10,000 queues, a worker idle": idle_beside,
    "1,000 workers, 100 queues": workers,
    "1,000 workers, each named": one_key_per_worker,
}


def make_scheduler(offers: list[WorkerSpec], specs: Iterable[JobSpec]) -> Scheduler:
    """Return a scheduler with a job for each spec; all slots run a job, and the rest is queued."""
    scheduler = Scheduler(epoch=1, last_id=0, random=lambda: 0.5, window=Window(JOBS))
    scheduler.restore([Queue("default")], [], False)
    deliver_nothing(scheduler)
    for offer in offers:
        scheduler.apply(AttachWorker(offer), NOW)
    every = list(specs)
    for first in range(0, JOBS, BATCH_JOBS_MAX):
        scheduler.apply(Submit(every[first : first + BATCH_JOBS_MAX]), NOW)
        scheduler.take_changes()
        scheduler.committed()
    return scheduler


def deliver_nothing(scheduler: Scheduler) -> None:
    # The store is empty.
    scheduler.deliver([(want, []) for want in scheduler.take_loads()], NOW)


@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
@pytest.mark.benchmark(group="core: 100 jobs end, 100 of 10,000 that wait start")
def test_start(benchmark: BenchmarkFixture, scene: Make) -> None:
    scheduler = make_scheduler(*scene())
    scheduler.tick(NOW)
    running = scheduler.take_leases()
    assert running

    def setup() -> tuple[tuple[Scheduler, list[Lease]], dict[str, object]]:
        nonlocal scheduler, running
        if len(scheduler._jobs) < JOBS // 2:
            scheduler = make_scheduler(*scene())
            scheduler.tick(NOW)
            running = scheduler.take_leases()
        return (scheduler, running), {}

    def run(scheduler: Scheduler, leases: list[Lease]) -> None:
        """End the attempt that has run longest, and start the next job, 100 times."""
        for _ in range(STARTS):
            lease = leases.pop(0)
            scheduler.apply(AttemptResult(lease.key, Completed()), NOW)
            scheduler.tick(NOW)
            leases += scheduler.take_leases()
            scheduler._jobs.needs_loads()
        scheduler.take_changes()
        scheduler.committed()

    benchmark.pedantic(run, setup=setup, rounds=ROUNDS)
