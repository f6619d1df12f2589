"""Ready queues: the next job is chosen within a queue by rank and between queues by weight."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from schedo.core.model import Job, LeaseKey, Options, Queue, ReadyKey
from schedo.core.ready_queues import ReadyQueues
from schedo.core.requirements import Requirements
from schedo.core.worker_groups import UNSERVED_SAMPLED
from schedo.core.worker_pool import WorkerPool
from tests.core.builders import worker_spec


def worker_pool(slots: int = 1_000, **fields: Any) -> WorkerPool:
    workers = WorkerPool()
    workers.attach(worker_spec(slots=slots, **fields))
    return workers


def job(ident: int, rank: int = 0, queue: str = "default", task: str = "work") -> Job:
    return Job(id=ident, rank=rank, queue=queue, task=task)


def filled(*jobs: Job, workers: WorkerPool | None = None, capacity: int = 100) -> ReadyQueues:
    ready_queues = ReadyQueues(workers or worker_pool(), capacity)
    for each in jobs:
        assert ready_queues.add(each)
    return ready_queues


def starts(ready_queues: ReadyQueues, suspects: Set[int] = frozenset()) -> list[tuple[int, str]]:
    """Start all jobs that can start; return them in that order, each with its worker."""
    started = []
    while taken := ready_queues.take():
        for ident, worker in taken:
            worker.hold(LeaseKey(ident, 1, 1), (), is_suspect=ident in suspects)
            started.append((ident, worker.spec.id))
    return started


def order(ready_queues: ReadyQueues, suspects: Set[int] = frozenset()) -> list[int]:
    """Return the jobs in the order in which they start."""
    return [job_id for job_id, _ in starts(ready_queues, suspects)]


def test_without_a_job_or_a_worker_no_job_is_taken() -> None:
    assert ReadyQueues(worker_pool()).take() == []
    assert filled(job(1), workers=WorkerPool()).take() == []


def test_the_smallest_rank_goes_first_and_equal_ranks_by_id() -> None:
    ready_queues = filled(job(3, 20), job(2, 10), job(1, 20), job(4, -5))

    assert order(ready_queues) == [4, 2, 1, 3]


def test_jobs_of_one_queue_start_by_rank_whatever_their_task() -> None:
    ready_queues = filled(job(1, 30, task="a"), job(2, 10, task="b"), job(3, 20, task="a"))

    assert order(ready_queues) == [2, 3, 1]


def test_a_ready_key_without_a_worker_blocks_no_other() -> None:
    ready_queues = filled(
        job(1, 10, task="nobody"),
        job(2, 20),
        job(3, 0, queue="q", task="nobody"),
        workers=worker_pool(tasks=frozenset({"work"})),
    )

    assert order(ready_queues) == [2]
    assert ready_queues.ready_index(ReadyKey("default", "nobody")) is not None


def unserved_by(workers: WorkerPool) -> dict[tuple[str, str], int]:
    """Return the counts by queue and task."""
    return {(key.queue, key.task): count for key, count in workers.groups.unserved().items()}


def test_jobs_that_no_worker_can_run_are_counted_by_ready_key() -> None:
    workers = worker_pool(tasks=frozenset({"work"}))
    gpu = Requirements(resources=(("gpu", 1),))
    ready_queues = filled(
        job(1),
        job(2, task="mail"),
        job(3, task="mail", queue="q"),
        Job(id=4, queue="q", task="train", options=Options(requirements=gpu)),
        workers=workers,
    )
    assert order(ready_queues) == [1]
    assert unserved_by(workers) == {("default", "mail"): 1, ("q", "mail"): 1, ("q", "train"): 1}

    workers.attach(worker_spec("other", tasks=frozenset({"mail"})))
    assert sorted(order(ready_queues)) == [2, 3]
    assert unserved_by(workers) == {("q", "train"): 1}

    ready_queues.remove(Job(id=4, queue="q", task="train", options=Options(requirements=gpu)))
    assert workers.groups.unserved() == {}


def test_the_count_of_jobs_that_no_worker_can_run_looks_at_some_queues_only() -> None:
    workers = WorkerPool()
    ready_queues = filled(*(job(n, queue=f"q{n}") for n in range(1, 301)), workers=workers)

    assert order(ready_queues) == []
    assert len(workers.groups.unserved()) == UNSERVED_SAMPLED


def test_a_ready_key_whose_worker_is_full_blocks_no_other() -> None:
    workers = worker_pool(slots=1, tasks=frozenset({"a"}))
    workers.attach(worker_spec("other", tasks=frozenset({"b"})))
    workers.hold("w", LeaseKey(9, 1, 1))
    ready_queues = filled(job(1, 10, task="a"), job(2, 20, task="b"), workers=workers)

    assert order(ready_queues) == [2]


def test_queues_of_equal_weight_start_jobs_alternately() -> None:
    ready_queues = filled(
        *(job(n, queue="a") for n in (1, 2, 3)), *(job(n, queue="b") for n in (4, 5, 6))
    )

    assert order(ready_queues) == [1, 4, 2, 5, 3, 6]


def test_a_queue_of_weight_three_starts_three_times_as_often() -> None:
    ready_queues = filled(
        *(job(n, queue="heavy") for n in range(1, 13)), workers=worker_pool(slots=12)
    )
    for n in range(13, 25):
        ready_queues.add(job(n, queue="light"))
    ready_queues.set_queue(Queue("heavy", weight=3))

    started = starts(ready_queues)

    assert len([n for n, _ in started if n <= 12]) == 9


def test_a_queue_gets_no_extra_starts_for_the_time_when_it_was_idle() -> None:
    workers = worker_pool(slots=90)
    ready_queues = filled(*(job(n, queue="busy") for n in range(1, 101)), workers=workers)
    starts(ready_queues)
    for n in range(101, 111):
        ready_queues.add(job(n, queue="new"))

    workers.attach(worker_spec("more", slots=6))
    started = starts(ready_queues)

    assert len([n for n, _ in started if n > 100]) == 3


def test_a_queue_that_was_idle_goes_before_queues_of_the_same_virtual_time() -> None:
    ready_queues = filled(*(job(n, queue=f"q{n % 1_000}") for n in range(1, 3_001)))
    for _ in range(1_500):
        ready_queues.take()

    for n in (3_001, 3_002, 3_003):
        ready_queues.add(job(n, queue="new"))
    ready_queues.add(job(4_000, queue="newer"))

    assert [ready_queues.take()[0][0] for _ in range(2)] == [3_001, 4_000]
    later = [ready_queues.take()[0][0] for _ in range(1_501)]
    assert later.index(3_002) == 1_500, "after the rest of this round and all of the next one"


def test_stored_jobs_start_in_the_order_of_their_queues() -> None:
    ready_queues = ReadyQueues(worker_pool())
    for name in ("a", "b"):
        ready_queues.announce(ReadyKey(name, "work"))
    for _, ready in ready_queues.take_pages(8):
        ready.extend((-(1 << 62), 0), None)
    ready_queues.add(job(1, queue="a"))
    ready_queues.add(job(2, queue="b"))
    ready_queues.add(job(3, queue="new"))

    assert order(ready_queues) == [3, 1, 2]


def test_a_paused_queue_starts_nothing() -> None:
    ready_queues = filled(job(1, queue="a"), job(2, queue="b"))
    ready_queues.set_queue(Queue("a", paused=True))

    assert order(ready_queues) == [2]
    assert not ready_queues.queue_state("a").is_open
    ready_queues.set_queue(Queue("a"))
    assert order(ready_queues) == [1]


def test_a_queue_at_its_concurrency_starts_nothing_more() -> None:
    ready_queues = filled(job(1), job(2))
    ready_queues.set_queue(Queue("default", concurrency=1))

    assert [job_id for job_id, _ in ready_queues.take()] == [1]
    ready_queues.queue_state("default").running += 1
    assert ready_queues.take() == []
    ready_queues.ended("default")
    assert [job_id for job_id, _ in ready_queues.take()] == [2]


def test_a_higher_limit_lets_a_queue_start_more() -> None:
    ready_queues = filled(job(1), job(2))
    ready_queues.set_queue(Queue("default", concurrency=1))
    ready_queues.queue_state("default").running += 1
    assert ready_queues.take() == []

    ready_queues.set_queue(Queue("default", concurrency=2))

    assert [job_id for job_id, _ in ready_queues.take()] == [1]


def test_a_ready_index_is_closed_when_its_last_job_leaves() -> None:
    ready_queues = filled(job(1), job(2, task="other"))

    ready_queues.remove(job(1))

    assert ready_queues.ready_index(ReadyKey("default", "work")) is None
    assert [ready_key for ready_key, _ in ready_queues.ready_indexes()] == [
        ReadyKey("default", "other")
    ]
    ready_queues.take()
    assert list(ready_queues.ready_indexes()) == []
    assert ready_queues.ready_index(ReadyKey("default", "other")) is None


def test_removing_a_job_of_a_closed_ready_index_changes_nothing() -> None:
    ready_queues = filled(job(1))
    ready_queues.take()

    ready_queues.remove(job(1))

    assert list(ready_queues.ready_indexes()) == []


def test_a_queue_without_jobs_and_limits_is_evicted() -> None:
    ready_queues = filled(job(1))
    ready_queues.set_queue(Queue("paused", paused=True))
    ready_queues.queue_state("busy").running += 1
    ready_queues.evict_idle()
    assert {line.queue.name for line in ready_queues.queue_states()} == {
        "default",
        "paused",
        "busy",
    }

    ready_queues.take()
    ready_queues.ended("busy")
    assert [line.queue.name for line in ready_queues.queue_states()] == ["paused"]
    ready_queues.evict_idle()

    assert ready_queues.find_queue_state("default") is None
    assert ready_queues.find_queue_state("busy") is None


def test_an_announced_ready_key_waits_for_its_first_page() -> None:
    ready_queues = ReadyQueues(worker_pool())
    ready_queues.announce(ReadyKey("default", "work"))
    ready_queues.announce(ReadyKey("default", "work"))

    assert not ready_queues.add(job(1))
    ready = ready_queues.ready_index(ReadyKey("default", "work"))
    assert ready is not None
    assert ready.needs_page()
    assert ready_queues.take() == []


def test_a_ready_index_stays_open_while_a_page_loads_and_closes_if_it_is_empty() -> None:
    ready_key = ReadyKey("default", "work")
    ready_queues = ReadyQueues(worker_pool())
    ready_queues.announce(ready_key)
    ready = ready_queues.ready_index(ready_key)
    assert ready is not None
    ready.is_loading = True

    ready_queues.settle(ready_key)
    assert ready_queues.ready_index(ready_key) is ready

    ready.extend((-(1 << 62), 0), None)
    ready_queues.settle(ready_key)
    ready_queues.settle(ready_key)
    assert ready_queues.ready_index(ready_key) is None


def test_a_trimmed_ready_index_stays_open_without_jobs_in_memory() -> None:
    ready_queues = filled(job(1, 1), job(2, 2), job(3, 3), capacity=1)
    ready = ready_queues.ready_index(ReadyKey("default", "work"))
    assert ready is not None
    assert list(ready.trim()) == [2, 3]

    ready_queues.take()

    assert ready.needs_page()
    assert ready_queues.ready_index(ReadyKey("default", "work")) is ready


def test_each_start_goes_to_the_worker_with_the_most_free_slots() -> None:
    workers = worker_pool(slots=2)
    workers.attach(worker_spec("other", slots=2))
    ready_queues = filled(*(job(n) for n in range(1, 5)), workers=workers)

    assert starts(ready_queues) == [(1, "w"), (2, "other"), (3, "w"), (4, "other")]


def test_no_job_is_taken_when_the_only_worker_is_full() -> None:
    ready_queues = filled(*(job(n) for n in range(1, 5)), workers=worker_pool(slots=2))

    assert starts(ready_queues) == [(1, "w"), (2, "w")]


def test_a_batch_of_starts_is_no_larger_than_the_concurrency_of_its_queue() -> None:
    ready_queues = filled(*(job(n) for n in range(1, 5)))
    ready_queues.set_queue(Queue("default", concurrency=3))
    ready_queues.queue_state("default").running += 1

    assert len(ready_queues.take()) == 2
    assert len(ready_queues.ready_index(ReadyKey("default", "work")) or ()) == 2


def test_many_ready_indexes_share_the_capacity_of_one() -> None:
    ready_queues = ReadyQueues(worker_pool(), 8, 64)
    for number in range(640):
        ready = ready_queues.add(job(number + 1, queue=f"q{number % 20}"))
        if ready is not None:
            list(ready.trim())
        if ready_queues.is_crowded:
            list(ready_queues.trim())

    assert sum(len(ready) for _, ready in ready_queues.ready_indexes()) <= 20 * 4
    assert all(len(ready) >= 2 for _, ready in ready_queues.ready_indexes())


def test_a_ready_index_gets_the_capacity_of_closed_ones() -> None:
    ready_queues = ReadyQueues(worker_pool(), 8, 64)
    others = [job(number, queue=f"q{number}") for number in range(1, 20)]
    for _ in range(2):
        for other in others:
            ready_queues.add(other)
        for other in others:
            ready_queues.remove(other)

    kept = [ready_queues.add(job(number)) for number in range(100, 132)]

    assert all(ready is not None and not ready.is_overfull for ready in kept)


def test_pages_are_loaded_in_queue_order_and_not_for_paused_queues() -> None:
    ready_queues = ReadyQueues(worker_pool(), 8, 64)
    for name in ("paused", "late", "soon"):
        ready_queues.announce(ReadyKey(name, "work"))
    ready_queues.set_queue(Queue("paused", paused=True))
    ready_queues.queue_state("late").virtual_time = 5.0

    assert ready_queues.needs_pages()
    assert [ready_key.queue for ready_key, _ in ready_queues.take_pages(1)] == ["soon"]
    assert [ready_key.queue for ready_key, _ in ready_queues.take_pages(9)] == ["late"]
    assert not ready_queues.needs_pages(), "both are on their way"

    ready_queues.set_queue(Queue("paused"))
    assert [ready_key.queue for ready_key, _ in ready_queues.take_pages(9)] == ["paused"]


def test_many_small_pages_are_loaded_together_and_few_large_ones() -> None:
    ready_queues = ReadyQueues(worker_pool(), 8, 64)
    for number in range(40):
        ready_queues.announce(ReadyKey(f"q{number}", "work"))
    sizes = [len(ready_queues.take_pages(limit, 16)) for limit in (3, 40, 40)]
    pages = [ready for _, ready in ready_queues.ready_indexes() if ready.is_loading]

    assert {ready.page_size for ready in pages} == {2}
    assert sizes == [3, 8, 8]


def test_a_paused_queue_needs_no_page() -> None:
    ready_queues = ReadyQueues(worker_pool(), 8, 64)
    ready_queues.announce(ReadyKey("q", "work"))

    ready_queues.set_queue(Queue("q", paused=True))

    assert not ready_queues.needs_pages()
    assert ready_queues.take_pages(9) == []


def test_a_ready_index_needs_a_page_when_it_gets_more_capacity() -> None:
    ready_queues = ReadyQueues(worker_pool(), 8, 64)
    others = [job(number, queue=f"q{number}") for number in range(100, 120)]
    for other in others:
        ready_queues.add(other)
    kept = [ready_queues.add(job(number)) for number in range(1, 6)][-1]
    assert kept is not None
    assert list(kept.trim()) == [3, 4, 5]
    assert not ready_queues.needs_pages(), "two of two are in memory"

    for other in others:
        ready_queues.remove(other)

    assert [ready for _, ready in ready_queues.take_pages(8)] == [kept]
