"""Running attempts: leases, timeouts, stop requests, and recovery after a restart."""

from __future__ import annotations

import pytest

from schedo.core.leases import (
    AttemptResult,
    Blame,
    Completed,
    Failed,
    Lease,
    Lost,
    Stopped,
    StopReason,
    StopRequest,
)
from schedo.core.model import Failure, LeaseKey, Options, Retry, Trigger
from schedo.core.states import State
from tests.core.builders import HOUR, MINUTE, SECOND, T0, make_job, make_spec, tries, worker_spec
from tests.core.fake_store import OOPS
from tests.core.server import Server

LIMITED = make_spec(timeout_us=30 * SECOND, retry=tries(2))


def started(spec: object = None) -> tuple[Server, int]:
    """Return a server that runs one job since T0, and the job's id."""
    server = Server()
    job = server.submit(LIMITED if spec is None else make_spec(), T0)
    server.run(T0)
    return server, job.id


def test_a_lease_carries_all_that_a_worker_needs() -> None:
    server = Server()
    job = server.submit(make_spec("mail", queue="q", payload=b"[1]", run_at=SECOND), T0)
    server.settle(2 * SECOND)

    assert list(server.leases.values()) == [
        Lease(
            LeaseKey(job.id, 1, 1),
            "w",
            "mail",
            "q",
            b"[1]",
            Options(retry=Retry()),
            SECOND,
            Trigger.SUBMIT,
            0,
            max_attempts=5,
            started_at=2 * SECOND,
        )
    ]


def test_a_lease_after_a_failure_counts_it() -> None:
    server = Server()
    job = server.submit(make_spec(retry=tries(3)), T0)
    server.run(T0)
    server.fail(job.id, T0)
    server.settle(T0 + MINUTE)

    [lease] = server.leases.values()
    assert (lease.key.attempt, lease.failures, lease.max_attempts) == (2, 1, 3)
    assert lease.started_at == T0 + MINUTE


def test_a_started_job_has_its_start_and_its_worker() -> None:
    server = Server()
    job = server.submit(make_spec(run_at=SECOND), T0)
    server.settle(2 * SECOND)

    running = server.job(job.id)
    assert running.state is State.RUNNING
    assert (running.picked_at, running.started_at) == (2 * SECOND, 2 * SECOND)
    assert (running.attempt, running.epoch, running.worker) == (1, 1, "w")


@pytest.mark.parametrize(
    ("ran_us", "started_at"),
    [(None, 2 * SECOND), (SECOND, 4 * SECOND), (3 * SECOND, 2 * SECOND), (HOUR, 2 * SECOND)],
)
@pytest.mark.parametrize("outcome", [Completed(), Failed(OOPS)])
def test_a_worker_that_says_how_long_it_ran_knows_when_it_began(
    outcome: Completed | Failed, ran_us: int | None, started_at: int
) -> None:
    server = Server()
    job = server.submit(make_spec(run_at=2 * SECOND), T0)
    server.settle(2 * SECOND)
    [key] = server.leases

    ended = server.scheduler.apply(AttemptResult(key, outcome, (), ran_us), 5 * SECOND)

    assert (ended.picked_at, ended.started_at) == (2 * SECOND, started_at)
    server.settle(5 * SECOND)
    for record in server.store.attempts:
        picked_at = None if started_at == 2 * SECOND else 2 * SECOND
        assert (record.job_id, record.started_at, record.picked_at) == (
            job.id,
            started_at,
            picked_at,
        )


def test_each_lease_and_each_stop_is_taken_once() -> None:
    server, job_id = started()
    server.cancel(job_id, SECOND)
    server.round(SECOND)

    assert len(server.scheduler.take_stops()) == 1
    assert server.scheduler.take_stops() == []
    assert server.scheduler.take_leases() == []


def test_an_attempt_is_live_until_it_is_reported() -> None:
    server, job_id = started()
    [key] = server.leases
    attempts = server.scheduler._attempts

    assert attempts.is_live(key)
    assert not attempts.is_live(key._replace(attempt=2))
    assert not attempts.is_live(key._replace(epoch=9))
    server.complete(job_id, T0)
    assert not attempts.is_live(key)


def test_a_stop_for_a_cancel_waits_until_the_cancel_is_durable() -> None:
    server, job_id = started()
    [key] = server.leases
    attempts = server.scheduler._attempts
    server.cancel(job_id, SECOND)

    assert server.scheduler.awaits_commit
    assert attempts.stop_reason(job_id) is None
    server.take()
    assert server.scheduler.take_stops() == []
    assert attempts.stop_reason(job_id) is None
    server.commit()

    assert server.scheduler.take_stops() == [StopRequest(key, "w", StopReason.CANCEL)]
    assert attempts.stop_reason(job_id) is StopReason.CANCEL


def test_an_attempt_that_ends_before_its_cancel_is_durable_gets_no_stop() -> None:
    server, job_id = started()
    server.cancel(job_id, SECOND)
    server.complete(job_id, SECOND)

    server.round(SECOND)

    assert server.scheduler.take_stops() == []


def test_a_stop_of_a_remote_attempt_for_a_timeout_waits_until_its_start_is_durable() -> None:
    server = Server(slots=0)
    server.attach(worker_spec("far", polls=True))
    job = server.submit(make_spec(timeout_us=SECOND))
    server.scheduler._workers.poll("far", 1)
    [lease] = server.tick(T0)
    attempts = server.scheduler._attempts

    server.tick(T0 + SECOND)
    assert server.stops == []
    assert attempts.stop_reason(job.id) is None
    assert server.scheduler.awaits_commit
    server.round(T0 + SECOND)
    server.tick(T0 + SECOND)

    assert server.stops == [StopRequest(lease.key, "far", StopReason.TIMEOUT)]
    assert attempts.stop_reason(job.id) is StopReason.TIMEOUT


def test_a_stop_of_an_attempt_that_ends_with_the_server_waits_for_no_commit() -> None:
    server = Server()
    server.submit(make_spec(timeout_us=SECOND))
    server.round(T0)
    [lease] = server.tick(T0)

    server.tick(T0 + SECOND)

    assert server.stops == [StopRequest(lease.key, "w", StopReason.TIMEOUT)]


# Timeouts.


def test_an_attempt_is_stopped_after_its_timeout_and_not_before() -> None:
    server, job_id = started()
    assert server.scheduler.next_wake_at() == 30 * SECOND

    server.tick(30 * SECOND - 1)
    assert server.stops == []

    server.tick(30 * SECOND)
    assert server.stops == [StopRequest(LeaseKey(job_id, 1, 1), "w", StopReason.TIMEOUT)]
    assert server.scheduler.next_wake_at() is None


def test_a_timed_out_attempt_is_a_failure_and_the_next_one_has_its_own_time() -> None:
    server, job_id = started()
    server.tick(30 * SECOND)

    server.report(job_id, Stopped(), 31 * SECOND)
    assert server.state(job_id) is State.RETRYING
    server.settle(41 * SECOND)

    assert server.state(job_id) is State.RUNNING
    assert server.scheduler.next_wake_at() == 71 * SECOND


def test_a_result_that_comes_after_the_timeout_and_before_the_stop_counts() -> None:
    server, job_id = started()
    server.tick(30 * SECOND)

    server.report(job_id, Completed(b"42"), 31 * SECOND)

    job = server.job(job_id)
    assert (job.state, job.result, job.failure) == (State.COMPLETED, b"42", None)


def test_a_completed_attempt_clears_the_failure_and_the_suspicion_of_earlier_ones() -> None:
    server, job_id = started()
    server.fail(job_id, SECOND)
    server.settle(HOUR)
    server.job(job_id).poison_suspect = True
    assert server.job(job_id).failure == OOPS

    server.complete(job_id, HOUR)

    job = server.job(job_id)
    assert (job.state, job.failure, job.poison_suspect) == (State.COMPLETED, None, False)


def test_an_attempt_that_ends_in_time_is_not_stopped() -> None:
    server, job_id = started()

    server.complete(job_id, 29 * SECOND)
    server.settle(HOUR)

    assert server.stops == []


def test_an_attempt_without_a_timeout_is_never_stopped() -> None:
    server, _ = started("no timeout")

    server.tick(1_000 * HOUR)

    assert server.stops == []
    assert server.scheduler._attempts.next_timeout_at() is None


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_timeout_counts_elapsed_time_when_the_clock_is_set(step: int) -> None:
    server, _ = started()

    server.scheduler._attempts.shift_deadlines(step)

    assert server.scheduler._attempts.next_timeout_at() == 30 * SECOND + step


def test_a_second_stop_does_not_change_the_reason_of_the_first() -> None:
    server, job_id = started()
    server.cancel(job_id, SECOND)
    server.round(SECOND)

    server.tick(SECOND)
    server.tick(30 * SECOND)

    assert [stop.reason for stop in server.stops] == [StopReason.CANCEL, StopReason.TIMEOUT]
    assert server.scheduler._attempts.stop_reason(job_id) is StopReason.CANCEL
    assert server.report(job_id, Stopped(), 31 * SECOND).state is State.CANCELLED
    assert server.scheduler._attempts.stop_reason(job_id) is None


# Taking attempts back.

LEASE = Lease(LeaseKey(1, 3, 1), "w", "work", "default", b"null", Options(), T0, Trigger.SUBMIT, 0)


@pytest.mark.parametrize("state", [s for s in State if s is not State.COMPLETED])
def test_a_lease_is_resumed_however_old_the_stored_row_is(state: State) -> None:
    server = Server()

    server.scheduler.recover_running(make_job(1, state=state), LEASE, MINUTE, MINUTE)

    job = server.job(1)
    assert job.state is State.RUNNING
    assert job.key == LEASE.key
    assert job.worker == "w"
    assert server.scheduler._jobs.ready_queues.queue_state("default").running == 1
    assert 1 in server.scheduler._jobs.changes.jobs


TIMED = Options(timeout_us=30 * SECOND)


def test_a_resumed_attempt_keeps_its_start_and_its_deadline() -> None:
    server = Server()
    row = make_job(1, state=State.RUNNING, started_at=SECOND, picked_at=SECOND, options=TIMED)

    server.scheduler.recover_running(row, LEASE, SECOND, 20 * SECOND)

    assert server.job(1).started_at == SECOND
    assert server.scheduler.next_wake_at() == 31 * SECOND
    assert server.scheduler.take_stops() == []


def test_a_resumed_attempt_whose_start_was_not_stored_started_when_it_got_the_lease() -> None:
    server = Server()

    server.scheduler.recover_running(make_job(1, options=TIMED), LEASE, SECOND, 20 * SECOND)

    assert (server.job(1).picked_at, server.job(1).started_at) == (SECOND, SECOND)
    assert server.scheduler.next_wake_at() == 31 * SECOND


def test_a_resumed_attempt_whose_time_is_up_has_timed_out_before_its_result_comes() -> None:
    server = Server()
    server.store.jobs[1] = make_job(1, state=State.RUNNING, attempt=3, options=TIMED)
    row = server.store.jobs[1].copy()

    server.scheduler.recover_running(row, LEASE, SECOND, 31 * SECOND)

    assert server.scheduler.take_stops() == [StopRequest(LEASE.key, "w", StopReason.TIMEOUT)]
    assert server.scheduler.next_wake_at() is None
    ended = server.scheduler.apply(AttemptResult(LEASE.key, Stopped()), 31 * SECOND)
    assert ended.failure == Failure("timeout", "timed out after 30 s")


def test_a_resumed_attempt_that_was_cancelled_is_stopped_again() -> None:
    server = Server()
    row = make_job(1, state=State.RUNNING, cancel_requested_at=SECOND)

    server.scheduler.recover_running(row, LEASE, MINUTE, MINUTE)

    assert server.scheduler.take_stops() == [StopRequest(LEASE.key, "w", StopReason.CANCEL)]


def test_a_resumed_attempt_takes_up_a_slot_of_its_worker() -> None:
    server = Server(slots=1)
    server.store.jobs[1] = make_job(1, state=State.RUNNING)
    server.scheduler.recover_running(make_job(1, state=State.RUNNING), LEASE, MINUTE, MINUTE)
    server.submit(make_spec(), MINUTE)

    assert server.run(MINUTE) == []
    server.attach(worker_spec("other"))
    assert len(server.run(MINUTE)) == 1


@pytest.mark.parametrize(("blame", "losses"), [(Blame.SOLE, 1), (Blame.NONE, 0)])
def test_a_running_job_without_a_lease_is_lost(blame: Blame, losses: int) -> None:
    server = Server()
    row = make_job(1, state=State.RUNNING, attempt=1)

    server.scheduler.recover_lost(row, Lost("the server was restarted", blame), MINUTE)

    assert (server.job(1).state, server.job(1).losses) == (State.QUEUED, losses)


def test_an_attempt_that_was_stopped_before_its_start_was_durable_gets_the_stop_with_it() -> None:
    server = Server()
    job = server.submit(make_spec(at_most_once=True))
    assert server.tick(T0) == []
    server.cancel(job.id, T0)

    server.round(T0)
    [lease] = server.tick(T0)

    assert server.stops == [StopRequest(lease.key, "w", StopReason.CANCEL)]


def test_an_attempt_that_timed_out_before_its_start_was_durable_gets_the_stop_with_it() -> None:
    server = Server()
    server.submit(make_spec(at_most_once=True, timeout_us=SECOND))
    assert server.tick(T0) == []
    server.tick(T0 + 2 * SECOND)
    server.stops.clear()

    server.round(T0 + 2 * SECOND)
    [lease] = server.tick(T0 + 2 * SECOND)

    assert server.stops == [StopRequest(lease.key, "w", StopReason.TIMEOUT)]
