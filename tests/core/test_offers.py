"""Offers: an invoked attempt until its worker accepts it, in plain calls."""

from __future__ import annotations

from schedo.core.commands import (
    Cancel,
    Invoke,
)
from schedo.core.leases import Lease
from schedo.core.model import JobSpec
from schedo.core.offers import FOLLOWERS, OfferState
from schedo.core.states import State
from schedo.core.worker_messages import Decided
from tests.core.builders import HOUR, SECOND, T0, make_spec
from tests.core.remote_site import MILLISECOND, Site, done

ACCEPT = 250 * MILLISECOND


def offered(*names: str) -> tuple[Site, list[Lease]]:
    """Invoke one job for each of the workers; return the leases that they must accept."""
    site = Site()
    polls = [site.poll(name) for name in names]
    site.invoke(len(names))
    return site, [site.response(poll).leases[0] for poll in polls]


def states(site: Site) -> list[State]:
    return [job.state for job in site.store.jobs.values()]


def test_an_invocation_is_offered_only_when_it_is_durable() -> None:
    site = Site()
    poll = site.poll()
    site.apply(Invoke("call", JobSpec("work"), 1), T0)
    site.tick(T0)
    assert poll not in site.replies

    site.turn()

    response = site.response(poll)
    assert response.offers == {lease.key for lease in response.leases}


def test_an_accepted_offer_decides_its_invocation() -> None:
    site, [lease] = offered("a")
    assert site.decided == []

    assert site.report_in(accept=[lease.key]).revoked == []

    assert site.decided == [Decided("call", 0)]
    assert states(site) == [State.RUNNING]


def test_a_rejected_offer_goes_to_the_next_worker_and_never_back() -> None:
    site, [first] = offered("a")
    other = site.poll("b")

    site.report_in("a", reject=[(first.key, "busy")])
    [second] = site.response(other).leases
    assert (second.worker, second.key.attempt) == ("b", 2)
    site.report_in("b", reject=[(second.key, "busy too")])

    assert site.decided == [Decided("call", 2, {*site.store.jobs})]
    [job] = site.store.jobs.values()
    assert job.failure is not None
    assert (job.failure.type, job.failure.message) == ("no-capacity", "no worker took it: busy too")


def test_an_offer_without_a_reply_is_rejected_after_a_quarter_of_a_second() -> None:
    site, [lease] = offered("a")

    site.run_until(ACCEPT - 1)
    assert site.decided == []
    site.run_until(ACCEPT)

    assert site.decided == [Decided("call", 1, {*site.store.jobs})]
    assert site.report_in(now=ACCEPT, accept=[lease.key]).revoked == [lease.key]


def test_an_offer_to_a_worker_that_does_not_poll_times_out() -> None:
    site = Site()
    site.report_in()
    site.invoke()

    site.run_until(ACCEPT)

    assert site.decided == [Decided("call", 1, {*site.store.jobs})]


def test_a_poll_that_comes_with_the_end_of_an_offer_gets_the_next_job() -> None:
    site = Site()
    site.report_in()
    site.invoke()

    poll = site.poll(now=ACCEPT)
    assert states(site) == [State.FAILED]
    job = site.submit(make_spec(), ACCEPT)
    site.turn(ACCEPT)

    [lease] = site.response(poll).leases
    assert lease.key.job_id == job.id


def test_a_set_clock_does_not_change_the_wait_of_an_offer() -> None:
    site, _ = offered("a")
    site.settle(T0)

    site.follow_clock(HOUR)
    site.run_until(HOUR + ACCEPT - 1)
    assert site.decided == []
    site.run_until(HOUR + ACCEPT)

    assert site.decided == [Decided("call", 1, {*site.store.jobs})]


def test_a_result_for_an_offer_accepts_it() -> None:
    site, [lease] = offered("a")

    site.report_in(reports=[done(lease)])

    assert (site.decided, states(site)) == ([Decided("call", 0)], [State.COMPLETED])


def test_a_late_reply_of_the_first_worker_does_not_decide_the_second_workers_offer() -> None:
    site, [first] = offered("a")
    site.poll("b")
    site.report_in("a", reject=[(first.key, "busy")])

    site.report_in("a", accept=[first.key], reject=[(first.key, "again")], reports=[done(first)])

    assert site.decided == []


def test_a_worker_that_does_not_support_offers_accepts_by_polling() -> None:
    site = Site()
    poll = site.poll(supports_offers=False)
    site.invoke()

    assert site.response(poll).offers == set()
    assert site.decided == [Decided("call", 0)]


def test_a_local_worker_begins_an_invocation_at_once() -> None:
    site = Site(local_slots=1)

    site.invoke()

    assert (len(site.begun), site.decided) == (1, [Decided("call", 0)])


def test_a_cancelled_job_whose_offer_is_rejected_is_cancelled() -> None:
    site, [lease] = offered("a")
    site.apply(Cancel(lease.key.job_id), T0)

    site.report_in(reject=[(lease.key, "busy")])

    assert states(site) == [State.CANCELLED]


def test_an_offer_ends_when_its_worker_leaves_or_restarts() -> None:
    for fields in ({"is_draining": True}, {"session": "s2"}):
        site, _ = offered("a")

        site.report_in(running=frozenset(), **fields)

        assert site.decided == [Decided("call", 1, {*site.store.jobs})]


def test_an_offer_that_never_arrived_goes_to_the_next_worker() -> None:
    site, [_] = offered("a")
    other = site.poll("b")

    site.poll_at_once("a", running=frozenset())

    assert site.response(other).leases[0].key.attempt == 2


def test_an_offer_survives_a_recovery_together_with_its_attempt() -> None:
    site, [lease] = offered("a")
    site.recover(SECOND, lease)
    assert site.decided == []

    site.report_in(now=SECOND, accept=[lease.key])

    assert site.decided == [Decided("call", 0)]


def test_an_offer_whose_attempt_is_gone_ends_with_the_recovery() -> None:
    site, _ = offered("a")

    site.recover(SECOND)

    assert site.decided == [Decided("call", 0)]


def test_a_reply_to_an_ended_offer_changes_nothing() -> None:
    assert FOLLOWERS[OfferState.ENDED] == set()


def test_a_rejection_of_a_lease_that_is_no_offer_changes_nothing() -> None:
    site = Site()
    lease = site.leased()

    site.report_in(reject=[(lease.key, "busy")])

    assert states(site) == [State.RUNNING]
