"""The scheduler: jobs from submit to end, their order, and bounded memory."""

from __future__ import annotations

import pytest

from schedo.core.changes import Output
from schedo.core.commands import Accepted, Submit
from schedo.core.leases import AttemptResult, CapturedOutput, Completed, Snoozed, Stopped
from schedo.core.model import LeaseKey, Queue
from schedo.core.states import State
from schedo.errors import NotFound
from tests.core.builders import DAY, HOUR, MINUTE, SECOND, T0, make_spec, tries, worker_spec
from tests.core.fake_store import OOPS
from tests.core.server import Server, job_in

# From submit to the end.


def test_a_job_runs_when_exactly_due_and_not_before() -> None:
    server = Server()
    job = server.submit(make_spec(delay_us=MINUTE), T0)

    assert server.tick(MINUTE - 1) == []
    [lease] = server.tick(MINUTE)

    assert lease.key == LeaseKey(job.id, 1, 1)


def test_a_job_does_not_run_before_it_is_durable() -> None:
    server = Server()
    server.send(Submit([make_spec()]), T0)

    assert server.tick(T0) == []
    server.take()
    assert server.tick(T0) == []
    server.commit()
    assert len(server.tick(T0)) == 1


def test_a_completed_job_keeps_its_result_and_when_it_ended() -> None:
    server = Server()
    job = server.submit(make_spec(), T0)
    server.run(T0)

    server.report(job.id, Completed(b'"done"'), SECOND)
    server.round(SECOND)

    stored = server.store.jobs[job.id]
    assert (stored.state, stored.result, stored.ended_at) == (State.COMPLETED, b'"done"', SECOND)
    assert len(server.scheduler._jobs) == 0


def test_a_job_starts_before_its_start_is_durable() -> None:
    server = Server()
    job = server.submit(make_spec(), T0)

    server.tick(T0)

    assert server.state(job.id) is State.RUNNING
    assert server.store.jobs[job.id].state is State.QUEUED
    server.round(T0)
    assert server.store.jobs[job.id].state is State.RUNNING


def test_a_failing_job_fails_after_its_last_allowed_attempt() -> None:
    server = Server()
    job = server.submit(make_spec(retry=tries(3)), T0)
    now = T0
    starts = []
    while server.run(now):
        starts.append(now)
        server.fail(job.id, now)
        now += 10 * SECOND

    assert starts == [T0, 10 * SECOND, 20 * SECOND]
    assert server.state(job.id) is State.FAILED
    assert server.job(job.id).failure == OOPS
    assert [(a.attempt, a.outcome) for a in server.store.attempts] == [
        (1, "failed"),
        (2, "failed"),
        (3, "failed"),
    ]


def test_a_retried_job_is_ranked_by_its_new_time_and_its_priority() -> None:
    server = Server()
    job = server.submit(make_spec(retry=tries(2), priority=2), T0)
    server.run(T0)

    server.fail(job.id, SECOND)

    assert server.job(job.id).due_at == 11 * SECOND
    assert server.job(job.id).rank == 11 * SECOND - 2 * MINUTE


def test_the_delay_of_a_retry_is_spread_by_the_given_randomness() -> None:
    server = Server()
    job = server.submit(make_spec(), T0)  # 2 s, give or take 20 %
    server.run(T0)
    server.random = 0.0

    server.fail(job.id, T0)

    assert server.job(job.id).due_at == 1_600_000


def test_a_snoozed_job_waits_and_uses_up_no_attempt_of_its_budget() -> None:
    server = Server()
    job = server.submit(make_spec(retry=tries(1)), T0)
    server.run(T0)

    server.report(job.id, Snoozed(MINUTE), SECOND)

    waiting = server.job(job.id)
    assert (waiting.state, waiting.due_at, waiting.failures) == (State.SCHEDULED, 61 * SECOND, 0)
    assert server.run(60 * SECOND) == []
    assert server.run(61 * SECOND) == [job.id]
    assert server.job(job.id).attempt == 2


def test_output_is_stored_with_its_attempt() -> None:
    server = Server()
    job = server.submit(make_spec(), T0)
    server.run(T0)
    capture = CapturedOutput("stdout", b"hello", b"", 5)

    server.scheduler.apply(AttemptResult(LeaseKey(job.id, 1, 1), Completed(), (capture,)), SECOND)
    server.round(SECOND)

    assert server.store.outputs == [Output(job.id, 1, capture)]


def test_a_large_payload_stays_in_the_store_until_an_attempt_needs_it() -> None:
    server = Server(slots=0)
    job = server.submit(make_spec(payload=b"[" + b"1" * 4_096 + b"]"), T0)
    server.attach(worker_spec())

    [lease] = server.tick(T0)

    assert lease.payload is None
    assert len(server.store.jobs[job.id].payload or b"") == 4_098


# Order.


def test_a_job_of_higher_priority_starts_first_whatever_its_task() -> None:
    server = Server(slots=0)
    low = server.submit(make_spec("a", priority=-1), T0)
    high = server.submit(make_spec("b", priority=1), T0)
    plain = server.submit(make_spec("a"), T0)
    server.attach(worker_spec(slots=3))

    assert server.run(T0) == [high.id, plain.id, low.id]


def test_a_low_priority_waits_longer_but_never_starves() -> None:
    server = Server(slots=1)
    low = server.submit(make_spec(priority=-9), T0)
    server.scheduler._workers.close("w")
    started_at = None
    now = T0
    while started_at is None and now < HOUR:
        server.submit(make_spec(priority=9), now)  # one each minute, more than enough for one slot
        server.attach(worker_spec(slots=1))
        [running] = server.run(now)
        if running == low.id:
            started_at = now
        server.complete(running, now)
        server.scheduler._workers.close("w")
        server.submit(make_spec(priority=9), now)
        now += MINUTE

    # 18 steps of a minute lie between the two priorities.
    assert started_at is not None
    assert 18 * MINUTE <= started_at <= 38 * MINUTE


def test_a_queue_runs_no_more_than_its_concurrency_at_once() -> None:
    server = Server()
    server.set_queue(Queue("q", concurrency=2))
    jobs = [server.submit(make_spec(queue="q"), T0) for _ in range(4)]

    assert server.run(T0) == [jobs[0].id, jobs[1].id]
    server.complete(jobs[0].id, T0)
    assert server.run(T0) == [jobs[1].id, jobs[2].id]


def test_a_paused_queue_starts_nothing_until_it_is_resumed() -> None:
    server = Server()
    server.set_queue(Queue("default", paused=True))
    job = server.submit(make_spec(), T0)

    assert server.run(T0) == []
    server.set_queue(Queue("default"))
    assert server.run(T0) == [job.id]
    assert server.store.queues["default"] == Queue("default")


def test_the_limits_of_a_queue_outlive_a_crash() -> None:
    server = Server()
    server.set_queue(Queue("default", paused=True))
    server.submit(make_spec(), T0)

    server.crash(T0)
    server.attach(worker_spec())

    assert server.run(T0) == []


# Expiry.


def test_a_job_that_comes_to_a_worker_too_late_expires_instead_of_running() -> None:
    server = Server(slots=0)
    job = server.submit(make_spec(expires_in_us=MINUTE), T0)
    server.attach(worker_spec())

    assert server.run(MINUTE) == []

    assert server.state(job.id) is State.EXPIRED
    assert server.job(job.id).ended_at == MINUTE


@pytest.mark.parametrize("state", [State.SCHEDULED, State.QUEUED, State.RETRYING])
def test_a_sweep_expires_jobs_that_wait(state: State) -> None:
    server = Server(slots=0)
    job = job_in(state, server)
    server.detach("w", "", T0)

    server.expire_and_trim(DAY - 1)
    server.round(DAY - 1)
    assert server.state(job.id) is state

    server.expire_and_trim(DAY)
    server.round(DAY)
    assert server.state(job.id) is State.EXPIRED


def test_a_job_that_started_in_time_does_not_expire() -> None:
    server = Server()
    job = server.submit(make_spec(expires_in_us=MINUTE), T0)
    server.take()
    server.commit()
    server.expire_and_trim(MINUTE)
    server.take()
    server.commit()
    server.fetch()  # the store still says that it waits
    server.tick(MINUTE - 1)

    server.deliver(MINUTE)

    assert server.state(job.id) is State.RUNNING


# Wake-ups, turns and paged indexes.


def test_the_next_wake_is_the_soonest_job_schedule_or_timeout() -> None:
    server = Server()
    assert server.scheduler.next_wake_at() is None

    server.submit(make_spec(delay_us=HOUR), T0)
    assert server.scheduler.next_wake_at() == HOUR
    server.submit(make_spec(timeout_us=MINUTE), T0)
    server.run(T0)
    assert server.scheduler.next_wake_at() == MINUTE


def test_a_turn_makes_a_bounded_number_of_changes_and_the_next_one_continues() -> None:
    server = Server(capacity=1_000, slots=0)
    server.submit_all([make_spec(delay_us=SECOND) for _ in range(600)], T0)

    server.tick(SECOND)

    states = [job.state for job in server.scheduler._jobs.changes.jobs.values()]
    assert states == [State.QUEUED] * 512
    assert server.scheduler.next_wake_at() == SECOND
    server.tick(SECOND)
    assert server.scheduler.next_wake_at() is None


def test_a_load_is_awaited_until_a_round_has_done_it() -> None:
    server = Server()
    news = [server.scheduler.awaits_load]

    server.expire_and_trim(T0)
    news.append(server.scheduler.awaits_load)
    server.round(T0)
    news.append(server.scheduler.awaits_load)

    assert news == [False, True, False]


def test_jobs_become_ready_by_timer_or_commit() -> None:
    server = Server(slots=0)
    now, later = server.submit(make_spec(), T0), server.submit(make_spec(delay_us=SECOND), T0)

    assert server.scheduler.take_ready() == {now.id}
    server.tick(SECOND)
    assert server.scheduler.take_ready() == {later.id}
    assert server.scheduler.take_ready() == set()


def test_the_changes_name_the_jobs_that_have_ended() -> None:
    server = Server()
    done, stopped = (server.submit(make_spec(), T0) for _ in range(2))
    server.run(T0)

    server.complete(done.id, T0)
    server.cancel(stopped.id, T0)
    server.report(stopped.id, Stopped(), T0)

    ends = server.scheduler.take_changes().ends
    assert [outcome for *_, outcome, _, _, _ in ends] == [State.COMPLETED, State.CANCELLED]


def test_a_command_on_a_job_that_does_not_exist_is_refused() -> None:
    server = Server()

    with pytest.raises(NotFound, match="there is no job"):
        server.cancel(99, T0)


def test_memory_does_not_grow_with_the_number_of_jobs_and_all_of_them_run_in_order() -> None:
    server = Server(capacity=4, slots=1)
    specs = [make_spec(delay_us=n * SECOND) for n in range(100, 0, -1)]
    ids = [a.job.id for a in server.submit_all(specs, T0) if isinstance(a, Accepted)]
    assert len(server.scheduler._jobs) <= 8
    order = []
    for _ in ids:
        [running] = server.run(HOUR)
        order.append(running)
        server.complete(running, HOUR)
        assert len(server.scheduler._jobs) <= 2 * 8 + 2

    assert order == ids[::-1]


def test_a_batch_of_errors_is_applied_without_an_error() -> None:
    assert Server().apply(Submit([]), T0) == []
