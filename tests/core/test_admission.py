"""Admission of specs: defaults, due time, rank, and unique keys of jobs."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core import job_maker
from schedo.core.commands import Accepted, Submit
from schedo.core.loads import LoadUniqueHolders
from schedo.core.model import Job, JobSpec, Options, Queue, Retry, Unique
from schedo.core.states import State
from schedo.errors import DuplicateKey, Forbidden, SchedoError
from tests.core.builders import HOUR, MINUTE, SECOND, T0, keyed, make_spec, tries, worker_spec
from tests.core.scheduled import made
from tests.core.server import Server


def accepted(answer: Accepted | SchedoError) -> Job:
    assert isinstance(answer, Accepted)
    return answer.job


# Defaults.


def test_a_job_is_queued_at_once_when_it_is_due_and_scheduled_when_it_is_not() -> None:
    server = Server(slots=0)

    now, later, past = server.submit_all(
        [make_spec(), make_spec(delay_us=1), make_spec(run_at=5)], SECOND
    )

    assert (accepted(now).state, accepted(now).due_at) == (State.QUEUED, 1_000_000)
    assert (accepted(later).state, accepted(later).due_at) == (State.SCHEDULED, 1_000_001)
    assert (accepted(past).state, accepted(past).due_at) == (State.QUEUED, 5)


def test_a_job_has_the_fields_of_its_spec() -> None:
    job = Server(slots=0).submit(
        make_spec("mail", queue="q", payload=b"[1]", priority=3, tags=("x",)), SECOND
    )

    assert (job.task, job.queue, job.payload, job.priority) == ("mail", "q", b"[1]", 3)
    assert job.options.tags == ("x",)
    assert job.created_at == SECOND
    assert (job.attempt, job.failures, job.losses) == (0, 0, 0)


@pytest.mark.parametrize(
    ("spec", "expires_at"),
    [
        (make_spec(), None),
        (make_spec(expires_at=HOUR), HOUR),
        (make_spec(expires_in_us=MINUTE, delay_us=SECOND), 61 * SECOND),
    ],
    ids=["never", "at an instant", "after a time"],
)
def test_an_expiry_is_an_instant_or_counts_from_the_submit(
    spec: JobSpec, expires_at: int | None
) -> None:
    assert Server(slots=0).submit(spec, SECOND).expires_at == expires_at


def test_one_point_of_priority_ranks_a_job_as_if_it_were_due_one_step_earlier() -> None:
    server = Server(slots=0)
    server.set_queue(Queue("slow", priority_step_us=HOUR))

    assert server.submit(make_spec(priority=9), HOUR).rank == HOUR - 9 * MINUTE
    assert server.submit(make_spec(priority=-1), HOUR).rank == HOUR + MINUTE
    assert server.submit(make_spec(queue="slow", priority=2), HOUR).rank == -HOUR


@pytest.mark.parametrize(
    ("spec", "attempts", "timeout_us"),
    [
        (make_spec("shell"), 1, None),
        (make_spec("http"), 1, None),
        (make_spec("shell", retry=tries(7), timeout_us=9), 7, 9),
        (make_spec("unheard of"), 5, None),
        (make_spec("mail"), 8, 30),
        (make_spec("mail", timeout_us=9), 8, 9),
        (make_spec("mail", retry=tries(2)), 2, 30),
        (make_spec("quick"), 5, 3),
        (make_spec("mail", at_most_once=True), 1, 30),
        (make_spec("mail", at_most_once=True, retry=tries(2)), 2, 30),
        (make_spec("once"), 1, None),
        (make_spec("once", retry=tries(2)), 2, None),
        (make_spec("once", at_most_once=False), 5, None),
    ],
    ids=lambda value: value.task if isinstance(value, JobSpec) else str(value),
)
def test_missing_options_come_from_the_task(
    spec: JobSpec, attempts: int, timeout_us: int | None
) -> None:
    server = Server(slots=0)
    defaults = {
        "mail": Options(retry=Retry(max_attempts=8), timeout_us=30),
        "quick": Options(timeout_us=3),
        "once": Options(at_most_once=True),
    }
    server.attach(worker_spec(slots=0, task_defaults=defaults))

    options = server.submit(spec).options

    assert options.retry is not None
    assert options.retry.max_attempts == attempts
    assert options.timeout_us == timeout_us


def test_new_task_defaults_replace_the_old_ones() -> None:
    server = Server(slots=0)
    assert server.submit(make_spec("mail")).options.timeout_us is None

    server.attach(worker_spec(slots=0, task_defaults={"mail": Options(timeout_us=5)}))

    assert server.submit(make_spec("mail")).options.timeout_us == 5


def test_a_task_keeps_its_defaults_while_its_worker_restarts() -> None:
    server = Server(slots=0)
    once = {"mail": Options(at_most_once=True, timeout_us=5)}
    server.attach(worker_spec(slots=0, task_defaults=once))
    server.detach("w", "gone", SECOND)

    options = server.submit(make_spec("mail")).options

    assert (options.at_most_once, options.timeout_us) == (True, 5)
    assert options.retry is not None
    assert options.retry.max_attempts == 1


@pytest.mark.parametrize(
    ("task", "attempts"), [("unheard of", 3), ("shell", 1), ("mail", 8), ("once", 1)]
)
def test_a_run_of_a_schedule_has_three_attempts_unless_its_task_says_otherwise(
    task: str, attempts: int
) -> None:
    server = Server(slots=0)
    defaults = {"mail": Options(retry=tries(8)), "once": Options(at_most_once=True)}
    server.attach(worker_spec(slots=0, task_defaults=defaults))
    schedule = made(server, job=make_spec(task))

    server.settle(MINUTE)

    [run] = server.runs(schedule.id)
    assert run.options.retry is not None
    assert run.options.retry.max_attempts == attempts


def test_plain_jobs_of_one_task_share_their_options() -> None:
    server = Server(slots=0)

    assert server.submit(make_spec()).options is server.submit(make_spec()).options


def test_a_batch_returns_its_jobs_in_order_and_is_written_in_one_commit() -> None:
    server = Server(slots=0)
    answers: list[int] = []

    server.send(
        Submit([make_spec("a"), make_spec("b"), make_spec("c")]),
        T0,
        lambda given: answers.extend(accepted(each).id for each in given),
    )

    assert answers == sorted(answers)
    assert list(server.scheduler.take_changes().jobs) == answers


# Unique keys.


def test_on_conflict_return_returns_the_first_job() -> None:
    server = Server(slots=0)
    first = server.submit(keyed())

    [answer] = server.submit_all([keyed()])

    assert isinstance(answer, Accepted)
    assert (answer.job.id, answer.is_conflict) == (first.id, True)


def test_on_conflict_reject_refuses_the_second_job() -> None:
    server = Server(slots=0)
    server.submit(keyed())

    refused, other = server.submit_all([keyed(on_conflict="reject"), make_spec()])

    assert isinstance(refused, DuplicateKey)
    assert "is queued and holds the key 'k'" in str(refused)
    assert accepted(other).state is State.QUEUED
    assert len(server.store.jobs) == 2


def test_on_conflict_replace_cancels_the_first_job() -> None:
    server = Server(slots=0)
    first = server.submit(keyed(), T0)

    second = server.submit(keyed(on_conflict="replace"), SECOND)

    assert server.state(first.id) is State.CANCELLED
    assert server.state(second.id) is State.QUEUED
    assert server.store.jobs[first.id].unique_key is None
    assert server.store.jobs[second.id].unique_key == "k"


@pytest.mark.parametrize("unique", [{"on_conflict": "replace"}, {"states": (State.RUNNING,)}])
def test_a_client_takes_no_key_from_a_waiting_job_that_it_may_not_replace(
    unique: dict[str, Any],
) -> None:
    server = Server(slots=0)
    first = server.submit(keyed())
    answers: list[Accepted | SchedoError] = []

    server.send(Submit([keyed(**unique)], lambda queue, task: False), SECOND, answers.extend)
    server.round(SECOND)

    assert [type(each) for each in answers] == [Forbidden]
    assert server.job(first.id).state is State.QUEUED
    assert server.job(first.id).unique_key == "k"


def test_every_client_may_take_the_key_of_an_ended_job() -> None:
    server = Server(slots=0)
    server.cancel(server.submit(keyed()).id, T0)
    answers: list[Accepted | SchedoError] = []

    server.send(Submit([keyed()], lambda queue, task: False), SECOND, answers.extend)
    server.round(SECOND)
    server.round(SECOND)

    assert accepted(answers[0]).unique_key == "k"


def test_on_conflict_replace_returns_a_running_job() -> None:
    server = Server()
    first = server.submit(keyed())
    server.run(T0)

    [answer] = server.submit_all([keyed(on_conflict="replace")])

    assert answer == Accepted(server.job(first.id), True)


def test_two_equal_unique_keys_in_one_batch_make_one_job() -> None:
    server = Server(slots=0)

    first, second = server.submit_all([keyed(), keyed()])

    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert (first.is_conflict, second.is_conflict) == (False, True)
    assert first.job.id == second.job.id


def test_a_unique_key_released_and_taken_again_in_one_batch_needs_one_commit() -> None:
    server = Server(slots=0)
    replace = keyed(on_conflict="replace")

    ids = [accepted(each).id for each in server.submit_all([replace, replace, replace])]

    assert [server.state(ident) for ident in ids] == [
        State.CANCELLED,
        State.CANCELLED,
        State.QUEUED,
    ]
    assert [server.store.jobs[ident].unique_key for ident in ids] == [None, None, "k"]


@pytest.mark.parametrize("is_durable", [False, True], ids=["in memory", "in the store"])
def test_a_unique_key_is_free_again_when_its_job_has_ended(is_durable: bool) -> None:
    server = Server()
    first = server.submit(keyed())
    server.run(T0)
    server.complete(first.id, T0)
    if is_durable:
        server.settle(T0)
        assert server.scheduler._jobs.find(first.id) is None

    second = server.submit(keyed())

    assert second.id != first.id
    assert server.store.jobs[first.id].unique_key is None


def test_a_unique_key_may_be_held_only_in_some_states() -> None:
    server = Server()
    first = server.submit(keyed(states=("queued",)))
    server.run(T0)

    second = server.submit(keyed(states=("queued",)))

    assert second.id != first.id
    assert server.job(first.id).unique_key is None
    assert server.state(first.id) is State.RUNNING


@pytest.mark.parametrize(
    ("after", "is_free"), [(MINUTE - 1, False), (MINUTE, True)], ids=["within", "after"]
)
def test_a_unique_key_with_a_period_is_held_to_its_end_even_by_an_ended_job(
    after: int, is_free: bool
) -> None:
    server = Server()
    first = server.submit(keyed(for_us=MINUTE), T0)
    server.run(T0)
    server.complete(first.id, T0)

    second = server.submit(keyed(for_us=MINUTE), after)

    assert (second.id != first.id) == is_free


def test_an_unfinished_job_holds_its_unique_key_beyond_the_period() -> None:
    server = Server(slots=0)
    first = server.submit(keyed(for_us=MINUTE), T0)

    assert server.submit(keyed(for_us=MINUTE), HOUR).id == first.id


def test_an_ended_holder_of_a_unique_key_is_replaced_without_being_cancelled() -> None:
    server = Server()
    first = server.submit(keyed(for_us=MINUTE), T0)
    server.run(T0)
    server.complete(first.id, T0)

    second = server.submit(keyed(for_us=MINUTE, on_conflict="replace"), SECOND)

    assert server.state(first.id) is State.COMPLETED
    assert second.id != first.id


def test_the_unique_keys_of_a_batch_are_looked_up_in_the_store_once() -> None:
    server = Server(slots=0)

    server.send(Submit([keyed("a"), keyed("b"), keyed("a")]), T0)

    server.take()
    assert server.requested_loads == [LoadUniqueHolders(("a", "b"))]


def test_two_submits_with_one_unique_key_make_one_job() -> None:
    server = Server(slots=0)
    answers: list[Accepted | SchedoError] = []
    for _ in range(2):
        server.send(Submit([keyed()]), T0, answers.extend)

    server.round(T0)

    assert [answer.is_conflict for answer in answers if isinstance(answer, Accepted)] == [
        False,
        True,
    ]


def test_a_holder_evicted_by_its_own_batch_keeps_its_unique_key() -> None:
    server = Server(capacity=2, slots=0)
    holder = server.submit(make_keyed(HOUR))
    early = [make_spec(delay_us=SECOND) for _ in range(6)]

    answers = server.submit_all([*early, make_keyed(HOUR)])

    assert isinstance(answers[-1], Accepted)
    assert (answers[-1].job.id, answers[-1].is_conflict) == (holder.id, True)


def make_keyed(delay_us: int) -> JobSpec:
    return make_spec(unique=Unique("k"), delay_us=delay_us)


def test_a_holder_evicted_during_a_load_keeps_its_unique_key() -> None:
    server = Server()
    holder = server.submit(keyed("held", for_us=HOUR))
    server.run(T0)
    answers: list[Accepted | SchedoError] = []
    server.send(Submit([keyed("new"), keyed("held", for_us=HOUR)]), T0, answers.extend)
    server.complete(holder.id, T0)

    server.settle(T0)

    new, held = answers
    assert isinstance(new, Accepted)
    assert isinstance(held, Accepted)
    assert not new.is_conflict
    assert (held.job.id, held.is_conflict) == (holder.id, True)


def test_cached_options_of_tasks_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_maker, "_TASKS_REMEMBERED_MAX", 3)
    server = Server()
    server.attach(worker_spec("a", task_defaults={"work": Options(timeout_us=7 * SECOND)}))

    for number in range(10):
        assert server.submit(make_spec(f"other {number}")).options.timeout_us is None
        assert server.submit(make_spec("work")).options.timeout_us == 7 * SECOND
    assert len(server.scheduler._workers.plain_options) <= 3
