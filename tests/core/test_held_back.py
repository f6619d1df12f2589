"""Jobs that remote workers of the last server may run: for a moment, no other one gets them."""

from __future__ import annotations

from schedo.core.adoption import HELD_BACK_MAX, HOLD_BACK_US
from schedo.core.model import LeaseKey
from schedo.core.states import State
from tests.core.builders import HOUR, MILLISECOND, SECOND, make_spec, worker_spec
from tests.core.remote_site import Site, keys
from tests.core.succession import (
    JOB_ID,
    KILLED,
    NEXT,
    crashed,
    is_continued,
    start_undurably,
    succeed,
)


def test_a_job_that_was_due_is_held_back_until_its_worker_has_reconnected() -> None:
    site, lease = crashed()
    site.settle(NEXT)
    poll = site.poll("b", now=NEXT)
    assert poll not in site.replies
    assert site.scheduler.explain(site.job(lease.key.job_id)).reasons == [
        "it waits a moment for a worker of the previous server that may run it already"
    ]

    site.report_in("a", now=NEXT + MILLISECOND, running=keys(lease))
    site.run_until(NEXT + SECOND)

    assert is_continued(site, lease)
    assert poll not in site.replies


def test_a_job_that_was_held_back_goes_to_the_next_worker_if_its_own_does_not_come() -> None:
    site, lease = crashed()
    site.settle(NEXT)
    poll = site.poll("b", now=NEXT)

    site.run_until(NEXT + HOLD_BACK_US - 1)
    assert poll not in site.replies
    site.run_until(NEXT + HOLD_BACK_US)

    [again] = site.response(poll).leases
    assert again.key == LeaseKey(lease.key.job_id, 1, 2)
    assert site.report_in("a", now=NEXT + SECOND, running=keys(lease)).revoked == [lease.key]


def test_a_job_that_is_cancelled_while_it_is_held_back_stays_cancelled() -> None:
    site, lease = crashed()
    site.settle(NEXT)
    poll = site.poll("b", now=NEXT)
    site.cancel(lease.key.job_id, NEXT)

    site.run_until(NEXT + SECOND)

    assert site.state(lease.key.job_id) is State.CANCELLED
    assert poll not in site.replies


def test_a_job_that_becomes_due_now_is_not_held_back() -> None:
    site, _ = crashed()
    site.settle(NEXT)
    poll = site.poll("b", now=NEXT)

    job = site.submit(make_spec(), NEXT)
    site.turn(NEXT)

    assert [lease.key.job_id for lease in site.response(poll).leases] == [job.id]


def test_a_worker_of_the_server_itself_gets_jobs_at_once() -> None:
    site, lease = crashed()
    site.settle(NEXT)
    site.poll("b", now=NEXT, slots=0)
    site.attach(worker_spec("local"))

    site.turn(NEXT)

    assert [each.key.job_id for each in site.begun] == [lease.key.job_id]


def test_no_job_is_held_back_after_an_orderly_end() -> None:
    site = Site()
    lease = start_undurably(site)
    succeed(site, was_killed=False)
    site.settle(NEXT)

    assert len(site.poll_at_once("b", now=NEXT).leases) == 1
    assert site.report_in("a", now=NEXT, running=keys(lease)).revoked == [lease.key]


def test_jobs_are_held_back_for_the_first_workers_only() -> None:
    site, _ = crashed()
    site.settle(NEXT)

    assert len(site.poll_at_once("b", now=KILLED + 5 * SECOND).leases) == 1


def test_of_a_long_queue_only_the_first_jobs_are_held_back() -> None:
    site = Site()
    site.capacity = 2 * HELD_BACK_MAX
    site.submit_all([make_spec()] * (HELD_BACK_MAX + 1), 0)
    succeed(site)
    site.settle(NEXT)

    [lease] = site.poll_at_once("b", now=NEXT).leases

    assert lease.key.job_id == (HELD_BACK_MAX + 1) * JOB_ID
    site.run_until(NEXT + HOLD_BACK_US)
    [first] = site.poll_at_once("c", now=NEXT + HOLD_BACK_US).leases
    assert first.key.job_id == JOB_ID


def test_the_time_for_reconnecting_follows_a_step_of_the_clock() -> None:
    site, _ = crashed()
    site.settle(NEXT)
    poll = site.poll("b", now=NEXT)
    site.round(NEXT)

    site.follow_clock(HOUR)
    site.run_until(NEXT + HOUR + HOLD_BACK_US - 1)

    assert poll not in site.replies
    site.run_until(NEXT + HOUR + HOLD_BACK_US)
    assert len(site.response(poll).leases) == 1
