"""The worker pool: which workers serve a ready key, and how many free slots they have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schedo.core import worker_pool
from schedo.core.model import LeaseKey, Options, ReadyKey
from schedo.core.requirements import Condition, Preference, Requirements
from schedo.core.worker_pool import Worker, WorkerPool
from tests.core.builders import worker_spec

READY_KEY = ReadyKey("default", "work")


def attached(*offers: tuple[str, int]) -> WorkerPool:
    workers = WorkerPool()
    for worker_id, slots in offers:
        workers.attach(worker_spec(worker_id, slots))
    return workers


def picked(workers: WorkerPool, ready_key: ReadyKey = READY_KEY) -> str | None:
    workers.groups.note_freed()
    worker = workers.groups.find(ready_key).first()
    return worker.spec.id if worker is not None else None


def test_without_workers_there_is_no_free_slot() -> None:
    workers = WorkerPool()

    assert picked(workers) is None
    assert "w" not in workers


def test_the_worker_with_the_most_free_slots_is_picked() -> None:
    workers = attached(("a", 1), ("b", 3), ("c", 2))

    assert picked(workers) == "b"
    workers.hold("b", LeaseKey(1, 1, 1))
    workers.hold("b", LeaseKey(2, 1, 1))
    assert picked(workers) == "c"


def test_an_attempt_that_is_released_twice_frees_one_slot() -> None:
    workers = attached(("a", 2))
    for job_id in (1, 2):
        workers.hold("a", LeaseKey(job_id, 1, 1))

    workers.release("a", LeaseKey(1, 1, 1))
    workers.release("a", LeaseKey(1, 1, 1))

    worker = workers.find("a")
    assert worker is not None
    assert worker.free == 1


def test_a_worker_that_names_tasks_or_queues_serves_no_others() -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("tasks", tasks=frozenset({"work"})))
    workers.attach(worker_spec("queues", slots=5, queues=frozenset({"mail"})))

    assert picked(workers, ReadyKey("default", "work")) == "tasks"
    assert picked(workers, ReadyKey("default", "other")) is None
    assert picked(workers, ReadyKey("mail", "other")) == "queues"
    assert [w.spec.id for w in workers.eligible_workers(ReadyKey("mail", "work"))] == [
        "tasks",
        "queues",
    ]


def test_a_full_worker_serves_its_ready_keys_but_is_not_picked() -> None:
    workers = attached(("a", 1))
    workers.hold("a", LeaseKey(1, 1, 1))

    assert picked(workers) is None
    assert len(workers.eligible_workers(READY_KEY)) == 1


def test_a_released_attempt_frees_a_slot() -> None:
    workers = attached(("a", 1))
    workers.hold("a", LeaseKey(1, 1, 1))

    workers.release("a", LeaseKey(1, 1, 1))
    workers.release("gone", LeaseKey(2, 1, 1))
    workers.release(None, LeaseKey(2, 1, 1))

    assert picked(workers) == "a"


def test_a_closed_worker_gets_no_more_until_it_attaches_again() -> None:
    workers = attached(("a", 2))

    workers.close("a")
    workers.close("nobody")

    assert picked(workers) is None
    workers.attach(worker_spec("a", 2))
    assert picked(workers) == "a"


def test_a_new_spec_changes_the_slots_and_keeps_running_attempts() -> None:
    workers = attached(("a", 3))
    workers.hold("a", LeaseKey(1, 1, 1))
    workers.hold("a", LeaseKey(2, 1, 1))

    worker = workers.attach(worker_spec("a", 1))

    assert worker.free == -1
    assert picked(workers) is None
    assert list(worker.running) == [LeaseKey(1, 1, 1), LeaseKey(2, 1, 1)]


def test_detaching_returns_the_leases_of_the_worker() -> None:
    workers = attached(("a", 3))
    workers.hold("a", LeaseKey(1, 1, 1))

    assert workers.detach("a") == [LeaseKey(1, 1, 1)]
    assert workers.detach("a") == []
    assert "a" not in workers


def test_the_defaults_of_a_task_come_from_a_worker_that_registers_it() -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("a"))
    workers.attach(worker_spec("b", task_defaults={"mail": Options(timeout_us=5)}))

    assert workers.task_defaults("mail") == Options(timeout_us=5)
    assert workers.task_defaults("work") is None


def test_a_worker_without_attempts_has_all_its_slots_free() -> None:
    assert Worker(worker_spec(slots=4)).free == 4


def test_an_attempt_of_a_detached_worker_is_ignored() -> None:
    workers = attached(("a", 1))

    workers.hold("gone", LeaseKey(1, 1, 1))

    assert picked(workers) == "a"


def test_an_isolated_worker_serves_only_suspects() -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("kept", isolated=True))

    assert picked(workers) is None
    assert picked(workers, ReadyKey("default", "work", isolated=True)) == "kept"


def test_a_worker_with_isolated_tasks_serves_suspects_and_other_jobs() -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("far", isolated_tasks=frozenset({"shell"})))

    assert picked(workers, ReadyKey("default", "shell", isolated=True)) == "far"
    assert picked(workers, ReadyKey("default", "work", isolated=True)) is None
    assert picked(workers, ReadyKey("default", "work")) == "far"


def test_a_remote_worker_serves_suspects_that_it_cannot_isolate() -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("far", polls=True))
    workers.poll("far", 9)

    assert picked(workers, ReadyKey("default", "work", isolated=True)) == "far"


def test_eligible_workers_follow_attach_and_detach() -> None:
    workers = attached(("a", 1))

    assert [w.spec.id for w in workers.eligible_workers(READY_KEY)] == ["a"]
    workers.attach(worker_spec("b"))
    assert [w.spec.id for w in workers.eligible_workers(READY_KEY)] == ["a", "b"]
    workers.attach(worker_spec("a", tasks=frozenset({"other"})))
    assert [w.spec.id for w in workers.eligible_workers(READY_KEY)] == ["b"]
    workers.detach("b")
    assert workers.eligible_workers(READY_KEY) == []


def test_a_polling_worker_gets_at_most_what_its_poll_requests() -> None:
    workers = WorkerPool()
    worker = workers.attach(worker_spec("a", 4, polls=True))
    assert worker.free == 0

    workers.poll("a", 2)
    assert worker.free == 2
    workers.hold("a", LeaseKey(1, 1, 1))
    workers.hold("a", LeaseKey(2, 1, 1))
    assert worker.free == 0
    workers.release("a", LeaseKey(1, 1, 1))
    assert worker.free == 0, "the slot is free, but no poll requests it"
    workers.poll("a", 9)
    assert worker.free == 3


def test_a_slot_of_a_released_reservation_can_serve_the_open_poll_again() -> None:
    workers = WorkerPool()
    worker = workers.attach(worker_spec("a", 4, polls=True))
    workers.poll("a", 1)
    workers.hold("a", LeaseKey(-1, 0, 0))
    assert worker.free == 0

    workers.release("a", LeaseKey(-1, 0, 0))

    assert worker.free == 1


def test_a_cordoned_worker_gets_nothing_until_it_is_uncordoned() -> None:
    workers = attached(("a", 4))

    workers.cordon("a", True)
    workers.attach(worker_spec("a", 4))
    assert picked(workers) is None
    workers.cordon("a", False)
    assert picked(workers) == "a"


# Requirements.


def routed(**fields: Any) -> ReadyKey:
    return READY_KEY._replace(requirements=Requirements(**fields))


def test_only_workers_that_meet_the_requirements_are_eligible() -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("eu", labels={"region": "eu"}))
    workers.attach(worker_spec("us", labels={"region": "us"}, resources={"cpu": 4_000}))

    assert picked(workers, routed(labels=(Condition("region", "=", ("eu",)),))) == "eu"
    assert picked(workers, routed(worker="us")) == "us"
    assert picked(workers, routed(resources=(("cpu", 1_000),))) == "us"
    assert picked(workers, routed(resources=(("cpu", 5_000),))) is None
    assert picked(workers, routed(labels=(Condition("gpu", "=", ("a100",)),))) is None


def test_resources_are_counted_while_attempts_run() -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("a", slots=10, resources={"cpu": 4_000}))
    ready_key = routed(resources=(("cpu", 3_000),))
    worker = workers.groups.find(ready_key).first()
    assert worker is not None

    worker.hold(LeaseKey(1, 1, 1), (("cpu", 3_000),))

    assert picked(workers, ready_key) is None
    assert worker.capacity_for(Requirements(resources=(("cpu", 1_000),))) == 1
    assert worker.capacity_for(None) == 9
    workers.release("a", LeaseKey(1, 1, 1))
    assert picked(workers, ready_key) == "a"


def test_the_preferred_worker_is_picked_while_it_has_free_slots() -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("far", slots=9, labels={"zone": "us"}))
    workers.attach(worker_spec("near", slots=1, labels={"zone": "lhr"}))
    ready_key = routed(prefer=(Preference((Condition("zone", "=", ("lhr",)),), 2.0),))

    assert picked(workers, ready_key) == "near"
    workers.hold("near", LeaseKey(1, 1, 1))
    assert picked(workers, ready_key) == "far"


# Groups.


def test_ready_keys_with_the_same_workers_share_a_group() -> None:
    workers = WorkerPool()
    workers.attach(worker_spec("a", tasks=frozenset({"t", "u"})))
    workers.attach(worker_spec("b", tasks=frozenset({"v"})))
    find = workers.groups.find

    assert find(ReadyKey("q", "t")) is find(ReadyKey("r", "u"))
    assert find(ReadyKey("q", "t")) is not find(ReadyKey("q", "v"))
    assert find(ReadyKey("q", "t")) is not find(
        ReadyKey("q", "t", requirements=Requirements(resources=(("cpu", 1_000),)))
    )


def test_a_worker_that_serves_all_keys_of_a_group_joins_it() -> None:
    workers = attached(("a", 1))
    group = workers.groups.find(READY_KEY)

    workers.attach(worker_spec("b"))
    assert [worker.spec.id for worker in group.members] == ["a", "b"]
    workers.detach("a")

    assert [worker.spec.id for worker in group.members] == ["b"]
    assert workers.groups.find(READY_KEY) is group
    assert workers.groups.generation == 0


def test_a_worker_that_serves_a_part_of_a_group_rebuilds_all_groups() -> None:
    workers = attached(("a", 1))
    find = workers.groups.find
    assert find(ReadyKey("q", "t")) is find(ReadyKey("q", "u"))

    workers.attach(worker_spec("b", tasks=frozenset({"t"})))

    assert workers.groups.generation == 1
    assert find(ReadyKey("q", "t")) is not find(ReadyKey("q", "u"))
    workers.detach("b")
    assert workers.groups.generation == 2
    assert find(ReadyKey("q", "t")) is find(ReadyKey("q", "u"))


def test_queues_count_only_while_a_worker_names_some() -> None:
    workers = attached(("a", 1))
    find = workers.groups.find
    assert find(ReadyKey("q", "t")) is find(ReadyKey("r", "t"))

    workers.attach(worker_spec("b", queues=frozenset({"q"})))

    assert [worker.spec.id for worker in find(ReadyKey("q", "t")).members] == ["a", "b"]
    assert [worker.spec.id for worker in find(ReadyKey("r", "t")).members] == ["a"]


def test_groups_without_jobs_are_evicted() -> None:
    workers = attached(("a", 1))
    kept = workers.groups.find(READY_KEY)
    kept.key_count = 1

    for number in range(10_000):
        workers.groups.find(routed(resources=(("cpu", number),)))

    worker = workers.find("a")
    assert worker is not None
    assert len(worker.groups) < 100
    assert workers.groups.find(READY_KEY) is kept


def test_the_number_of_remembered_ready_keys_is_bounded() -> None:
    workers = attached(("a", 1))

    for number in range(10_000):
        workers.groups.find(ReadyKey("q", f"t{number}"))

    assert len(workers.groups._by_kind) <= 4_096
    assert workers.groups.generation == 2


def test_a_batch_is_assigned_like_single_jobs() -> None:
    workers = attached(("a", 2), ("b", 5), ("c", 4))
    shares = [worker.spec.id for worker in workers.groups.find(READY_KEY).share(9)]

    singly = []
    for number in range(9):
        name = picked(workers)
        assert name is not None
        workers.hold(name, LeaseKey(number + 1, 1, 1))
        singly.append(name)

    assert shares == singly


def test_a_group_without_free_slots_assigns_nothing() -> None:
    workers = attached(("a", 1))
    workers.hold("a", LeaseKey(1, 1, 1))

    assert workers.groups.find(READY_KEY).share(3) == []


def test_a_resource_amount_of_zero_limits_nothing() -> None:
    workers = attached(("a", 4))
    worker = workers.find("a")
    assert worker is not None

    assert worker.capacity_for(Requirements(resources=(("gpu", 0),))) == 4


def test_cached_task_defaults_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_pool, "TASKS_KNOWN_MAX", 3)
    announced = Options(timeout_us=7)
    workers = WorkerPool()
    workers.attach(worker_spec("a", task_defaults={"work": announced}))

    for number in range(10):
        assert workers.task_defaults(f"other {number}") is None
        assert workers.task_defaults("work") is announced
    assert len(workers._defaults) <= 3


def test_nothing_is_placed_on_a_relayed_worker_between_two_polls() -> None:
    workers = WorkerPool()
    workers.attach(replace(worker_spec("w", 2, polls=True), is_relayed=True))
    assert workers.place(READY_KEY, 1) == []

    workers.poll("w", 1)

    assert [each.spec.id for each in workers.place(READY_KEY, 1)] == ["w"]
    assert workers.place(READY_KEY, 2) == []
