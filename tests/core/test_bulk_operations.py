"""Operations on many jobs: each step changes its jobs once, whatever happens between the steps."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core.bulk import BulkAction, BulkOperation, BulkState
from schedo.core.bulk_commands import (
    BeginBulk,
    CancelBulk,
    CountedBulk,
    DeleteJob,
    FailedBulk,
    StepBulk,
)
from schedo.core.commands import Cancel, Invoke, RetryJob
from schedo.core.job_filter import JobFilter
from schedo.core.leases import Failed, StopReason
from schedo.core.limits import BULK_ACTIVE_MAX, BULK_ENDED_KEPT, BULK_ERRORS_KEPT, BULK_FAILURES_MAX
from schedo.core.model import Job
from schedo.core.states import FINAL, State
from schedo.errors import IllegalTransition, NotFound, Overloaded
from tests.core.builders import HOUR, MINUTE, SECOND, T0, keyed, make_spec
from tests.core.fake_store import OOPS
from tests.core.server import Server, job_in

CANCEL, RETRY, RUN, DELETE = BulkAction
T1 = T0 + SECOND


@pytest.fixture
def server() -> Server:
    return Server(slots=0)


def begin(
    server: Server, action: BulkAction, now: int = T1, jobs_max: int | None = None, **which: Any
) -> BulkOperation:
    """Begin an operation and count its jobs."""
    operation = server.apply(BeginBulk(action, JobFilter(**which), jobs_max=jobs_max), now)
    total = len(search(server, operation))
    return server.apply(CountedBulk(operation.id, total), now)


def search(server: Server, operation: BulkOperation) -> list[int]:
    """Return the jobs that the store has for the operation, newest first."""
    found = (job for job in server.store.jobs.values() if job.id < operation.before)
    return sorted((job.id for job in found if operation.which.matches(job)), reverse=True)


def step(
    server: Server, operation: BulkOperation, ids: list[int], now: int = T1, *, is_last: bool = True
) -> BulkOperation:
    """Change these jobs."""
    before = None if is_last else ids[-1]
    return server.apply(StepBulk(operation.id, operation.before, tuple(ids), before), now)


def change_all(server: Server, operation: BulkOperation, now: int = T1) -> BulkOperation:
    """Change all jobs that match, in one step, and make it durable."""
    ended = step(server, operation, search(server, operation), now)
    server.round(now)
    return ended


def test_an_operation_cancels_the_jobs_that_match_and_no_others(server: Server) -> None:
    mine = [server.submit(make_spec(queue="mail")).id for _ in range(3)]
    others = server.submit(make_spec(queue="default")).id

    ended = change_all(server, begin(server, CANCEL, queue="mail"))

    assert [server.state(job_id) for job_id in mine] == [State.CANCELLED] * 3
    assert server.state(others) is State.QUEUED
    assert (ended.state, ended.total, ended.done, ended.matched) == (BulkState.DONE, 3, 3, 3)
    assert ended.ended_at == T1


def test_jobs_that_are_not_in_memory_are_loaded(server: Server) -> None:
    server = Server(capacity=1, slots=0)
    mine = [server.submit(make_spec(delay_us=HOUR)).id for _ in range(5)]

    ended = change_all(server, begin(server, CANCEL, task="work"))

    assert [server.store.jobs[job_id].state for job_id in mine] == [State.CANCELLED] * 5
    assert ended.done == 5


def test_a_job_that_is_newer_than_the_operation_has_a_larger_id(server: Server) -> None:
    operation = begin(server, CANCEL, task="work")

    newer = server.submit(make_spec(), T1)

    assert newer.id > operation.id == operation.before


def test_a_job_that_no_longer_matches_is_skipped(server: Server) -> None:
    first, second = (server.submit(make_spec(queue="mail", delay_us=HOUR)).id for _ in "ab")
    operation = begin(server, CANCEL, queue="mail", state="scheduled")
    found = search(server, operation)
    server.cancel(second, T1)

    ended = step(server, operation, found)

    assert (ended.done, ended.skipped, ended.failed) == (1, 1, 0)
    assert server.state(first) is State.CANCELLED


def test_a_job_that_has_been_deleted_is_skipped(server: Server) -> None:
    job = job_in(State.CANCELLED, server)
    operation = begin(server, RETRY, 10 * SECOND, task="work")
    server.apply(DeleteJob(job.id), 10 * SECOND)
    server.round(10 * SECOND)

    ended = step(server, operation, [job.id], 10 * SECOND)

    assert (ended.done, ended.skipped) == (0, 1)


def test_a_running_job_is_requested_to_stop() -> None:
    server = Server(slots=1)
    job = server.submit(make_spec())
    server.run(T0)

    ended = change_all(server, begin(server, CANCEL, task="work"))
    server.tick(T1)

    assert server.state(job.id) is State.RUNNING
    assert [stop.reason for stop in server.stops] == [StopReason.CANCEL]
    assert ended.done == 1


@pytest.mark.parametrize(
    ("action", "states", "becomes"),
    [
        (CANCEL, {State.SCHEDULED, State.QUEUED, State.RETRYING}, State.CANCELLED),
        (RETRY, {State.FAILED, State.CANCELLED, State.EXPIRED}, State.QUEUED),
        (RUN, {State.SCHEDULED, State.RETRYING}, State.QUEUED),
        (DELETE, FINAL, None),
    ],
)
@pytest.mark.parametrize("state", sorted(set(State) - {State.BLOCKED, State.RUNNING}))
def test_an_action_changes_the_jobs_that_its_command_can_change(
    action: BulkAction, states: set[State], becomes: State | None, state: State
) -> None:
    server = Server(slots=0)
    job = job_in(state, server)
    server.detach("w", "", 10 * SECOND)

    ended = change_all(server, begin(server, action, 2 * HOUR * 24, task="work"), 2 * HOUR * 24)

    assert ended.done == int(state in states)
    after = server.store.jobs.get(job.id)
    if state in states:
        assert (None if after is None else after.state) is becomes
    else:
        assert after is not None
        assert after.state is state


def test_a_job_that_ended_after_the_operation_began_is_not_retried(server: Server) -> None:
    job = server.submit(make_spec())
    operation = begin(server, RETRY, task="work")
    server.cancel(job.id, T1 + 1)
    server.round(T1 + 1)

    assert search(server, operation) == []
    assert step(server, operation, [job.id], T1 + 1).skipped == 1
    assert begin(server, RETRY, T1, task="work", ended_before=5).which.ended_before == 5


def test_a_refused_change_is_counted_with_its_reason() -> None:
    server = Server(slots=1)
    job = invoked(server)
    server.report(job.id, Failed(OOPS), T1)
    server.round(T1)

    ended = change_all(server, begin(server, RETRY, task="work"))

    assert (ended.done, ended.failed) == (0, 1)
    [error] = ended.errors
    assert error.job_id == job.id
    assert "invoked" in error.message


def invoked(server: Server) -> Job:
    jobs = server.apply(Invoke("i", make_spec(), 1), T0)
    job = jobs[0].copy()
    server.settle(T0)
    return job


def test_the_first_errors_are_kept() -> None:
    server = Server(slots=BULK_ERRORS_KEPT + 5)
    jobs = [invoked(server).id for _ in range(BULK_ERRORS_KEPT + 5)]
    for job_id in jobs:
        server.report(job_id, Failed(OOPS), T1)
    server.round(T1)

    ended = change_all(server, begin(server, RETRY, task="work"))

    assert ended.failed == BULK_ERRORS_KEPT + 5
    assert len(ended.errors) == BULK_ERRORS_KEPT


def test_a_step_that_comes_twice_changes_nothing(server: Server) -> None:
    jobs = [server.submit(make_spec()).id for _ in "ab"]
    operation = begin(server, CANCEL, task="work")
    first = step(server, operation, [jobs[1]], is_last=False)

    again = step(server, operation, [jobs[1]], is_last=False)

    assert again == first
    assert first.before == jobs[1]
    assert step(server, first, [jobs[0]]).done == 2


def test_an_operation_goes_on_after_a_crash_where_it_stopped(server: Server) -> None:
    jobs = [server.submit(make_spec()).id for _ in range(4)]
    operation = begin(server, CANCEL, task="work")
    operation = step(server, operation, search(server, operation)[:2], is_last=False)
    server.round(T1)
    step(server, operation, search(server, operation)[:1], is_last=False)  # is not durable

    server.crash(T1)
    [restored] = server.scheduler.bulk_operations()
    ended = change_all(server, restored)

    assert restored == operation
    assert (ended.done, ended.skipped) == (4, 0)
    assert {server.store.jobs[job_id].state for job_id in jobs} == {State.CANCELLED}


def test_a_new_job_after_a_crash_is_newer_than_the_operations(server: Server) -> None:
    operation = begin(server, CANCEL, MINUTE, task="work")
    server.round(MINUTE)

    server.crash(T0)  # the clock was set back

    assert server.submit(make_spec(), T0).id > operation.id


def test_a_cancelled_operation_does_no_more(server: Server) -> None:
    job = server.submit(make_spec())
    operation = begin(server, CANCEL, task="work")

    cancelled = server.apply(CancelBulk(operation.id), T1)
    again = server.apply(CancelBulk(operation.id), T1 + 1)
    late = step(server, operation, [job.id])

    assert (cancelled.state, cancelled.ended_at) == (BulkState.CANCELLED, T1)
    assert again == late == cancelled
    assert server.state(job.id) is State.QUEUED


def test_an_operation_is_refused_if_more_jobs_match_than_it_may_change(server: Server) -> None:
    jobs = [server.submit(make_spec()).id for _ in range(3)]

    refused = begin(server, CANCEL, jobs_max=2, task="work")
    allowed = begin(server, CANCEL, jobs_max=3, task="work")

    assert (refused.state, refused.total, refused.ended_at) == (BulkState.REFUSED, 3, T1)
    assert allowed.state is BulkState.RUNNING
    assert step(server, refused, jobs).done == 0
    assert server.apply(CountedBulk(refused.id, 1), T1) == refused


def test_too_many_operations_at_a_time_are_refused(server: Server) -> None:
    operations = [begin(server, CANCEL, task="work") for _ in range(BULK_ACTIVE_MAX)]

    with pytest.raises(Overloaded, match="20 operations run"):
        begin(server, CANCEL, task="work")

    server.apply(CancelBulk(operations[0].id), T1)
    assert begin(server, CANCEL, task="work").state is BulkState.RUNNING


def test_the_latest_operations_are_kept(server: Server) -> None:
    running = begin(server, CANCEL, task="work")
    ended = [change_all(server, begin(server, CANCEL)) for _ in range(BULK_ENDED_KEPT + 2)]

    kept = [running.id, *(each.id for each in ended[2:])]
    assert [each.id for each in server.scheduler.bulk_operations()] == kept
    assert [number for number, each in server.store.bulk_operations.items() if each] == kept
    with pytest.raises(NotFound, match="the latest 100 are kept"):
        server.apply(CancelBulk(ended[0].id), T1)


# Deleting.


def test_only_an_ended_job_can_be_deleted(server: Server) -> None:
    job = server.submit(make_spec())

    with pytest.raises(IllegalTransition, match="cancel it first"):
        server.apply(DeleteJob(job.id), T1)


def test_a_job_that_has_just_ended_is_deleted_after_its_commit(server: Server) -> None:
    job = server.submit(make_spec(unique=keyed().options.unique))
    server.send(Cancel(job.id), T1)
    deleted: list[None] = []

    server.send(DeleteJob(job.id), T1, deleted.append)
    assert deleted == []
    server.round(T1)
    assert deleted == [None]
    server.round(T1)

    assert job.id not in server.store.jobs
    with pytest.raises(NotFound):
        server.apply(DeleteJob(job.id), T1)


def test_an_operation_deletes_a_job_that_has_just_ended_after_its_commit(server: Server) -> None:
    job = server.submit(make_spec())
    operation = begin(server, DELETE, task="work")
    server.send(Cancel(job.id), T1)

    ended = step(server, operation, [job.id])
    server.round(T1)

    assert ended.done == 1
    assert job.id not in server.store.jobs


def test_a_command_in_the_step_of_the_delete_does_not_find_the_job(server: Server) -> None:
    job = server.submit(keyed())
    server.cancel(job.id, T1)
    server.round(T1)
    refused: list[Exception] = []

    server.send(DeleteJob(job.id), T1)
    server.send(RetryJob(job.id), T1, refused=refused.append)
    server.round(T1)
    server.round(T1)

    assert isinstance(refused[0], NotFound)
    assert job.id not in server.store.jobs


def test_the_key_of_a_deleted_job_is_free_at_once(server: Server) -> None:
    job = server.submit(keyed(for_us=HOUR))
    server.cancel(job.id, T1)
    server.round(T1)

    server.send(DeleteJob(job.id), T1)
    other = server.submit(keyed(for_us=HOUR), T1)

    assert other.id != job.id
    server.round(T1)
    assert [*server.store.jobs] == [other.id]


def test_an_operation_fails_after_too_many_failures_in_a_row(server: Server) -> None:
    operation = begin(server, CANCEL, task="work")
    for count in range(1, BULK_FAILURES_MAX):
        operation = server.apply(FailedBulk(operation.id, f"no {count}"), T1)
        assert (operation.is_active, operation.failures, operation.error) == (
            True,
            count,
            f"no {count}",
        )

    failed = server.apply(FailedBulk(operation.id, "the last"), T1)

    assert (failed.state, failed.error, failed.ended_at) == (BulkState.FAILED, "the last", T1)
    assert server.apply(FailedBulk(operation.id, "later"), T1) == failed
    server.round(T1)
    assert server.store.bulk_operations[operation.id] == failed


def test_a_step_that_succeeds_ends_the_row_of_failures(server: Server) -> None:
    server.submit_all([make_spec(delay_us=HOUR)] * 2)
    server.round(T0)
    operation = begin(server, CANCEL, task="work")
    operation = server.apply(FailedBulk(operation.id, "no"), T1)

    operation = step(server, operation, search(server, operation)[:1], is_last=False)

    assert (operation.failures, operation.error, operation.done) == (0, None, 1)


@pytest.mark.parametrize(("expected", "state"), [(2, BulkState.RUNNING), (3, BulkState.REFUSED)])
def test_an_operation_is_refused_if_another_number_of_jobs_matches_than_expected(
    server: Server, expected: int, state: BulkState
) -> None:
    command = BeginBulk(CANCEL, JobFilter(queue="mail"), jobs_expected=expected)

    operation = server.apply(command, T1)

    assert server.apply(CountedBulk(operation.id, 2), T1).state is state
