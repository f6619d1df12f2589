"""Invocations: gangs begin together or not at all, and what cannot be placed is refused."""

from __future__ import annotations

import pytest

from schedo.core.commands import (
    AttachWorker,
    Cancel,
    CloseWorker,
    ConfigureQueue,
    DetachWorker,
    Poll,
    Reserve,
    TransferAttempts,
)
from schedo.core.model import ReadyKey
from schedo.core.states import State
from schedo.core.worker_messages import Decided
from schedo.errors import NoCapacity, Unsatisfiable
from tests.core.builders import HOUR, SECOND, T0, make_spec, worker_spec
from tests.core.remote_site import MILLISECOND, Site, keys, make_poll
from tests.core.test_offers import ACCEPT, offered, states

# Gangs.


def test_no_job_of_a_gang_begins_before_each_is_accepted() -> None:
    site, leases = offered("a", "b")
    first = site.poll("a", max_leases=0, wait_s=0.0, accept=[leases[0].key])
    assert first not in site.replies

    assert site.report_in("b", accept=[leases[1].key]).revoked == []

    assert site.response(first).revoked == []
    assert site.decided == [Decided("call", 0)]


def test_after_a_rejection_all_leases_of_the_gang_are_revoked() -> None:
    site, leases = offered("a", "b")
    first = site.poll("a", max_leases=0, wait_s=0.0, accept=[leases[0].key])

    site.report_in("b", reject=[(leases[1].key, "busy")])
    site.turn()

    assert site.response(first).revoked == [leases[0].key]
    assert states(site) == [State.FAILED] * 2
    assert site.decided == [Decided("call", 1, {*site.store.jobs})]


def test_a_gang_whose_offers_time_out_together_fails_once() -> None:
    site, _ = offered("a", "b")

    site.run_until(ACCEPT)

    assert (site.decided, states(site)) == (
        [Decided("call", 1, {*site.store.jobs})],
        [State.FAILED] * 2,
    )


def test_a_worker_that_leaves_with_two_jobs_of_a_gang_ends_both() -> None:
    site = Site()
    site.poll(slots=2)
    site.invoke(2)

    site.apply(DetachWorker("a", "it left"), T0)
    site.turn()

    assert (site.decided, states(site)) == (
        [Decided("call", 1, {*site.store.jobs})],
        [State.FAILED] * 2,
    )


def test_local_workers_of_a_gang_begin_when_the_remote_one_accepts() -> None:
    site = Site(local_slots=1)
    poll = site.poll()
    site.invoke(2)
    [lease] = site.response(poll).leases
    assert site.begun == []

    site.report_in(accept=[lease.key])
    site.turn()

    assert len(site.begun) == 1


def test_a_lease_of_a_gang_that_has_begun_is_released_until_the_worker_has_it() -> None:
    site = Site(local_slots=1)
    poll = site.poll()
    jobs = site.invoke(2)
    [lease] = site.response(poll).leases
    [local] = [job.id for job in jobs if job.id != lease.key.job_id]
    site.apply(Poll(99, make_poll(accept=[lease.key])), T0)

    site.apply(TransferAttempts("handover-7"), T0)

    assert site.job(lease.key.job_id).state is State.RUNNING
    assert (site.begun, site.job(local).state) == ([], State.FAILED)


def test_a_local_worker_that_dies_ends_the_gang() -> None:
    site = Site(local_slots=2)
    site.poll()
    site.invoke(3)

    site.apply(DetachWorker("local", "it died"), T0)
    site.turn()

    assert (site.begun, states(site)) == ([], [State.FAILED] * 3)


def test_a_gang_waits_for_the_poll_of_a_worker_without_offers() -> None:
    site = Site(local_slots=1)
    site.report_in(supports_offers=False)
    site.invoke(2)
    assert site.begun == []

    poll = site.poll(now=MILLISECOND, supports_offers=False)
    site.turn(MILLISECOND)

    assert (len(site.begun), len(site.response(poll).leases)) == (1, 1)


def test_a_gang_fails_if_a_worker_without_offers_does_not_poll_in_time() -> None:
    site = Site(local_slots=1)
    site.report_in(supports_offers=False)
    site.invoke(2)

    site.run_until(ACCEPT)

    assert (site.begun, states(site)) == ([], [State.FAILED] * 2)


def test_a_gang_that_fails_gives_its_slot_back_to_the_poll_of_a_worker_without_offers() -> None:
    site = Site(local_slots=1)
    site.poll("gone", supports_offers=False, wait_s=0.0)
    poll = site.poll("a", supports_offers=False)
    site.invoke(3)
    site.run_until(ACCEPT)
    assert states(site) == [State.FAILED] * 3
    site.apply(CloseWorker("local"), ACCEPT)

    job = site.submit(make_spec(), ACCEPT)
    site.turn(ACCEPT)

    [lease] = site.response(poll).leases
    assert lease.key.job_id == job.id


def test_a_worker_that_accepts_by_polling_waits_for_the_others_of_the_gang() -> None:
    site = Site()
    site.poll("a", supports_offers=False)
    site.poll("b")
    [_, second] = site.invoke(2)
    lease = next(each for each in site.scheduler.held_by("b"))
    assert second.id in site.scheduler._session_table.offers
    site.run_until(ACCEPT - 1)
    site.report_in("b", now=ACCEPT - 1, accept=[lease.key])
    site.turn(ACCEPT - 1)

    assert site.decided == [Decided("call", 0)]


def test_a_worker_that_accepts_by_polling_waits_while_another_jobs_offer_moves_on() -> None:
    site = Site()
    plain = site.poll("a", supports_offers=False)
    first = site.poll("b")
    site.invoke(2)
    site.poll("c")
    [lease] = site.response(first).leases
    site.run_until(200 * MILLISECOND)
    site.report_in("b", now=200 * MILLISECOND, reject=[(lease.key, "busy")])

    site.run_until(ACCEPT)

    assert (site.decided, plain in site.replies) == ([], False)


def test_a_cancelled_job_ends_its_gang_before_it_begins() -> None:
    site, leases = offered("a", "b")
    site.apply(Cancel(leases[0].key.job_id), T0)

    site.run_until(ACCEPT)

    assert sorted(states(site)) == [State.CANCELLED, State.FAILED]


def test_a_gang_fails_in_a_recovery() -> None:
    site, leases = offered("a", "b")

    site.recover(SECOND, *leases)
    site.turn(SECOND)

    assert (site.decided, states(site)) == (
        [Decided("call", 0, {*site.store.jobs})],
        [State.FAILED] * 2,
    )
    assert site.report_in("a", now=SECOND, accept=[leases[0].key]).revoked == [leases[0].key]


def test_those_jobs_of_a_gang_begin_whose_workers_accept_them_at_the_next_server() -> None:
    site, (accepted, other) = offered("a", "b")
    site.poll("a", max_leases=0, wait_s=0.0, accept=[accepted.key])
    site.restart(SECOND, accepted, other, was_killed=True)

    response = site.report_in("a", now=SECOND, running=keys(accepted), accept=[accepted.key])

    site.poll_at_once("b", now=4 * SECOND, running=keys())

    assert response.revoked == []
    assert states(site) == [State.RUNNING, State.FAILED]


# Refusals.


def test_a_full_or_paused_queue_takes_no_invocation() -> None:
    site = Site(local_slots=2)
    site.apply(ConfigureQueue("default", {"concurrency": 1}), T0)
    with pytest.raises(NoCapacity, match="concurrency limit"):
        site.invoke(2)
    site.apply(ConfigureQueue("default", {"paused": True}), T0)

    with pytest.raises(NoCapacity, match="is paused"):
        site.invoke()


def test_too_many_jobs_for_all_workers_are_unsatisfiable() -> None:
    site = Site(local_slots=2)

    with pytest.raises(Unsatisfiable, match="at most 2 jobs at once, not 3"):
        site.invoke(3)


def test_without_workers_there_is_no_capacity() -> None:
    with pytest.raises(NoCapacity, match="no worker is connected"):
        Site().invoke()


def test_a_task_of_a_disconnected_worker_is_no_capacity() -> None:
    site = Site()
    site.attach(worker_spec("other", tasks=frozenset({"other"})))
    with pytest.raises(Unsatisfiable, match="none of 1 workers can ever take it: no worker offers"):
        site.invoke()
    site.report_in(is_draining=True)

    with pytest.raises(NoCapacity, match="a worker that could is disconnected"):
        site.invoke()


@pytest.mark.parametrize("recovers", [False, True])
def test_a_worker_that_drains_gets_neither_an_invocation_nor_a_reservation(recovers: bool) -> None:
    site = Site()
    lease = site.leased(slots=2)
    site.report_in(slots=2, is_draining=True, running=[lease.key])
    if recovers:
        site.recover(T0, lease)

    with pytest.raises(NoCapacity) as refusal:
        site.invoke()
    assert refusal.value.rejected == {"draining": 1}
    with pytest.raises(NoCapacity) as refusal:
        site.apply(Reserve("r", "nonce", ReadyKey("default", "work"), 1, HOUR), T0)
    assert refusal.value.rejected == {"draining": 1}


def test_a_worker_whose_next_process_does_not_drain_gets_invocations_again() -> None:
    site = Site()
    request = make_poll(slots=2)
    lease = site.leased(slots=2, spec=request.spec)
    site.report_in(slots=2, spec=request.spec, is_draining=True, running=[lease.key])

    poll = site.poll(slots=2, spec=request.spec, session="s2")
    site.invoke()

    assert site.response(poll).leases


def test_shortly_after_a_restart_an_unknown_task_is_no_capacity() -> None:
    site = Site()
    site.restart(SECOND)
    site.apply(AttachWorker(worker_spec("other", tasks=frozenset({"other"}))), SECOND)

    with pytest.raises(NoCapacity, match="a worker that could is disconnected"):
        site.invoke(now=6 * SECOND - 1)
    with pytest.raises(Unsatisfiable):
        site.invoke(now=6 * SECOND)


def test_a_set_clock_does_not_change_how_long_a_restarted_server_waits_for_workers() -> None:
    site = Site()
    site.restart(SECOND)
    site.attach(worker_spec("other", tasks=frozenset({"other"})))
    site.settle(SECOND)

    site.follow_clock(HOUR)

    with pytest.raises(NoCapacity, match="a worker that could is disconnected"):
        site.invoke(now=HOUR + 6 * SECOND - 1)
