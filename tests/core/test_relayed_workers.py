"""Workers that poll another server of a cluster, as the owner of their jobs sees them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedo.core.commands import CompletePolls, HoldLease, PollBroken
from schedo.core.limits import HOUR
from schedo.core.model import LeaseKey, ReadyKey
from schedo.core.states import State
from schedo.core.worker_pool import WorkerPool
from tests.core.builders import SECOND, T0, make_spec, worker_spec
from tests.core.remote_site import Site, make_poll

READY_KEY = ReadyKey("default", "work")
RECONNECT_S = 5
OWN = make_poll(slots=2).spec
FULL = LeaseKey(1, 1, 99)  # an attempt of a third server
RELAYED = replace(make_poll(slots=2).spec, is_relayed=True)


def attached(*, near: int, far: int) -> WorkerPool:
    """Return a pool with open polls of a worker of this server and one of another server."""
    workers = WorkerPool()
    workers.attach(replace(worker_spec("far", far, polls=True), is_relayed=True))
    workers.attach(worker_spec("near", near, polls=True))
    for name, slots in (("near", near), ("far", far)):
        workers.poll(name, slots)
    workers.groups.note_freed()
    return workers


def test_a_worker_of_this_server_gets_the_next_job_also_if_one_of_another_has_more_room() -> None:
    workers = attached(near=1, far=9)
    group = workers.groups.find(READY_KEY)

    first = group.first()
    assert first is not None
    assert first.spec.id == "near"
    workers.hold("near", LeaseKey(1, 1, 1))

    second = group.first()
    assert second is not None
    assert second.spec.id == "far"


def test_many_jobs_fill_the_workers_of_this_server_first() -> None:
    group = attached(near=2, far=9).groups.find(READY_KEY)

    assert [each.spec.id for each in group.share(4)] == ["near", "near", "far", "far"]


def test_invocations_are_placed_on_the_workers_of_this_server_first() -> None:
    workers = attached(near=1, far=9)

    assert [each.spec.id for each in workers.place(READY_KEY, 2)] == ["near", "far"]


def test_a_worker_that_has_not_got_a_lease_from_its_server_keeps_its_other_attempts() -> None:
    site = Site()
    kept = site.leased(slots=2, spec=RELAYED)
    unsent = site.leased(slots=2, spec=RELAYED)

    site.apply(PollBroken(0, "a", [unsent.key]), T0)
    site.run_until((RECONNECT_S + 1) * SECOND)

    assert site.state(unsent.key.job_id) is State.QUEUED
    assert site.state(kept.key.job_id) is State.RUNNING
    assert site.warnings == []


def test_a_worker_whose_server_dies_keeps_its_attempts_while_it_finds_another_one() -> None:
    site = Site()
    kept = site.leased(slots=2, spec=RELAYED, session_timeout_s=30.0)
    poll = site.poll(slots=2, spec=RELAYED, session_timeout_s=30.0)

    site.apply(PollBroken(poll, "a"), T0)
    site.run_until((RECONNECT_S + 1) * SECOND)

    assert site.state(kept.key.job_id) is State.RUNNING
    assert site.status() == "active"


def test_a_worker_that_has_left_its_gateway_is_lost_if_it_does_not_come_back() -> None:
    site = Site()
    lease = site.leased(slots=2, spec=RELAYED)
    waiting = site.poll(slots=2, spec=RELAYED)

    site.apply(PollBroken(0, "a", left_at=T0), T0)
    site.turn(T0)
    site.run_until(T0 + (RECONNECT_S - 1) * SECOND)
    assert site.state(lease.key.job_id) is State.RUNNING
    assert site.response(waiting).leases == []

    site.run_until(T0 + (RECONNECT_S + 1) * SECOND)
    assert site.state(lease.key.job_id) is not State.RUNNING
    assert "it did not reconnect in 5 s" in site.warnings[0]


def test_a_worker_that_comes_back_through_another_gateway_keeps_its_attempts() -> None:
    site = Site()
    lease = site.leased(slots=2, spec=RELAYED)

    site.apply(PollBroken(0, "a", left_at=T0), T0)
    site.report_in(now=T0 + SECOND, slots=2, spec=RELAYED, running=[lease.key])
    site.run_until(T0 + (RECONNECT_S + 2) * SECOND)

    assert site.state(lease.key.job_id) is State.RUNNING


def test_late_news_that_a_worker_has_left_its_gateway_changes_nothing() -> None:
    site = Site()
    lease = site.leased(slots=2, spec=RELAYED)
    site.report_in(now=T0 + SECOND, slots=2, spec=RELAYED, running=[lease.key])

    site.apply(PollBroken(0, "a", left_at=T0), T0 + 2 * SECOND)
    site.run_until(T0 + (RECONNECT_S + 3) * SECOND)

    assert site.state(lease.key.job_id) is State.RUNNING


def test_news_of_a_gateway_that_a_worker_has_left_it_changes_nothing_where_it_polls_itself() -> (
    None
):
    site = Site()
    lease = site.leased(slots=2)

    site.apply(PollBroken(0, "a", left_at=T0 + 1), T0)
    site.run_until(T0 + (RECONNECT_S + 1) * SECOND)

    assert site.state(lease.key.job_id) is State.RUNNING


def start_beside_another(site: Site) -> tuple[LeaseKey, LeaseKey]:
    """Let a response to a relayed poll have one lease while another start is not durable yet."""
    site.poll(slots=2, spec=RELAYED)
    sent, late = site.submit(make_spec()).id, site.submit(make_spec()).id
    site.scheduler.tick(T0)
    leases = {lease.key.job_id: lease for lease in site.scheduler.take_leases()}
    site.apply(HoldLease(leases[sent]), T0)
    site.scheduler.take_replies(T0)
    site.apply(HoldLease(leases[late]), T0)
    return leases[sent].key, leases[late].key


def test_a_lease_that_is_late_for_the_response_to_a_relayed_poll_is_in_the_next_one() -> None:
    site = Site()
    sent, late = start_beside_another(site)

    response = site.poll_at_once(
        now=T0 + SECOND // 20, slots=2, spec=RELAYED, running=None, elsewhere=[sent]
    )

    assert [lease.key for lease in response.leases] == [late]
    site.run_until(T0 + SECOND)
    assert site.state(late.job_id) is State.RUNNING


def test_a_lease_that_is_late_goes_back_if_no_relayed_poll_follows() -> None:
    site = Site()
    sent, late = start_beside_another(site)

    site.run_until(T0 + SECOND // 2)

    assert [lease.key for lease in site.scheduler.held_by("a")] == [sent]
    assert site.state(late.job_id) is State.QUEUED
    assert site.state(sent.job_id) is State.RUNNING
    assert site.warnings == []


def test_a_late_lease_goes_back_as_soon_after_a_step_of_the_clock() -> None:
    site = Site()
    _, late = start_beside_another(site)
    site.settle(T0)
    site.follow_clock(HOUR)

    site.run_until(T0 + HOUR + SECOND // 20)
    assert site.state(late.job_id) is State.RUNNING

    site.run_until(T0 + HOUR + SECOND // 2)
    assert site.state(late.job_id) is State.QUEUED


def test_a_worker_whose_late_lease_has_gone_back_is_lost_only_after_its_timeout() -> None:
    site = Site()
    sent, _ = start_beside_another(site)

    site.run_until(T0 + 9 * SECOND)
    assert site.state(sent.job_id) is State.RUNNING

    site.run_until(T0 + 31 * SECOND)
    assert site.state(sent.job_id) is not State.RUNNING
    assert "worker a is lost with 1 attempts" in site.warnings[0]


def test_a_lease_whose_relayed_poll_is_recalled_before_its_start_is_durable_goes_back() -> None:
    site = Site()
    site.poll(spec=RELAYED)
    job_id = site.submit(make_spec()).id
    site.scheduler.tick(T0)
    [lease] = site.scheduler.take_leases()
    site.apply(CompletePolls("a"), T0)
    site.scheduler.take_replies(T0)

    site.apply(HoldLease(lease), T0)
    site.run_until(T0 + SECOND // 2)

    assert site.state(job_id) is State.QUEUED
    assert site.scheduler.held_by("a") == []


@pytest.mark.parametrize("is_draining", [False, True])
def test_a_recalled_lease_of_a_worker_that_has_come_itself_breaks_no_connection(
    is_draining: bool,
) -> None:
    site = Site()
    kept, recalled = (site.leased(slots=2, spec=RELAYED, session_timeout_s=30.0) for _ in range(2))
    site.report_in(
        slots=2, spec=OWN, session_timeout_s=30.0, running=[kept.key], is_draining=is_draining
    )

    site.apply(PollBroken(0, "a", [recalled.key]), T0)
    site.run_until(T0 + 9 * SECOND)  # the next request comes after 10 s

    assert site.state(recalled.key.job_id) is State.QUEUED
    assert site.state(kept.key.job_id) is State.RUNNING
    assert site.warnings == []


def test_a_late_lease_is_not_given_to_a_worker_that_has_got_full_and_polls_the_owner_itself() -> (
    None
):
    site = Site()
    sent, _ = start_beside_another(site)

    response = site.poll_at_once(
        now=T0 + SECOND // 20, slots=2, spec=OWN, running=[sent], elsewhere=frozenset([FULL])
    )

    assert response.leases == []


def test_a_late_lease_goes_back_if_its_full_worker_reports_to_the_owner_itself() -> None:
    site = Site()
    sent, late = start_beside_another(site)

    for at in range(T0 + SECOND // 20, T0 + 60 * SECOND, 5 * SECOND):
        site.run_until(at)
        site.report_in(spec=OWN, slots=2, running=[sent], elsewhere=frozenset([FULL]), now=at)

    assert site.state(sent.job_id) is State.RUNNING
    assert site.state(late.job_id) is State.QUEUED


def test_a_late_lease_goes_back_although_its_worker_reports_all_the_time() -> None:
    site = Site()
    sent, late = start_beside_another(site)

    for at in range(T0, T0 + 5 * SECOND, SECOND // 10):  # as a job does that tells its progress
        site.run_until(at)
        site.report_in(spec=RELAYED, slots=2, running=[sent], now=at)

    assert site.state(late.job_id) is State.QUEUED
    assert site.state(sent.job_id) is State.RUNNING


def test_a_poll_in_the_name_of_a_worker_does_not_say_what_the_worker_runs() -> None:
    site = Site()
    site.leased(slots=2, spec=RELAYED)
    site.poll(now=T0 + 3 * SECOND, slots=2, spec=RELAYED, running=None)

    assert site.scheduler.list_unheard(T0 + 3 * SECOND) == ["a"]


def test_a_list_that_another_server_sends_says_what_the_worker_runs() -> None:
    site = Site()
    lease = site.leased(slots=2, spec=RELAYED)
    site.report_in(now=T0 + 3 * SECOND, slots=2, spec=RELAYED, running=[lease.key])

    assert site.scheduler.list_unheard(T0 + 4 * SECOND) == []
