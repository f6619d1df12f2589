"""Ready indexes share memory: those that jobs are taken from get more than those that only wait."""

from __future__ import annotations

from schedo.core.model import Job, LeaseKey, ReadyKey
from schedo.core.ready_queues import ReadyQueues
from schedo.core.worker_pool import WorkerPool
from tests.core.builders import worker_spec

BUSY = ReadyKey("default", "work")
CAPACITY, LIMIT = 64, 512


def waiting(count: int, task: str = "other") -> tuple[ReadyQueues, WorkerPool]:
    """Return queues with stored jobs of a task that the only worker does not run."""
    workers = WorkerPool()
    workers.attach(worker_spec("w", 10, tasks=frozenset({"work"})))
    ready_queues = ReadyQueues(workers, CAPACITY, LIMIT)
    for number in range(count):
        ready_queues.announce(ReadyKey(f"q{number}", task))
        load(ready_queues, [])
    return ready_queues, workers


def load(ready_queues: ReadyQueues, stored: list[int]) -> int:
    """Load the pages that are needed, those of BUSY with stored jobs; return how many of these."""
    pages = 0
    for ready_key, ready in ready_queues.take_pages(9):
        after = ready.horizon
        assert after is not None
        if ready_key != BUSY:
            ready.extend(after, (0, 1))  # the store has more
            ready_queues.add(Job(id=0, queue=ready_key.queue, task=ready_key.task))
            continue
        page, stored[: ready.page_size] = stored[: ready.page_size], []
        ready.extend(after, (0, page[-1]) if stored else None)
        for job_id in page:
            ready_queues.add(Job(id=job_id, queue=BUSY.queue, task=BUSY.task))
        ready_queues.settle(ready_key)
        pages += 1
    return pages


def drain(ready_queues: ReadyQueues, workers: WorkerPool, count: int) -> int:
    """Run `count` stored jobs of BUSY to their end; return how many pages were loaded."""
    ready_queues.announce(BUSY)
    stored = [*range(1, count + 1)]
    pages, ended = 0, 0
    while ended < count:
        pages += load(ready_queues, stored)
        for job_id, worker in ready_queues.take():
            key = LeaseKey(job_id, 1, 1)
            worker.hold(key, ())
            workers.release(worker.spec.id, key)
            ended += 1
        if ready_queues.is_crowded:
            list(ready_queues.trim())
    return pages


def test_queues_whose_jobs_no_worker_runs_cost_a_busy_one_no_page() -> None:
    alone = drain(*waiting(0), 2_000)
    beside = drain(*waiting(1_000), 2_000)

    assert beside <= alone + 1


def test_an_index_is_small_again_when_no_job_was_taken_from_it_for_two_periods() -> None:
    ready_queues, workers = waiting(1_000)
    drain(ready_queues, workers, 100)
    jobs = [Job(id=number, task="work") for number in range(101, 131)]
    for job in jobs:
        ready_queues.add(job)
    assert ready_queues.take()
    ready = ready_queues.ready_index(BUSY)
    assert ready is not None
    assert not ready.is_overfull

    for _ in range(3):
        ready_queues.end_period()

    assert ready_queues.is_crowded
    assert ready.is_overfull


def test_busy_indexes_together_hold_no_more_than_the_limit_once_again() -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("w", 1_000_000))
    ready_queues = ReadyQueues(workers, CAPACITY, LIMIT)
    for number in range(100 * 32):
        ready = ready_queues.add(Job(id=number + 1, rank=number, queue=f"q{number % 100}"))
        if ready is not None:
            list(ready.trim())
        if number % 3 == 0:
            ready_queues.take()
        if ready_queues.is_crowded:
            list(ready_queues.trim())

    held = sum(len(index) for _, index in ready_queues.ready_indexes())

    assert held <= 2 * LIMIT
