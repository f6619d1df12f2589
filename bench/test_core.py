"""The pure core: the life of a job from its submit until its record is recycled.

A job is submitted, committed, started, completed and committed again. The figure is the cost of the
scheduler alone, without event loop, store and worker.
"""

from __future__ import annotations

from itertools import count

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.figures import QUICK
from schedo.core.commands import AttachWorker, Submit
from schedo.core.leases import AttemptResult, Completed
from schedo.core.model import JobSpec
from schedo.core.scheduler import Scheduler
from schedo.core.worker_pool import WorkerSpec

NOW = 1_795_172_645_000_000
ROUNDS = 5 if QUICK else 50
JOBS = 1_000
BATCHES = {"one by one": 1, "batches of  10": 10, "batches of 100": 100}


def make_scheduler() -> Scheduler:
    scheduler = Scheduler(epoch=1, last_id=0, random=lambda: 0.5)
    scheduler.restore([], [], False)
    scheduler.apply(AttachWorker(WorkerSpec("bench", JOBS)), NOW)
    # The store is empty.
    scheduler.deliver([(want, []) for want in scheduler.take_loads()], NOW)
    return scheduler


def commit(scheduler: Scheduler) -> None:
    scheduler.take_changes()
    scheduler.take_loads()
    scheduler.committed()


def live(scheduler: Scheduler, now: int, batch: int, delay_us: int) -> None:
    """Run JOBS jobs from submit to end, `batch` jobs at a time."""
    specs = [JobSpec("work", b"{}", delay_us=delay_us)] * batch
    for _ in range(0, JOBS, batch):
        scheduler.apply(Submit(specs), now)
        commit(scheduler)
        now += delay_us
        scheduler.tick(now)
        leases = scheduler.take_leases()
        assert len(leases) == batch
        for lease in leases:
            scheduler.apply(AttemptResult(lease.key, Completed()), now)
        commit(scheduler)
        now += 1


@pytest.mark.parametrize("batch", BATCHES.values(), ids=list(BATCHES))
@pytest.mark.parametrize("delay_us", [0, 1_000], ids=["now", "after a delay"])
@pytest.mark.benchmark(group="core: the whole life of 1,000 jobs")
def test_life(benchmark: BenchmarkFixture, batch: int, delay_us: int) -> None:
    scheduler = make_scheduler()
    starts = count(NOW, 10_000_000)

    benchmark.pedantic(
        live,
        setup=lambda: ((scheduler, next(starts), batch, delay_us), {}),
        rounds=ROUNDS,
    )

    assert len(scheduler._jobs) == 0, "every record was given back"
