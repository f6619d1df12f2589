"""Poison suspects in the ready queues: which worker runs them, and how many at a time."""

from __future__ import annotations

import pytest

from schedo.core.model import Job, LeaseKey, ReadyKey
from schedo.core.ready_queues import ReadyQueues
from schedo.core.worker_pool import WorkerPool
from tests.core.builders import worker_spec
from tests.core.test_ready_queues import filled, job, order, worker_pool

SUSPECTS = ReadyKey("default", "work", isolated=True)


def make_suspect(ident: int) -> Job:
    suspect = job(ident)
    suspect.poison_suspect = True
    return suspect


def test_a_poison_suspect_runs_only_on_an_isolated_worker() -> None:
    suspect = make_suspect(1)
    workers = worker_pool()
    ready_queues = filled(suspect, job(2, 5), workers=workers)

    assert order(ready_queues) == [2]
    workers.attach(worker_spec("kept", isolated=True))
    assert order(ready_queues) == [1]


@pytest.mark.parametrize(
    ("isolated_tasks", "started"), [((), [1, 3]), (("work",), [1, 2, 3])], ids=["shared", "own"]
)
def test_a_remote_worker_runs_poison_suspects_one_at_a_time_unless_it_isolates_them(
    isolated_tasks: tuple[str, ...], started: list[int]
) -> None:
    suspects = [make_suspect(1), make_suspect(2)]
    workers = WorkerPool()
    workers.attach(worker_spec("far", polls=True, isolated_tasks=frozenset(isolated_tasks)))
    workers.poll("far", 9)

    ready_queues = filled(*suspects, job(3), workers=workers)

    assert order(ready_queues, {1, 2}) == started


@pytest.mark.parametrize(
    ("task", "isolated", "has_suspects"),
    [("work", True, True), ("other", True, False), ("work", False, False)],
)
def test_only_an_isolated_worker_of_their_task_has_suspects_that_wait_for_it(
    task: str, isolated: bool, has_suspects: bool
) -> None:
    ready_queues = filled(make_suspect(1), job(2))

    spec = worker_spec("kept", tasks=frozenset({task}), isolated=isolated)
    assert ready_queues.has_suspects_for(spec) == has_suspects


def test_a_suspect_that_has_started_does_not_wait_for_a_worker() -> None:
    alone = worker_spec("kept", isolated=True)
    workers = worker_pool()
    ready_queues = filled(make_suspect(1), workers=workers)
    workers.attach(alone)

    assert order(ready_queues) == [1]

    assert not ready_queues.has_suspects_for(alone)


def test_the_next_poison_suspect_starts_when_the_previous_one_has_ended() -> None:
    suspects = [make_suspect(1), make_suspect(2)]
    workers = WorkerPool()
    far = workers.attach(worker_spec("far", polls=True))
    workers.poll("far", 9)
    ready_queues = filled(*suspects, workers=workers)
    assert order(ready_queues, {1, 2}) == [1]

    far.release(LeaseKey(1, 1, 1))

    assert order(ready_queues, {1, 2}) == [2]


def test_poison_suspects_are_never_evicted() -> None:
    ready_queues = ReadyQueues(worker_pool(), capacity=1)
    for ident in range(1, 101):
        ready = ready_queues.add(make_suspect(ident))
        assert ready is not None
        assert list(ready.trim()) == []

    assert ready_queues.ready_index(SUSPECTS) is not None
