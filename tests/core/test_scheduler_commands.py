"""Commands on a job: which are allowed in each state, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from schedo.core.commands import Cancel, JobCommand, Reschedule, RetryJob, RunNow
from schedo.core.leases import Stopped, StopReason, StopRequest
from schedo.core.model import LeaseKey
from schedo.core.states import State
from schedo.errors import IllegalTransition
from tests.core.builders import DAY, HOUR, MINUTE, SECOND, T0, make_spec, worker_spec
from tests.core.server import Server, job_in

# Cancel.


@pytest.mark.parametrize("state", [State.SCHEDULED, State.QUEUED, State.RETRYING])
@pytest.mark.parametrize("is_known", [True, False], ids=["in memory", "in the store"])
def test_a_waiting_job_is_cancelled_at_once(state: State, is_known: bool) -> None:
    server = Server(slots=0)
    job = job_in(state, server)
    if not is_known:
        server.crash(T0)

    cancelled = server.cancel(job.id, MINUTE)

    assert (cancelled.state, cancelled.ended_at) == (State.CANCELLED, MINUTE)
    server.attach(worker_spec())
    assert server.run(DAY - 1) == []


def test_a_cancelled_running_job_ends_when_its_worker_reports() -> None:
    server = Server(slots=0)
    job = job_in(State.RUNNING, server)

    requested_loads = server.cancel(job.id, MINUTE)
    server.round(MINUTE)
    server.tick(MINUTE)

    assert (requested_loads.state, requested_loads.cancel_requested_at) == (State.RUNNING, MINUTE)
    assert server.stops == [StopRequest(LeaseKey(job.id, 1, 1), "w", StopReason.CANCEL)]
    assert server.report(job.id, Stopped(), 2 * MINUTE).state is State.CANCELLED
    assert server.job(job.id).ended_at == 2 * MINUTE


def test_a_running_job_that_is_cancelled_twice_gets_one_stop() -> None:
    server = Server(slots=0)
    job = job_in(State.RUNNING, server)
    server.cancel(job.id, MINUTE)

    again = server.cancel(job.id, HOUR)
    server.round(HOUR)
    server.tick(HOUR)

    assert again.cancel_requested_at == MINUTE
    assert len(server.stops) == 1


def test_cancelling_a_cancelled_job_changes_nothing() -> None:
    server = Server(slots=0)
    job = job_in(State.CANCELLED, server)

    assert server.cancel(job.id, HOUR).ended_at == T0
    assert not server.scheduler._jobs.changes


# Commands that are refused.


Make = Callable[[int], JobCommand]
LATER = partial(Reschedule, due_at=DAY, priority=5)
S = State
REFUSED = [
    *((Cancel, state, "cannot be cancelled") for state in (S.COMPLETED, S.FAILED, S.EXPIRED)),
    *(
        (RetryJob, state, "only a failed, cancelled or expired job can be retried")
        for state in (S.SCHEDULED, S.QUEUED, S.RUNNING, S.RETRYING, S.COMPLETED)
    ),
    *(
        (RunNow, state, "only a scheduled or retrying job can be run early")
        for state in (S.QUEUED, S.RUNNING, S.COMPLETED, S.FAILED, S.CANCELLED, S.EXPIRED)
    ),
    *(
        (LATER, state, "only a waiting job can be changed")
        for state in (S.RUNNING, S.COMPLETED, S.FAILED, S.CANCELLED, S.EXPIRED)
    ),
]


@pytest.mark.parametrize(
    ("command", "state", "words"), REFUSED, ids=[f"{words}: {s}" for _, s, words in REFUSED]
)
def test_a_command_that_the_state_forbids_changes_nothing(
    command: Make, state: State, words: str
) -> None:
    server = Server(slots=0)
    job = server.job(job_in(state, server).id)
    before = job.copy()

    with pytest.raises(IllegalTransition, match=words):
        server.apply(command(job.id), HOUR)

    assert job == before
    assert not server.scheduler._jobs.changes.jobs


# Manual retry, run now, reschedule.


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED, State.EXPIRED])
def test_a_manual_retry_resets_failures_and_losses(state: State) -> None:
    server = Server(slots=0)
    job = job_in(state, server)
    server.attach(worker_spec())

    again = server.change(RetryJob(job.id), 2 * DAY)

    assert (again.state, again.due_at) == (State.QUEUED, 2 * DAY)
    assert (again.failures, again.losses, again.failure, again.result) == (0, 0, None, None)
    assert (again.ended_at, again.expires_at, again.cancel_requested_at) == (None, None, None)
    assert server.run(2 * DAY) == [job.id]


def test_attempt_numbers_continue_after_a_manual_retry() -> None:
    server = Server(slots=0)
    job = job_in(State.FAILED, server)

    server.change(RetryJob(job.id), HOUR)
    server.run(HOUR)

    assert server.job(job.id).attempt == 2


@pytest.mark.parametrize("state", [State.SCHEDULED, State.RETRYING])
def test_a_delayed_job_can_be_run_now(state: State) -> None:
    server = Server(slots=0)
    job = job_in(state, server)

    early = server.change(RunNow(job.id), 10 * SECOND)

    assert (early.state, early.due_at, early.rank) == (State.QUEUED, 10 * SECOND, 10 * SECOND)


@pytest.mark.parametrize(
    ("state", "after"),
    [
        (State.SCHEDULED, State.SCHEDULED),
        (State.QUEUED, State.SCHEDULED),
        (State.RETRYING, State.RETRYING),
    ],
)
def test_a_waiting_job_can_be_rescheduled_later(state: State, after: State) -> None:
    server = Server(slots=0)
    job = job_in(state, server)

    later = server.change(Reschedule(job.id, due_at=2 * HOUR), 10 * SECOND)

    assert (later.state, later.due_at, later.rank) == (after, 2 * HOUR, 2 * HOUR)
    server.attach(worker_spec())
    assert server.run(2 * HOUR - 1) == []
    assert server.run(2 * HOUR) == [job.id]


@pytest.mark.parametrize("state", [State.SCHEDULED, State.QUEUED, State.RETRYING])
def test_a_waiting_job_rescheduled_to_the_past_is_due_at_once(state: State) -> None:
    server = Server(slots=0)
    job = job_in(state, server)

    due = server.change(Reschedule(job.id, due_at=SECOND), 10 * SECOND)

    assert (due.state, due.due_at) == (State.QUEUED, SECOND)


def test_a_new_priority_changes_the_rank_and_keeps_the_due_time() -> None:
    server = Server(slots=0)
    first, second = (server.submit(make_spec(), T0) for _ in range(2))

    raised = server.change(Reschedule(second.id, priority=1), SECOND)
    server.attach(worker_spec(slots=1))

    assert (raised.due_at, raised.rank) == (T0, -MINUTE)
    assert server.run(SECOND) == [second.id]
    assert server.state(first.id) is State.QUEUED
