"""Attempts that are released, lost with a worker or a server, or stale."""

from __future__ import annotations

import pytest

from schedo.core.changes import AttemptRecord
from schedo.core.commands import Reschedule
from schedo.core.leases import AttemptResult, CapturedOutput, Completed, Failed, Lost, Released
from schedo.core.model import Failure, LeaseKey
from schedo.core.states import State
from schedo.errors import StaleLease
from tests.core.builders import SECOND, T0, make_spec, tries, worker_spec
from tests.core.fake_store import OOPS
from tests.core.server import Server


def test_a_released_job_is_requeued_first_and_not_counted() -> None:
    server = Server(slots=1)
    job = server.submit(make_spec(), T0)
    server.run(T0)
    server.submit(make_spec(priority=9), T0)

    server.report(job.id, Released(), SECOND)

    assert server.run(SECOND) == [job.id]
    again = server.job(job.id)
    assert (again.attempt, again.failures, again.losses) == (2, 0, 0)


def test_a_requeued_job_stays_first_when_its_priority_is_changed() -> None:
    server = Server(slots=1)
    job = server.submit(make_spec(), T0)
    server.run(T0)
    server.submit(make_spec(priority=9), T0)
    server.report(job.id, Released(), SECOND)

    server.change(Reschedule(job.id, priority=1), SECOND)

    assert server.run(SECOND) == [job.id]


def test_a_detached_worker_loses_its_attempts() -> None:
    server = Server()
    jobs = [server.submit(make_spec(retry=tries(1)), T0) for _ in range(2)]
    server.run(T0)

    lost = server.detach("w", "it died", SECOND)

    assert lost == list(server.leases)
    for each in jobs:
        job = server.job(each.id)
        assert (job.state, job.losses, job.failures) == (State.QUEUED, 1, 0)
        assert job.failure == Failure("lost", "it died")
    assert server.detach("w", "", SECOND) == []


def test_the_third_loss_fails_a_job() -> None:
    server = Server(slots=0)
    job = server.submit(make_spec(retry=tries(100)), T0)
    for _ in range(3):
        server.attach(worker_spec())
        assert server.run(T0) == [job.id]
        server.report(job.id, Lost("it died"), T0)

    ended = server.job(job.id)
    assert (ended.state, ended.attempt, ended.losses) == (State.FAILED, 3, 3)


def test_a_job_that_runs_at_most_once_is_not_repeated_when_its_worker_is_lost() -> None:
    server = Server()
    job = server.submit(make_spec(at_most_once=True), T0)
    server.run(T0)

    server.detach("w", "it died", SECOND)
    server.attach(worker_spec())

    server.leases.clear()
    assert server.state(job.id) is State.FAILED
    assert server.run(SECOND) == []


def test_attempts_of_a_dead_server_are_lost_and_run_again() -> None:
    server = Server()
    job = server.submit(make_spec(), T0)
    server.run(T0)

    server.crash(SECOND)
    server.attach(worker_spec())

    assert server.run(SECOND) == [job.id]
    again = server.job(job.id)
    assert (again.attempt, again.epoch, again.losses) == (2, 2, 0)


def test_a_start_that_a_crash_undid_is_made_again_under_a_new_epoch() -> None:
    server = Server()
    job = server.submit(make_spec(), T0)
    [lease] = server.tick(T0)

    server.crash(SECOND)
    server.attach(worker_spec())
    server.settle(SECOND)

    assert lease.key == LeaseKey(job.id, 1, 1)
    assert list(server.leases) == [LeaseKey(job.id, 1, 2)]


@pytest.mark.parametrize(
    "change",
    [{"attempt": 2}, {"epoch": 2}, {"job_id": 99}],
    ids=["another attempt", "another epoch", "another job"],
)
def test_a_stale_result_changes_nothing_and_is_recorded(change: dict[str, int]) -> None:
    server = Server()
    job = server.submit(make_spec(), T0)
    server.run(T0)
    before = server.job(job.id).copy()
    stale = LeaseKey(job.id, 1, 1)._replace(**change)
    capture = CapturedOutput("stdout", b"late", b"", 4)

    with pytest.raises(StaleLease, match="no longer holds it"):
        server.scheduler.apply(AttemptResult(stale, Completed(b"1"), (capture,)), SECOND)

    assert server.job(job.id) == before
    changes = server.scheduler.take_changes()
    assert changes.attempts == [AttemptRecord(*stale, None, None, SECOND, "stale", None)]
    assert (changes.jobs, changes.outputs) == ({}, [])


def test_a_repeated_result_is_applied_once() -> None:
    server = Server()
    job = server.submit(make_spec(), T0)
    server.run(T0)
    [key] = server.leases
    server.complete(job.id, SECOND)

    with pytest.raises(StaleLease):
        server.scheduler.apply(AttemptResult(key, Failed(OOPS)), SECOND)

    assert server.state(job.id) is State.COMPLETED
