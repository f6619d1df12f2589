"""The ends of runs that the scheduler reports for the histories of their schedules."""

from __future__ import annotations

import msgspec
import pytest

from schedo.core.commands import Cancel, DeleteSchedule, RetryJob
from schedo.core.leases import Failed
from schedo.core.limits import LAST_FAILURE_CHARACTERS_MAX, LAST_FAILURE_TYPE_CHARACTERS_MAX
from schedo.core.model import Failure, Overlap
from schedo.core.run_history import EndedRun, LastRun, RunHistory, end_run
from schedo.core.states import State
from tests.core.builders import HOUR, MINUTE, SECOND, make_spec, tries
from tests.core.fake_store import OOPS
from tests.core.scheduled import made
from tests.core.server import Server
from tests.factories import make_job


def ends(server: Server) -> list[tuple[State, int, int | None]]:
    return [(run.state, run.ended_at, run.duration_us) for run in server.store.ended_runs]


def test_a_run_that_completes_is_reported_once_with_the_time_it_took() -> None:
    server = Server()
    schedule = made(server)
    server.settle(MINUTE)
    [run] = server.runs(schedule.id)

    server.complete(run.id, MINUTE + SECOND)
    server.settle(MINUTE + SECOND)

    assert server.store.ended_runs == [
        EndedRun(schedule.id, run.id, State.COMPLETED, MINUTE + SECOND, SECOND, None, MINUTE)
    ]


def test_a_failed_attempt_that_is_retried_is_no_end_of_the_run() -> None:
    server = Server()
    schedule = made(server, job=make_spec(retry=tries(2)), overlap=Overlap.ALLOW)
    server.settle(MINUTE)
    [run] = server.runs(schedule.id)

    server.report(run.id, Failed(OOPS), MINUTE + SECOND)
    server.settle(MINUTE + SECOND)
    assert ends(server) == []
    retry_at = server.job(run.id).due_at
    server.settle(retry_at)
    server.report(run.id, Failed(OOPS), retry_at + SECOND)
    server.settle(retry_at + SECOND)

    assert ends(server) == [(State.FAILED, retry_at + SECOND, SECOND)]
    assert server.store.ended_runs[0].failure == OOPS


def test_a_run_that_is_cancelled_before_it_starts_took_no_time() -> None:
    server = Server(slots=0)
    schedule = made(server)
    server.settle(MINUTE)
    [run] = server.runs(schedule.id)

    server.send(Cancel(run.id), MINUTE + SECOND)
    server.settle(MINUTE + SECOND)

    assert ends(server) == [(State.CANCELLED, MINUTE + SECOND, None)]


def test_a_run_that_is_retried_by_hand_ends_again() -> None:
    server = Server()
    schedule = made(server, job=make_spec(retry=tries(1)))
    server.settle(MINUTE)
    [run] = server.runs(schedule.id)
    server.report(run.id, Failed(OOPS), MINUTE)
    server.settle(MINUTE)

    server.send(RetryJob(run.id), MINUTE + SECOND)
    server.settle(MINUTE + SECOND)
    server.complete(run.id, MINUTE + SECOND)
    server.settle(MINUTE + SECOND)

    assert [state for state, _, _ in ends(server)] == [State.FAILED, State.COMPLETED]


def test_a_run_ends_though_its_schedule_is_not_in_memory() -> None:
    server = Server(capacity=1)
    schedules = [made(server, name=f"s{number}") for number in range(4)]
    server.settle(MINUTE)
    runs = [server.runs(schedule.id)[0] for schedule in schedules]
    for number in range(4):  # these fire much later, so they push the others out of memory
        made(server, name=f"other{number}")

    for run in runs:
        server.complete(run.id, MINUTE + SECOND)
    server.settle(MINUTE + SECOND)

    assert sorted(run.schedule_id for run in server.store.ended_runs) == sorted(
        schedule.id for schedule in schedules
    )


def test_a_job_without_a_schedule_is_not_reported() -> None:
    server = Server()
    job = server.submit(make_spec(), 0)
    server.settle(HOUR)

    server.complete(job.id, HOUR)
    server.settle(HOUR)

    assert server.store.ended_runs == []


def test_a_run_of_a_deleted_schedule_is_reported_and_the_store_drops_it() -> None:
    server = Server()
    schedule = made(server)
    server.settle(MINUTE)
    [run] = server.runs(schedule.id)
    server.send(DeleteSchedule(schedule.name), MINUTE)
    server.settle(MINUTE)

    server.complete(run.id, MINUTE + SECOND)
    server.settle(MINUTE + SECOND)

    assert [each.schedule_id for each in server.store.ended_runs] == [schedule.id]


@pytest.mark.parametrize("length", [1, 10_000])
def test_the_failure_of_a_run_is_reported_without_its_traceback_and_cut(length: int) -> None:
    server = Server()
    schedule = made(server, job=make_spec(retry=tries(1)))
    server.settle(MINUTE)
    [run] = server.runs(schedule.id)
    failure = Failure("T" * length, "m" * length, exit_code=3, traceback="File ...")

    server.report(run.id, Failed(failure), MINUTE)
    server.settle(MINUTE)

    assert server.store.ended_runs[0].failure == msgspec.structs.replace(
        failure,
        type="T" * min(length, LAST_FAILURE_TYPE_CHARACTERS_MAX),
        message="m" * min(length, LAST_FAILURE_CHARACTERS_MAX),
        traceback=None,
    )


def test_a_failed_run_may_have_no_failure_to_report() -> None:
    job = make_job(state=State.RUNNING, started_at=3)

    assert end_run(job, 1, State.FAILED, 5) == EndedRun(1, job.id, State.FAILED, 5, 2, None)


@pytest.mark.parametrize(
    ("runs", "median_us"),
    [
        ((), None),
        (((State.FAILED, 5), (State.CANCELLED, None)), None),
        (((State.COMPLETED, 7),), 7),
        (((State.COMPLETED, 9), (State.FAILED, 1), (State.COMPLETED, 3), (State.COMPLETED, 4)), 4),
        (((State.COMPLETED, 9), (State.COMPLETED, None), (State.COMPLETED, 3)), 9),
    ],
)
def test_the_median_run_is_that_of_the_completed_ones(
    runs: tuple[tuple[State, int | None], ...], median_us: int | None
) -> None:
    last = tuple(LastRun(1, state, 2, took) for state, took in runs)

    assert RunHistory(last_runs=last).median_run_us == median_us
