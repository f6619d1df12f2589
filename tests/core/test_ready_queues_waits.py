"""While a page of one task is being read, the other tasks of its queue may have to wait for it."""

from __future__ import annotations

from schedo.core.model import ReadyKey
from schedo.core.queue_states import ReadyIndex
from schedo.core.ready_queues import ReadyQueues
from tests.core.test_ready_queues import job, order, worker_pool


def with_a_page_under_way(last: int) -> tuple[ReadyQueues, ReadyIndex]:
    """Return ready queues without a job of task a in memory: those that are left follow `last`."""
    ready_queues = ReadyQueues(worker_pool())
    ready_queues.announce(ReadyKey("default", "a"))
    [(_, ready)] = ready_queues.take_pages()
    assert isinstance(ready, ReadyIndex)
    assert ready.horizon is not None
    assert ready.extend(ready.horizon, (last, 1))
    ready_queues.add_page(ready, [(last, 1)])
    assert order(ready_queues) == [1]
    assert ready_queues.needs_pages()
    ready_queues.take_pages()
    return ready_queues, ready


def test_a_job_waits_for_the_page_of_another_task_that_may_go_first() -> None:
    ready_queues, ready = with_a_page_under_way(last=10)
    ready_queues.add(job(50, 30, task="b"))

    assert order(ready_queues) == []

    assert ready.extend((10, 1), (20, 3))
    ready_queues.add_page(ready, [(15, 2), (20, 3)])
    assert order(ready_queues) == [2, 3], "what comes after 3 may go before 50, too"
    ready_queues.take_pages()
    assert ready.extend((20, 3), None)
    ready_queues.add_page(ready, [(40, 4)])
    assert order(ready_queues) == [50, 4]


def test_a_job_goes_on_if_the_page_has_shown_that_there_are_no_more() -> None:
    ready_queues, ready = with_a_page_under_way(last=10)
    ready_queues.add(job(50, 30, task="b"))
    assert order(ready_queues) == []

    assert ready.extend((10, 1), None)
    ready_queues.settle(ReadyKey("default", "a"))

    assert order(ready_queues) == [50]


def test_a_job_that_goes_before_all_of_the_page_does_not_wait() -> None:
    ready_queues, _ = with_a_page_under_way(last=10)
    ready_queues.add(job(50, 5, task="b"))

    assert order(ready_queues) == [50]


def test_other_queues_do_not_wait_for_the_page() -> None:
    ready_queues, _ = with_a_page_under_way(last=10)
    ready_queues.add(job(50, 30, queue="other", task="b"))

    assert order(ready_queues) == [50]


def test_a_job_waits_for_jobs_that_the_store_has_queued_itself() -> None:
    ready_queues = ReadyQueues(worker_pool())
    ready_queues.add(job(1, 10, task="a"))
    ready_queues.add(job(50, 30, task="b"))

    assert ready_queues.retreat(ReadyKey("default", "a"), (5, 7)) == [1]

    assert order(ready_queues) == []
