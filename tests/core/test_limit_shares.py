"""The limits of queues that several servers share."""

from __future__ import annotations

import pytest

from schedo.core.limit_shares import LimitUse, divide
from schedo.core.model import Queue
from schedo.core.ready_queues import ReadyQueues
from tests.core.test_ready_queues import filled, job


def sharing(limit: int = 2) -> ReadyQueues:
    """Return three jobs of a queue with a limit, on a server that shares the limit."""
    ready_queues = filled(*(job(n, n, "few") for n in (1, 2, 3)))
    ready_queues.limits.begin()
    ready_queues.set_queue(Queue("few", limit))
    return ready_queues


def start(ready_queues: ReadyQueues) -> int:
    """Start what can start; return how many jobs that are."""
    taken = ready_queues.take()
    for _ in taken:
        ready_queues.queue_state("few").running += 1
    return len(taken)


def test_without_a_share_no_job_of_a_limited_queue_starts() -> None:
    assert start(sharing()) == 0


def test_a_server_starts_as_many_jobs_as_its_share_of_the_limit() -> None:
    ready_queues = sharing()

    ready_queues.limits.give({"few": 1})
    assert start(ready_queues) == 1
    assert start(ready_queues) == 0
    assert ready_queues.limits.uses() == {"few": LimitUse(2, 1, running=1, waiting=2)}
    assert ready_queues.limits.uses()["few"].wanted == 3

    ready_queues.limits.give({"few": 9})
    assert start(ready_queues) == 1  # a share is never more than the limit
    ready_queues.ended("few")
    assert start(ready_queues) == 1


def test_a_queue_without_a_limit_needs_no_share() -> None:
    ready_queues = sharing()

    ready_queues.set_queue(Queue("few"))
    ready_queues.limits.give({"few": 0})

    assert start(ready_queues) == 3
    assert ready_queues.limits.uses() == {}


def test_a_limit_that_comes_again_needs_a_new_share() -> None:
    ready_queues = sharing()
    ready_queues.limits.give({"few": 2})
    ready_queues.set_queue(Queue("few"))

    ready_queues.set_queue(Queue("few", 1))

    assert start(ready_queues) == 0


def test_a_server_alone_has_each_limit_for_itself() -> None:
    ready_queues = filled(*(job(n, n, "few") for n in (1, 2, 3)))
    ready_queues.set_queue(Queue("few", 2))

    assert not ready_queues.limits.are_shared
    assert ready_queues.limits.uses() == {}
    ready_queues.limits.give({"few": 0})
    assert start(ready_queues) == 2


def test_a_paused_queue_wants_only_what_runs() -> None:
    ready_queues = sharing()
    ready_queues.set_queue(Queue("few", 2, paused=True))

    assert ready_queues.limits.uses()["few"].waiting == 0


@pytest.mark.parametrize(
    ("limit", "wishes", "turn", "shares"),
    [
        (10, {1: 3, 2: 4}, 0, {1: 3, 2: 4}),
        (10, {1: 30, 2: 4}, 0, {1: 6, 2: 4}),
        (10, {1: 30, 2: 40}, 0, {1: 5, 2: 5}),
        (1, {1: 9, 2: 9, 3: 0}, 0, {1: 1, 2: 0, 3: 0}),
        (1, {1: 9, 2: 9, 3: 0}, 1, {1: 0, 2: 1, 3: 0}),
        (5, {1: 9, 2: 9, 3: 1}, 1, {1: 2, 2: 2, 3: 1}),
        (0, {1: 9}, 0, {1: 0}),
        (-1, {1: 9}, 0, {1: 0}),
        (3, {}, 0, {}),
    ],
)
def test_a_limit_is_divided_by_what_the_servers_wish_and_else_equally(
    limit: int, wishes: dict[int, int], turn: int, shares: dict[int, int]
) -> None:
    assert divide(limit, wishes, turn) == shares
