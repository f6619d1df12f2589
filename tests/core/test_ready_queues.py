"""Lanes: who is next, within a queue by rank and between queues by weight."""

from __future__ import annotations

from typing import Any

from schedo.core.model import Job, LeaseKey, Queue, ReadyKey
from schedo.core.ready_queues import ReadyQueues
from schedo.core.worker_pool import WorkerPool
from tests.core.builders import offer


def crew(slots: int = 1_000, **fields: Any) -> WorkerPool:
    workers = WorkerPool()
    workers.attach(offer(slots=slots, **fields))
    return workers


def job(ident: int, rank: int = 0, queue: str = "default", task: str = "work") -> Job:
    return Job(id=ident, rank=rank, queue=queue, task=task)


def filled(*jobs: Job, workers: WorkerPool | None = None, capacity: int = 100) -> ReadyQueues:
    lanes = ReadyQueues(workers or crew(), capacity)
    for each in jobs:
        assert lanes.add(each)
    return lanes


def starts(lanes: ReadyQueues) -> list[tuple[int, str]]:
    """Start what can start; return the jobs in that order, each with its worker."""
    started = []
    while taken := lanes.take():
        for ident, worker in taken:
            worker.hold(LeaseKey(ident, 1, 1), ())
            started.append((ident, worker.spec.id))
    return started


def order(lanes: ReadyQueues) -> list[int]:
    """Return the jobs in the order in which they start."""
    return [job_id for job_id, _ in starts(lanes)]


def test_no_job_and_no_worker_means_nothing_to_take() -> None:
    assert ReadyQueues(crew()).take() == []
    assert filled(job(1), workers=WorkerPool()).take() == []


def test_the_smallest_rank_goes_first_and_equal_ranks_by_id() -> None:
    lanes = filled(job(3, 20), job(2, 10), job(1, 20), job(4, -5))

    assert order(lanes) == [4, 2, 1, 3]


def test_rank_holds_across_the_tasks_of_one_queue() -> None:
    lanes = filled(job(1, 30, task="a"), job(2, 10, task="b"), job(3, 20, task="a"))

    assert order(lanes) == [2, 3, 1]


def test_a_lane_that_nobody_serves_blocks_no_other() -> None:
    lanes = filled(
        job(1, 10, task="nobody"),
        job(2, 20),
        job(3, 0, queue="q", task="nobody"),
        workers=crew(tasks=frozenset({"work"})),
    )

    assert order(lanes) == [2]
    assert lanes.window(ReadyKey("default", "nobody")) is not None


def test_a_lane_whose_worker_is_full_blocks_no_other() -> None:
    workers = crew(slots=1, tasks=frozenset({"a"}))
    workers.attach(offer("other", tasks=frozenset({"b"})))
    workers.hold("w", LeaseKey(9, 1, 1))
    lanes = filled(job(1, 10, task="a"), job(2, 20, task="b"), workers=workers)

    assert order(lanes) == [2]


def test_queues_take_turns() -> None:
    lanes = filled(*(job(n, queue="a") for n in (1, 2, 3)), *(job(n, queue="b") for n in (4, 5, 6)))

    assert order(lanes) == [1, 4, 2, 5, 3, 6]


def test_a_queue_of_weight_three_starts_three_times_as_often() -> None:
    lanes = filled(*(job(n, queue="heavy") for n in range(1, 13)), workers=crew(slots=12))
    for n in range(13, 25):
        lanes.add(job(n, queue="light"))
    lanes.set_queue(Queue("heavy", weight=3))

    started = starts(lanes)

    assert len([n for n, _ in started if n <= 12]) == 9


def test_a_queue_that_was_idle_cannot_claim_the_past() -> None:
    workers = crew(slots=90)
    lanes = filled(*(job(n, queue="busy") for n in range(1, 101)), workers=workers)
    starts(lanes)
    for n in range(101, 111):
        lanes.add(job(n, queue="new"))

    workers.attach(offer("more", slots=6))
    started = starts(lanes)

    assert len([n for n, _ in started if n > 100]) == 3


def test_a_queue_that_was_idle_goes_before_the_thousand_whose_turn_it_is_as_well() -> None:
    lanes = filled(*(job(n, queue=f"q{n % 1_000}") for n in range(1, 3_001)))
    for _ in range(1_500):
        lanes.take()

    for n in (3_001, 3_002, 3_003):
        lanes.add(job(n, queue="new"))
    lanes.add(job(4_000, queue="newer"))

    assert [lanes.take()[0][0] for _ in range(2)] == [3_001, 4_000]
    later = [lanes.take()[0][0] for _ in range(1_501)]
    assert later.index(3_002) == 1_500, "after the rest of this round and all of the next one"


def test_what_the_store_had_before_goes_in_the_order_of_its_queues() -> None:
    lanes = ReadyQueues(crew())
    for name in ("a", "b"):
        lanes.announce(ReadyKey(name, "work"))
    for _, window in lanes.take_pages(8):
        window.extend((-(1 << 62), 0), None)
    lanes.add(job(1, queue="a"))
    lanes.add(job(2, queue="b"))
    lanes.add(job(3, queue="new"))

    assert order(lanes) == [3, 1, 2]


def test_a_paused_queue_starts_nothing() -> None:
    lanes = filled(job(1, queue="a"), job(2, queue="b"))
    lanes.set_queue(Queue("a", paused=True))

    assert order(lanes) == [2]
    assert not lanes.queue_state("a").is_open
    lanes.set_queue(Queue("a"))
    assert order(lanes) == [1]


def test_a_queue_at_its_concurrency_starts_nothing_more() -> None:
    lanes = filled(job(1), job(2))
    lanes.set_queue(Queue("default", concurrency=1))

    assert [job_id for job_id, _ in lanes.take()] == [1]
    lanes.started("default")
    assert lanes.take() == []
    lanes.ended("default")
    assert [job_id for job_id, _ in lanes.take()] == [2]


def test_a_higher_limit_lets_a_queue_start_more() -> None:
    lanes = filled(job(1), job(2))
    lanes.set_queue(Queue("default", concurrency=1))
    lanes.started("default")
    assert lanes.take() == []

    lanes.set_queue(Queue("default", concurrency=2))

    assert [job_id for job_id, _ in lanes.take()] == [1]


def test_a_lane_is_closed_when_its_last_job_leaves() -> None:
    lanes = filled(job(1), job(2, task="other"))

    lanes.remove(job(1))

    assert lanes.window(ReadyKey("default", "work")) is None
    assert [lane for lane, _ in lanes.windows()] == [ReadyKey("default", "other")]
    lanes.take()
    assert list(lanes.windows()) == []
    assert lanes.window(ReadyKey("default", "other")) is None


def test_removing_a_job_of_a_closed_lane_is_harmless() -> None:
    lanes = filled(job(1))
    lanes.take()

    lanes.remove(job(1))

    assert list(lanes.windows()) == []


def test_a_line_is_forgotten_when_nothing_is_known_of_it_but_its_name() -> None:
    lanes = filled(job(1))
    lanes.set_queue(Queue("paused", paused=True))
    lanes.started("busy")
    lanes.evict_idle()
    assert {line.queue.name for line in lanes.queue_states()} == {"default", "paused", "busy"}

    lanes.take()
    lanes.ended("busy")
    assert [line.queue.name for line in lanes.queue_states()] == ["paused"]
    lanes.evict_idle()

    assert lanes.find_queue_state("default") is None
    assert lanes.find_queue_state("busy") is None


def test_an_announced_lane_waits_for_its_first_page() -> None:
    lanes = ReadyQueues(crew())
    lanes.announce(ReadyKey("default", "work"))
    lanes.announce(ReadyKey("default", "work"))

    assert not lanes.add(job(1))
    window = lanes.window(ReadyKey("default", "work"))
    assert window is not None
    assert window.needs_page()
    assert lanes.take() == []


def test_a_lane_stays_open_while_a_page_is_on_its_way_and_closes_when_it_brings_nothing() -> None:
    lane = ReadyKey("default", "work")
    lanes = ReadyQueues(crew())
    lanes.announce(lane)
    window = lanes.window(lane)
    assert window is not None
    window.is_loading = True

    lanes.settle(lane)
    assert lanes.window(lane) is window

    window.extend((-(1 << 62), 0), None)
    lanes.settle(lane)
    lanes.settle(lane)
    assert lanes.window(lane) is None


def test_a_trimmed_lane_stays_open_though_memory_holds_none_of_it() -> None:
    lanes = filled(job(1, 1), job(2, 2), job(3, 3), capacity=1)
    window = lanes.window(ReadyKey("default", "work"))
    assert window is not None
    assert list(window.trim()) == [2, 3]

    lanes.take()

    assert window.needs_page()
    assert lanes.window(ReadyKey("default", "work")) is window


SUSPECTS = ReadyKey("default", "work", isolated=True)


def test_a_suspect_goes_only_to_a_worker_that_is_kept_for_them() -> None:
    suspect = job(1)
    suspect.poison_suspect = True
    workers = crew()
    lanes = filled(suspect, job(2, 5), workers=workers)

    assert order(lanes) == [2]
    workers.attach(offer("kept", isolated=True))
    assert order(lanes) == [1]


def test_suspects_are_never_pushed_out_of_memory_for_the_store_does_not_know_them() -> None:
    lanes = ReadyQueues(crew(), capacity=1)
    for ident in range(1, 101):
        suspect = job(ident)
        suspect.poison_suspect = True
        window = lanes.add(suspect)
        assert window is not None
        assert list(window.trim()) == []

    assert lanes.window(SUSPECTS) is not None


def test_where_two_workers_serve_a_lane_each_start_goes_to_the_one_with_more_room() -> None:
    workers = crew(slots=2)
    workers.attach(offer("other", slots=2))
    lanes = filled(*(job(n) for n in range(1, 5)), workers=workers)

    assert starts(lanes) == [(1, "w"), (2, "other"), (3, "w"), (4, "other")]


def test_taking_stops_when_the_only_worker_is_full() -> None:
    lanes = filled(*(job(n) for n in range(1, 5)), workers=crew(slots=2))

    assert starts(lanes) == [(1, "w"), (2, "w")]


def test_the_only_lane_is_taken_no_further_than_its_queue_allows() -> None:
    lanes = filled(*(job(n) for n in range(1, 5)))
    lanes.set_queue(Queue("default", concurrency=3))
    lanes.started("default")

    assert len(lanes.take()) == 2
    assert len(lanes.window(ReadyKey("default", "work")) or ()) == 2


def test_many_lanes_share_the_room_that_one_may_have() -> None:
    lanes = ReadyQueues(crew(), 8, 64)
    for number in range(640):
        window = lanes.add(job(number + 1, queue=f"q{number % 20}"))
        if window is not None:
            list(window.trim())
        if lanes.is_crowded:
            list(lanes.trim())

    assert sum(len(window) for _, window in lanes.windows()) <= 20 * 4
    assert all(len(window) >= 2 for _, window in lanes.windows())


def test_a_lane_has_all_the_room_again_when_the_others_are_gone() -> None:
    lanes = ReadyQueues(crew(), 8, 64)
    others = [job(number, queue=f"q{number}") for number in range(1, 20)]
    for _ in range(2):
        for other in others:
            lanes.add(other)
        for other in others:
            lanes.remove(other)

    kept = [lanes.add(job(number)) for number in range(100, 132)]

    assert all(window is not None and not window.is_overfull for window in kept)


def test_pages_are_loaded_for_the_queues_whose_turn_comes_first_and_not_for_paused_ones() -> None:
    lanes = ReadyQueues(crew(), 8, 64)
    for name in ("paused", "late", "soon"):
        lanes.announce(ReadyKey(name, "work"))
    lanes.set_queue(Queue("paused", paused=True))
    lanes.queue_state("late").virtual_time = 5.0

    assert lanes.needs_pages()
    assert [lane.queue for lane, _ in lanes.take_pages(1)] == ["soon"]
    assert [lane.queue for lane, _ in lanes.take_pages(9)] == ["late"]
    assert not lanes.needs_pages(), "both are on their way"

    lanes.set_queue(Queue("paused"))
    assert [lane.queue for lane, _ in lanes.take_pages(9)] == ["paused"]


def test_a_queue_that_is_paused_meanwhile_needs_no_page() -> None:
    lanes = ReadyQueues(crew(), 8, 64)
    lanes.announce(ReadyKey("q", "work"))

    lanes.set_queue(Queue("q", paused=True))

    assert not lanes.needs_pages()
    assert lanes.take_pages(9) == []


def test_a_lane_needs_a_page_when_the_others_have_left_it_more_room() -> None:
    lanes = ReadyQueues(crew(), 8, 64)
    others = [job(number, queue=f"q{number}") for number in range(100, 120)]
    for other in others:
        lanes.add(other)
    kept = [lanes.add(job(number)) for number in range(1, 6)][-1]
    assert kept is not None
    assert list(kept.trim()) == [3, 4, 5]
    assert not lanes.needs_pages(), "two of two are in memory"

    for other in others:
        lanes.remove(other)

    assert [window for _, window in lanes.take_pages(8)] == [kept]
