"""Commands are applied at once from memory, or again with their loads."""

from __future__ import annotations

import pytest

from schedo.core.changes import IdempotencyRecord
from schedo.core.commands import (
    Accepted,
    Cancel,
    CancelRun,
    CloseWorker,
    FailRetry,
    KeepIdempotencyRecord,
    PauseSchedule,
    Reschedule,
    RetryJob,
    RunNow,
    Submit,
    UnblockRun,
)
from schedo.core.loads import LoadJob, LoadSchedule, LoadUniqueHolders, Needs
from schedo.core.model import LeaseKey, Unique
from schedo.core.states import State
from schedo.errors import NotFound
from tests.core.builders import HOUR, MINUTE, SECOND, T0, make_spec
from tests.core.scheduled import made
from tests.core.server import Server


def stored_only(server: Server, delay_us: int = HOUR) -> int:
    """Return the id of a job that only the store has."""
    job = server.submit(make_spec(delay_us=delay_us))
    server.crash(T0)
    return job.id


def test_a_command_on_a_job_that_only_the_store_has_asks_to_load_it_and_changes_nothing() -> None:
    server = Server(slots=0)
    job_id = stored_only(server)

    reply = server.scheduler.apply(Cancel(job_id), T0)

    assert reply == Needs((LoadJob(job_id),))
    assert not server.scheduler.take_changes()


def test_a_command_is_applied_with_what_was_loaded_for_it() -> None:
    server = Server(slots=0)
    job_id = stored_only(server)
    found = server.store.load_job(job_id)

    job = server.scheduler.apply(Cancel(job_id), MINUTE, {LoadJob(job_id): found})

    assert not isinstance(job, Needs)
    assert (job.id, job.state, job.ended_at) == (job_id, State.CANCELLED, MINUTE)
    assert list(server.scheduler.take_changes().jobs) == [job_id]


def test_a_record_in_memory_wins_over_what_was_loaded() -> None:
    server = Server(slots=0)
    job_id = stored_only(server)
    before = server.store.load_job(job_id)
    server.change(Reschedule(job_id, due_at=2 * HOUR), T0)

    job = server.scheduler.apply(RunNow(job_id), SECOND, {LoadJob(job_id): before})

    assert job is server.scheduler.find_job(job_id)


def test_a_command_on_a_job_that_neither_memory_nor_the_store_has_is_refused() -> None:
    server = Server()

    with pytest.raises(NotFound):
        server.scheduler.apply(Cancel(5), T0, {LoadJob(5): None})


@pytest.mark.parametrize(
    ("due_at", "state", "is_due_at"),
    [(None, State.QUEUED, MINUTE), (SECOND, State.QUEUED, MINUTE), (HOUR, State.SCHEDULED, HOUR)],
)
def test_an_ended_job_is_due_again_now_or_at_an_instant_to_come(
    due_at: int | None, state: State, is_due_at: int
) -> None:
    server = Server(slots=0)
    job = server.submit(make_spec(run_at=HOUR))
    server.change(Cancel(job.id), SECOND)

    server.change(RetryJob(job.id, due_at), MINUTE)

    again = server.job(job.id)
    assert (again.state, again.due_at) == (state, is_due_at)


def test_commands_that_wait_for_one_job_are_applied_in_their_order() -> None:
    server = Server(slots=0)
    job_id = stored_only(server)
    states: list[State] = []
    server.send(RunNow(job_id), T0, lambda job: states.append(job.state))
    server.send(Cancel(job_id), T0, lambda job: states.append(job.state))

    server.round(T0)

    assert states == [State.QUEUED, State.CANCELLED]


def test_a_command_on_a_schedule_that_only_the_store_has_asks_to_load_it() -> None:
    server = Server()
    made(server)
    server.crash(T0)

    assert server.scheduler.apply(PauseSchedule("s"), T0) == Needs((LoadSchedule("s"),))


def test_a_submit_asks_to_load_the_holders_of_all_its_keys_at_once() -> None:
    server = Server(slots=0)
    specs = [make_spec(unique=Unique(key)) for key in "bab"]

    reply = server.scheduler.apply(Submit(specs), T0, {LoadUniqueHolders(("a",)): {}})

    assert reply == Needs((LoadUniqueHolders(("a", "b")),))


def test_a_submit_loads_nothing_if_memory_has_the_holders_of_its_keys() -> None:
    server = Server(slots=0)
    first = server.submit(make_spec(unique=Unique("a")))

    reply = server.scheduler.apply(Submit([make_spec(unique=Unique("a"))]), T0)

    assert reply == [Accepted(server.job(first.id), True)]


def test_an_idempotency_record_goes_into_the_next_commit() -> None:
    server = Server()
    record = IdempotencyRecord("key", b"", 201, b"{}", T0)

    server.send(KeepIdempotencyRecord(record), T0)

    assert server.scheduler.take_changes().idempotency_records == [record]


def test_a_closed_worker_gets_no_more_attempts() -> None:
    server = Server()
    server.submit(make_spec())

    server.send(CloseWorker("w"), T0)

    assert server.tick(T0) == []


@pytest.mark.parametrize(
    "follow_up",
    [CancelRun(5), UnblockRun(5), FailRetry(5, LeaseKey(5, 1, 1))],
    ids=lambda follow_up: type(follow_up).__name__,
)
def test_a_follow_up_on_a_deleted_job_changes_nothing(follow_up: CancelRun) -> None:
    server = Server()

    server.apply(follow_up, T0)

    assert not server.scheduler.take_changes()


def test_a_run_that_is_not_blocked_is_not_unblocked() -> None:
    server = Server(slots=0)
    job = server.submit(make_spec(delay_us=HOUR))

    server.apply(UnblockRun(job.id), T0)

    assert server.state(job.id) is State.SCHEDULED
