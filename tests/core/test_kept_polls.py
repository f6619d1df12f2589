"""A recovery keeps the polls of workers that run nothing, and no others."""

from __future__ import annotations

from collections.abc import Sequence

from schedo.core.adoption import HOLD_BACK_US
from schedo.core.commands import CompletePolls
from schedo.core.ids import ID_MAX
from schedo.core.leases import Lease
from tests.core.builders import SECOND, T0, make_spec
from tests.core.remote_site import Site, keys

LATER = T0 + SECOND


def recover(site: Site, *kept: int, expected: Sequence[Lease] = ()) -> None:
    """Recover as after a change of the shards; these polls are still open.

    expected: leases that workers have of another server.
    """
    old = site.scheduler
    site.scheduler = site._recovered(LATER)
    site.scheduler.take_over(old)
    for lease in expected:
        site.scheduler.expect_worker(lease, LATER)
        stored = site.store.load_job(lease.key.job_id)
        assert stored is not None, "it is durable"
        site.scheduler.recover_running(stored, lease, LATER, LATER)
    site.scheduler.recovered(LATER, kept)


def test_a_worker_that_runs_nothing_waits_on_and_gets_the_next_job() -> None:
    site = Site()
    poll = site.poll("a")
    assert site.scheduler.idle_polls() == [poll]

    recover(site, poll)
    site.turn(LATER)
    assert poll not in site.replies

    job = site.submit(make_spec(), LATER)
    site.turn(LATER)
    assert [lease.key.job_id for lease in site.response(poll).leases] == [job.id]


def test_a_poll_whose_worker_has_gone_in_the_recovery_gets_no_job() -> None:
    site = Site()
    poll = site.poll("a")

    recover(site)
    job = site.submit(make_spec(), LATER)
    site.turn(LATER)

    assert poll not in site.replies
    assert [lease.key.job_id for lease in site.poll_at_once(now=LATER).leases] == [job.id]


def test_a_poll_that_waits_on_ends_at_its_time() -> None:
    site = Site()
    poll = site.poll("a", wait_s=30.0)

    recover(site, poll)
    site.run_until(T0 + 30 * SECOND)

    assert site.response(poll).leases == []


def test_workers_that_run_something_poll_again_after_a_recovery() -> None:
    site = Site()
    lease = site.leased("busy", slots=2)
    busy = site.poll("busy", slots=2, running=keys(lease))
    elsewhere = site.poll("elsewhere", slots=2, elsewhere=keys(lease))
    idle = site.poll("idle")
    assert site.scheduler.idle_polls() == [idle]

    site.apply(CompletePolls(keeps_idle=True), T0)
    site.turn()

    assert {busy, elsewhere} == site.replies.keys() & {busy, elsewhere, idle}


def test_a_worker_that_may_run_an_attempt_of_another_server_polls_again() -> None:
    site = Site()
    lease = site.leased("a")
    other = Site()
    poll = other.poll("a", now=T0)
    other.store = site.store

    recover(other, poll, expected=[lease])
    other.turn(LATER)

    assert other.response(poll).leases == []


def test_a_job_that_a_dead_server_may_have_started_is_held_back_from_a_worker_that_waits_on() -> (
    None
):
    dead, site = Site(), Site()
    job = dead.submit(make_spec(), T0)
    dead.turn()
    poll = site.poll("a")
    site.store = dead.store

    recover(site, poll)
    site.scheduler.follow_server(LATER, was_killed=True, last_id=ID_MAX)
    site.settle(LATER + HOLD_BACK_US - 1)
    assert poll not in site.replies

    site.settle(LATER + HOLD_BACK_US)

    assert [lease.key.job_id for lease in site.response(poll).leases] == [job.id]
