"""How long an ended job is kept, where a job, schedule, task or queue says so itself."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core.commands import RetryJob
from schedo.core.keep import NOT_KEPT, KeepTimes
from schedo.core.leases import Failed
from schedo.core.model import ONCE, Job, JobSpec, Options, Queue, Unique
from schedo.core.states import State
from schedo.errors import NotFound
from tests.core.builders import DAY, HOUR, MINUTE, SECOND, T0, make_spec, worker_spec
from tests.core.fake_store import OOPS
from tests.core.scheduled import made
from tests.core.server import Server


def make(keep: KeepTimes | None = None, **options: Any) -> JobSpec:
    spec = make_spec()
    return JobSpec(spec.task, options=Options(retry=ONCE, keep=keep, **options))


def run(server: Server, spec: JobSpec, *, fails: bool = False) -> Job:
    """Submit a job at T0 and end it a second later."""
    job = server.submit(spec)
    server.run(T0)
    server.fail(job.id, SECOND) if fails else server.complete(job.id, SECOND)
    return server.job(job.id)


def test_without_a_word_the_general_retention_decides() -> None:
    assert run(Server(), make()).kept_until is None


def test_a_job_says_how_long_it_is_kept_by_how_it_ends() -> None:
    keep = KeepTimes(completed_us=HOUR, failed_us=DAY)

    assert run(Server(), make(keep)).kept_until == SECOND + HOUR
    assert run(Server(), make(keep), fails=True).kept_until == SECOND + DAY


@pytest.mark.parametrize("expires", [False, True])
def test_an_expired_job_is_kept_like_a_cancelled_one(expires: bool) -> None:
    server = Server(slots=0)
    spec = make(KeepTimes(cancelled_us=HOUR))
    if expires:
        spec = JobSpec(spec.task, options=spec.options, expires_in_us=MINUTE)
    job = server.submit(spec)
    server.settle(T0)
    if expires:
        server.expire_and_trim(MINUTE)
        server.settle(MINUTE)
    else:
        server.cancel(job.id, MINUTE)

    assert server.job(job.id).kept_until == MINUTE + HOUR


def test_the_most_special_answer_counts_for_each_state() -> None:
    defaults = {"work": Options(keep=KeepTimes(completed_us=2 * HOUR, failed_us=2 * HOUR))}
    server = Server(slots=0)
    server.attach(worker_spec(task_defaults=defaults))
    server.set_queue(Queue("default", keep=KeepTimes(3 * HOUR, 3 * HOUR, 3 * HOUR)))
    keep = KeepTimes(completed_us=HOUR)

    assert run(server, make(keep)).kept_until == SECOND + HOUR
    assert run(server, make(keep), fails=True).kept_until == SECOND + 2 * HOUR
    waiting = server.submit(make(keep))
    assert server.cancel(waiting.id, SECOND).kept_until == SECOND + 3 * HOUR
    assert run(server, make()).kept_until == SECOND + 2 * HOUR


def test_a_queue_says_it_for_jobs_that_say_nothing() -> None:
    server = Server()
    server.set_queue(Queue("default", keep=KeepTimes(completed_us=HOUR)))

    assert run(server, make()).kept_until == SECOND + HOUR
    assert run(server, make(), fails=True).kept_until is None


def test_a_run_is_kept_as_its_schedule_says() -> None:
    server = Server()
    schedule = made(server, job=make(KeepTimes(completed_us=HOUR)))
    server.settle(MINUTE)
    [job] = server.runs(schedule.id)

    server.complete(job.id, MINUTE)

    assert server.job(job.id).kept_until == MINUTE + HOUR


def test_zero_means_not_kept() -> None:
    assert run(Server(), make(KeepTimes(completed_us=0))).kept_until == NOT_KEPT


def test_a_job_is_kept_for_as_long_as_it_holds_its_unique_key() -> None:
    unique = Unique("k", for_us=MINUTE)

    assert run(Server(), make(KeepTimes(completed_us=0), unique=unique)).kept_until == MINUTE
    assert (
        run(Server(), make(KeepTimes(completed_us=HOUR), unique=unique)).kept_until == SECOND + HOUR
    )


def test_a_job_without_a_period_for_its_key_is_not_kept() -> None:
    assert run(Server(), make(KeepTimes(completed_us=0), unique=Unique("k"))).kept_until == NOT_KEPT


def test_a_job_that_is_not_kept_cannot_be_retried() -> None:
    server = Server()
    job = run(server, make(KeepTimes(failed_us=0)), fails=True)

    with pytest.raises(NotFound, match="keep"):
        server.apply(RetryJob(job.id), SECOND)


def test_a_job_that_is_retried_is_kept_from_its_next_end_on() -> None:
    server = Server()
    job = run(server, make(KeepTimes(failed_us=HOUR)), fails=True)

    server.apply(RetryJob(job.id), MINUTE)
    assert server.job(job.id).kept_until is None
    server.settle(MINUTE)
    server.report(job.id, Failed(OOPS), 2 * MINUTE)

    assert server.job(job.id).state is State.FAILED
    assert server.job(job.id).kept_until == 2 * MINUTE + HOUR


def test_the_times_of_a_queue_outlive_a_crash_and_can_be_taken_back() -> None:
    server = Server(slots=0)
    server.set_queue(Queue("default", keep=KeepTimes(cancelled_us=HOUR)))
    server.settle(T0)
    server.crash(T0)
    first, second = server.submit(make()), server.submit(make())
    server.settle(T0)

    assert server.cancel(first.id, SECOND).kept_until == SECOND + HOUR
    server.set_queue(Queue("default"), SECOND)
    assert server.cancel(second.id, SECOND).kept_until is None
