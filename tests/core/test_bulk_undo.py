"""Undoing an operation: exactly the jobs that are as it left them are put back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schedo.core.bulk import BulkAction, BulkOperation, BulkState
from schedo.core.bulk_commands import BeginBulk, CountedBulk, StepBulk, StepUndo, UndoBulk
from schedo.core.bulk_undo import BulkStep
from schedo.core.commands import Accepted, Cancel, RetryJob
from schedo.core.job_filter import JobFilter
from schedo.core.leases import Failed
from schedo.core.limits import BULK_ACTIVE_MAX
from schedo.core.model import Overlap
from schedo.core.states import State
from schedo.errors import Conflict, NotFound, Overloaded
from tests.core.builders import HOUR, SECOND, T0, keyed, make_schedule_spec, make_spec, tries
from tests.core.fake_store import OOPS
from tests.core.server import Server

CANCEL, RETRY, RUN, DELETE = BulkAction
T1, T2 = T0 + SECOND, T0 + 2 * SECOND


@pytest.fixture
def server() -> Server:
    return Server(slots=0)


def change_all(
    server: Server, action: BulkAction, **which: Any
) -> tuple[BulkOperation, list[BulkStep]]:
    """Carry out an operation in one step; return it and the steps that it remembers."""
    operation = server.apply(BeginBulk(action, JobFilter(**which)), T1)
    jobs = [each for each in server.store.jobs.values() if operation.which.matches(each)]
    ids = tuple(sorted((job.id for job in jobs if job.id < operation.id), reverse=True))
    server.apply(CountedBulk(operation.id, len(ids)), T1)
    ended = server.apply(StepBulk(operation.id, operation.before, ids, None), T1)
    steps = [*server.scheduler._jobs.changes.steps]
    server.round(T1)
    return ended, steps


def undo(server: Server, done: BulkOperation, steps: list[BulkStep]) -> BulkOperation:
    """Undo the operation, and make it durable."""
    operation = server.apply(UndoBulk(done.id, "ada"), T2)
    for step in steps:
        jobs = step.jobs
        operation = server.apply(StepUndo(operation.id, operation.before, jobs, step.number), T2)
    ended = server.apply(StepUndo(operation.id, operation.before, (), None), T2)
    server.round(T2)
    return ended


def test_cancelled_jobs_wait_again_for_what_they_waited_for(server: Server) -> None:
    later = server.submit(make_spec(delay_us=HOUR)).id
    now = server.submit(make_spec()).id
    due_at = server.job(later).due_at
    done, steps = change_all(server, CANCEL, queue="default")

    undone = undo(server, done, steps)

    assert (server.state(later), server.state(now)) == (State.SCHEDULED, State.QUEUED)
    job = server.job(later)
    assert (job.due_at, job.due_elapsed, job.ended_at, job.kept_until) == (due_at, True, None, None)
    assert (undone.state, undone.total, undone.done, undone.skipped) == (BulkState.DONE, 2, 2, 0)
    assert (undone.undoes, undone.requested_by) == (done.id, "ada")


def test_the_expiry_of_a_job_that_is_put_back_counts_elapsed_time_again(server: Server) -> None:
    job_id = server.submit(make_spec(delay_us=HOUR, expires_in_us=2 * HOUR)).id
    done, steps = change_all(server, CANCEL, queue="default")
    undo(server, done, steps)

    server.follow_clock(HOUR)

    job = server.job(job_id)
    assert (job.due_at, job.expires_at) == (2 * HOUR, 3 * HOUR)


def test_jobs_that_were_run_early_wait_again(server: Server) -> None:
    job_id = server.submit(make_spec(delay_us=HOUR)).id
    due_at = server.job(job_id).due_at
    done, steps = change_all(server, RUN, queue="default")
    assert server.state(job_id) is State.QUEUED

    undo(server, done, steps)

    assert (server.state(job_id), server.job(job_id).due_at) == (State.SCHEDULED, due_at)


def test_retried_jobs_have_failed_again_with_their_errors() -> None:
    server = Server(slots=1)
    job_id = server.submit(make_spec(retry=tries(1))).id
    server.settle(T0)
    traceback = "Traceback (most recent call last): …"
    server.report(job_id, Failed(msgspec.structs.replace(OOPS, traceback=traceback)), T0)
    server.round(T0)
    server.detach("w", "it left", T0)
    done, steps = change_all(server, RETRY, queue="default")
    assert (server.state(job_id), server.job(job_id).failures) == (State.QUEUED, 0)

    undo(server, done, steps)

    job = server.job(job_id)
    assert (job.state, job.failures, job.ended_at) == (State.FAILED, 1, T0)
    assert job.failure is not None
    assert (job.failure.message, job.failure.traceback) == (OOPS.message, None)


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED, State.EXPIRED], ids=str)
def test_a_retried_job_that_is_put_back_has_its_earlier_instants(state: State) -> None:
    server = Server(slots=0 if state is State.EXPIRED else 1)
    job_id = server.submit(make_spec(retry=tries(1), expires_in_us=SECOND // 2)).id
    server.settle(T0)
    if state is State.CANCELLED:
        server.cancel(job_id, T0)
    if state is State.EXPIRED:
        server.expire_and_trim(SECOND // 2)
        server.settle(SECOND // 2)
    else:
        server.fail(job_id, T0)
    server.round(T0)
    server.detach("w", "it left", T0)
    ended = server.job(job_id).copy()
    assert ended.state is state
    done, steps = change_all(server, RETRY, queue="default")

    undo(server, done, steps)

    job = server.job(job_id).copy()
    job.rank = ended.rank  # which only a job that waits has
    assert job == ended


def test_a_retried_run_that_is_put_back_is_active_no_longer(server: Server) -> None:
    schedule = server.put(make_schedule_spec())
    job = server.trigger(schedule.name, T0).job
    assert job is not None
    job_id = job.id
    server.round(T0)
    change_all(server, CANCEL, queue="default")
    done, steps = change_all(server, RETRY, queue="default")
    assert schedule.active == [job_id]

    undo(server, done, steps)

    assert (server.state(job_id), schedule.active) == (State.CANCELLED, [])


def test_a_cancelled_run_that_was_blocked_never_runs_beside_the_other_one() -> None:
    server = Server(slots=2)
    server.put(make_schedule_spec(overlap=Overlap.BUFFER_ONE), T1)
    first, second = (server.trigger("s", T1).job for _ in range(2))
    assert first is not None
    assert second is not None
    assert server.run(T1) == [first.id]
    assert server.state(second.id) is State.BLOCKED
    done, steps = change_all(server, CANCEL, queue="default")

    undone = undo(server, done, steps)

    assert server.run(T2) == [first.id]
    assert server.state(second.id) is State.CANCELLED
    assert (undone.done, undone.skipped) == (0, 1)


def test_a_running_job_that_an_operation_asked_to_stop_is_not_put_back() -> None:
    server = Server(slots=1)
    job_id = server.submit(make_spec()).id
    server.settle(T0)
    done, steps = change_all(server, CANCEL, queue="default")

    assert steps == []
    assert undo(server, done, steps).done == 0
    assert server.state(job_id) is State.RUNNING


def test_a_job_that_was_changed_again_stays_as_it_is(server: Server) -> None:
    first, second = (server.submit(make_spec(delay_us=HOUR)).id for _ in range(2))
    done, steps = change_all(server, CANCEL, queue="default")
    server.apply(RetryJob(first), T2)
    server.apply(RetryJob(second), T2)
    server.apply(Cancel(second), T2)

    undone = undo(server, done, steps)

    assert (server.state(first), server.state(second)) == (State.QUEUED, State.CANCELLED)
    assert (undone.done, undone.skipped) == (0, 2)


def test_a_cancelled_job_waits_again_and_holds_its_unique_key(server: Server) -> None:
    first = server.submit(keyed()).id
    done, steps = change_all(server, CANCEL, queue="default")

    undo(server, done, steps)

    (reply,) = server.submit_all([keyed()], T2)
    assert isinstance(reply, Accepted)
    assert (reply.job.id, reply.is_conflict) == (first, True)


def test_a_job_whose_unique_key_another_one_has_taken_stays_cancelled(server: Server) -> None:
    first = server.submit(keyed()).id
    done, steps = change_all(server, CANCEL, queue="default")
    second = server.submit(keyed(), T1).id

    undone = undo(server, done, steps)

    assert (server.state(first), server.state(second)) == (State.CANCELLED, State.QUEUED)
    assert (undone.done, undone.skipped) == (0, 1)


def test_a_job_that_ran_after_it_was_retried_stays_as_it_ended() -> None:
    server = Server(slots=1)
    job_id = server.submit(make_spec(retry=tries(1))).id
    server.settle(T0)
    server.fail(job_id, T0)
    server.round(T0)
    done, steps = change_all(server, RETRY, queue="default")
    server.settle(T1)
    server.fail(job_id, T1)
    server.round(T1)

    undone = undo(server, done, steps)

    assert (server.state(job_id), server.job(job_id).ended_at) == (State.FAILED, T1)
    assert (undone.done, undone.skipped) == (0, 1)


def test_an_outdated_step_and_one_of_an_ended_undo_change_nothing(server: Server) -> None:
    job_id = server.submit(make_spec(delay_us=HOUR)).id
    done, [step] = change_all(server, CANCEL, queue="default")
    operation = server.apply(UndoBulk(done.id), T2)

    same = server.apply(StepUndo(operation.id, 5, step.jobs, None), T2)
    assert (same.done, server.state(job_id)) == (0, State.CANCELLED)
    ended = server.apply(StepUndo(operation.id, operation.before, (), None), T2)
    assert server.apply(StepUndo(operation.id, operation.before, step.jobs, None), T2) == ended


def test_what_cannot_be_undone_is_refused_with_the_reason(server: Server) -> None:
    server.submit(make_spec(delay_us=HOUR))
    running = server.apply(BeginBulk(CANCEL, JobFilter(queue="x")), T1)
    with pytest.raises(Conflict, match="still runs; cancel it"):
        server.apply(UndoBulk(running.id), T2)
    with pytest.raises(NotFound):
        server.apply(UndoBulk(7), T2)
    done, steps = change_all(server, CANCEL, queue="default")
    deleted, nothing = change_all(server, DELETE, queue="default")
    assert nothing == []
    with pytest.raises(Conflict, match="nothing brings them back"):
        server.apply(UndoBulk(deleted.id), T2)
    undone = undo(server, done, steps)
    assert (undone.done, undone.skipped) == (0, 1)
    with pytest.raises(Conflict, match="is undone already"):
        server.apply(UndoBulk(done.id), T2)
    with pytest.raises(Conflict, match="is an undo itself"):
        server.apply(UndoBulk(undone.id), T2)


def test_an_undo_counts_as_an_operation_that_runs(server: Server) -> None:
    done, _ = change_all(server, CANCEL, queue="default")
    for _ in range(BULK_ACTIVE_MAX):
        server.apply(BeginBulk(CANCEL, JobFilter(queue="x")), T1)

    with pytest.raises(Overloaded):
        server.apply(UndoBulk(done.id), T2)
