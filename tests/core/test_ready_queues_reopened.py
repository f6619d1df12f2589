"""A ready index that was closed and is opened again."""

from __future__ import annotations

from tests.core.test_ready_queues import filled, job, order


def test_a_ready_key_whose_jobs_have_all_started_begins_again_like_a_new_one() -> None:
    ready_queues = filled(job(1, 5), job(2, 6))
    assert order(ready_queues) == [1, 2]
    assert ready_queues.ready_index(job(1).ready_key) is None

    ready_queues.add(job(4, 2))
    ready_queues.add(job(3, 2))
    assert order(ready_queues) == [3, 4]

    ready_queues.add(job(5, 1, task="other"))
    ready_queues.announce(job(1).ready_key)
    index = ready_queues.ready_index(job(1).ready_key)
    assert index is not None
    assert index.needs_page(), "the store has jobs of the key"
