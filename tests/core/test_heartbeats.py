"""Heartbeats: when a worker counts as lost, and which time does not count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedo.core.commands import HoldLease, Poll, PollBroken
from schedo.core.model import LeaseKey
from schedo.core.states import State
from schedo.errors import WorkerReplaced
from tests.core.builders import HOUR, SECOND, T0, make_spec
from tests.core.remote_site import MILLISECOND, Site, done, keys, make_poll
from tests.core.succession import JOB_ID, NEXT, crashed

TIMEOUT = 5 * SECOND
LISTENED = TIMEOUT + 100 * MILLISECOND  # the sockets were read again


def silent_site() -> Site:
    """Return a site whose worker sends its last request at T0, for 5 s."""
    site = Site()
    site.leased(session_timeout_s=5.0)
    return site


def test_a_silent_worker_is_lost_after_its_timeout_and_not_before() -> None:
    site = silent_site()

    site.run_until(LISTENED - 1)
    assert (site.status(), site.warnings) == ("active", [])
    site.run_until(LISTENED)

    assert site.status() == "disconnected"
    assert site.warnings == ["worker a is lost with 1 attempts: it sent no request for 5 s"]
    [result] = site.results
    assert site.job(result.key.job_id).losses == 1


def test_a_worker_that_polls_another_server_and_runs_nothing_here_is_forgotten_in_silence() -> None:
    site = Site()
    spec = replace(make_poll().spec, is_relayed=True)
    site.report_in(session_timeout_s=5.0, spec=spec)

    site.run_until(LISTENED)

    assert (site.status(), site.warnings) == ("disconnected", [])


def test_a_worker_whose_poll_broke_has_five_seconds_to_reconnect() -> None:
    site = Site()
    poll = site.poll(session_timeout_s=60.0)
    site.apply(PollBroken(poll, "a"), T0)

    site.run_until(LISTENED - 1)
    assert site.status() == "active"
    site.run_until(LISTENED)

    assert site.warnings == [
        "worker a is lost with 0 attempts: its connection broke; it did not reconnect in 5 s"
    ]


def test_a_request_after_a_break_gives_the_whole_timeout_again() -> None:
    site = Site()
    poll = site.poll(session_timeout_s=60.0)
    site.apply(PollBroken(poll, "a"), T0)
    site.report_in(now=SECOND, session_timeout_s=60.0)

    site.run_until(60 * SECOND)

    assert site.status() == "active"


def test_a_worker_that_waits_for_a_response_is_not_silent() -> None:
    site = Site()
    site.poll(session_timeout_s=5.0, wait_s=60.0)

    site.run_until(60 * SECOND)
    assert site.status() == "active"
    site.run_until(60 * SECOND + LISTENED)

    assert site.status() == "disconnected"


def test_the_scheduler_requests_a_turn_each_second_while_it_expects_a_heartbeat() -> None:
    site = silent_site()

    assert site.scheduler.next_wake_at() == T0 + SECOND
    site.run_until(4 * SECOND + SECOND // 2)
    assert site.scheduler.next_wake_at() == TIMEOUT


@pytest.mark.parametrize("stall_s", [5.01, 5.2, 5.9, 60.0])
def test_a_server_that_stalls_loses_no_worker_before_it_has_read_the_requests(
    stall_s: float,
) -> None:
    site = silent_site()
    now = round(stall_s * SECOND)

    site.turn(now)  # the timers come first, then what lies in the sockets
    site.run_until(now + 50 * MILLISECOND)
    site.report_in(now=now + 50 * MILLISECOND, session_timeout_s=5.0)

    assert site.warnings == []


def test_a_worker_has_the_rest_of_its_timeout_after_a_stall() -> None:
    site = silent_site()
    site.run_until(SECOND)
    site.turn(61 * SECOND)

    site.run_until(64 * SECOND)
    assert site.status(now=64 * SECOND) == "active"
    site.run_until(65 * SECOND)

    assert site.status() == "disconnected"


def test_a_server_that_stalls_all_the_time_still_loses_a_silent_worker() -> None:
    site = silent_site()
    now, turns = T0, 0
    while site.status() == "active":
        now = (site.scheduler.next_wake_at() or now) + 200 * MILLISECOND
        site.turn(now)
        turns += 1

    assert 10 < turns < 20


def test_a_set_clock_does_not_change_the_time_until_a_silent_worker_is_lost() -> None:
    site = Site()
    site.report_in(session_timeout_s=5.0)
    poll = site.poll("b", wait_s=10.0)
    site.settle(T0)

    site.follow_clock(-HOUR)
    site.run_until(LISTENED - HOUR - 1)
    assert site.status() == "active"
    site.run_until(LISTENED - HOUR)
    assert site.status() == "disconnected"
    assert poll not in site.replies
    site.run_until(10 * SECOND - HOUR)

    assert site.response(poll).leases == []


def test_a_clock_that_is_set_forward_loses_no_worker() -> None:
    site = silent_site()
    site.settle(T0)

    site.follow_clock(HOUR)
    site.turn(HOUR)

    assert site.status() == "active"


def test_after_a_recovery_each_worker_has_its_whole_timeout_again() -> None:
    site = silent_site()
    [lease] = site.scheduler.held_by("a")

    site.recover(60 * SECOND, lease)
    site.run_until(60 * SECOND + LISTENED - 1)
    assert site.status() == "active"
    site.run_until(60 * SECOND + LISTENED)

    assert site.status() == "disconnected"


def test_the_worker_of_an_attempt_of_the_previous_server_may_reconnect_within_30_seconds() -> None:
    site = silent_site()
    [lease] = site.scheduler.held_by("a")
    site.restart(SECOND, lease)
    assert site.status() == "disconnected"

    site.run_until(31 * SECOND)
    site.report_in(now=31 * SECOND, running=keys(lease))
    site.report_in(now=31 * SECOND, reports=[done(lease)])

    assert site.job(lease.key.job_id).losses == 0
    assert site.state(lease.key.job_id) is State.COMPLETED


def test_an_attempt_whose_worker_does_not_reconnect_is_lost_without_blame() -> None:
    site = silent_site()
    [lease] = site.scheduler.held_by("a")
    site.restart(SECOND, lease)

    site.run_until(32 * SECOND)

    job = site.job(lease.key.job_id)
    assert (job.state, job.losses) == (State.QUEUED, 0)


def test_recoveries_that_follow_on_each_other_do_not_prolong_the_wait_for_a_worker() -> None:
    site = silent_site()
    [lease] = site.scheduler.held_by("a")
    site.restart(SECOND, lease)

    for second in (10, 20, 30):
        site.run_until(second * SECOND)
        site.recover(second * SECOND, lease)
    site.run_until(34 * SECOND)
    assert site.state(lease.key.job_id) is State.RUNNING  # the last one gave it five seconds more
    site.run_until(36 * SECOND)

    assert site.state(lease.key.job_id) is State.QUEUED


def test_a_stall_does_not_prolong_the_poll_of_another_worker() -> None:
    site = silent_site()
    site.report_in("left", is_draining=True)
    poll = site.poll("b", slots=0, wait_s=10.0)
    site.run_until(SECOND)

    site.turn(9 * SECOND)
    site.run_until(10 * SECOND)

    assert site.response(poll).leases == []


def test_a_lease_on_its_way_is_not_released_when_the_clock_is_set() -> None:
    site = silent_site()
    [lease] = site.scheduler.held_by("a")
    site.report_in("left", is_draining=True)
    site.poll("b")
    site.submit(make_spec())
    site.scheduler.tick(T0)
    [unsent] = site.scheduler.take_leases()
    site.scheduler.apply(HoldLease(unsent), T0)
    site.round(T0)

    site.follow_clock(HOUR)
    site.report_in(now=HOUR + SECOND, running=frozenset(), session_timeout_s=5.0)

    assert site.state(lease.key.job_id) is State.RUNNING
    assert site.state(unsent.key.job_id) is State.RUNNING


def send_what_needs_a_load(site: Site, session: str = "s1") -> None:
    """Send a request of worker a that lists a job of the previous server; load nothing yet."""
    listed = frozenset({LeaseKey(JOB_ID - 1, 1, 1)})
    request = make_poll(session=session, running=listed, session_timeout_s=5.0)
    site.send(Poll(99, request), NEXT, lambda _: None)
    assert site.unloaded


def tick_for_20_s(site: Site) -> None:
    """Take turns, but let the store answer nothing."""
    for number in range(1, 400):
        site.tick(NEXT + number * 50 * MILLISECOND)


def test_a_worker_is_not_lost_while_its_request_waits_for_the_store() -> None:
    site, _ = crashed()
    site.report_in("a", now=NEXT, session_timeout_s=5.0)
    send_what_needs_a_load(site)

    tick_for_20_s(site)
    assert (site.status(), site.warnings) == ("active", [])
    site.turn(NEXT + 20 * SECOND)
    assert len(site.response(99).revoked) == 1

    site.run_until(NEXT + 20 * SECOND + LISTENED)
    assert site.status() == "disconnected"


def test_a_worker_is_lost_if_it_hangs_up_while_its_request_waits_for_the_store() -> None:
    site, _ = crashed()
    site.report_in("a", now=NEXT, session_timeout_s=5.0)
    send_what_needs_a_load(site)

    site.apply(PollBroken(99, "a"), NEXT)
    tick_for_20_s(site)

    assert site.status() == "disconnected"


def test_a_worker_is_lost_though_an_older_process_of_its_name_sent_what_needed_a_load() -> None:
    site, _ = crashed()
    for session in ("s1", "s2"):
        site.report_in("a", now=NEXT, session=session, session_timeout_s=5.0)
    send_what_needs_a_load(site, "s1")
    site.turn(NEXT)
    assert isinstance(site.replies[99], WorkerReplaced)

    site.run_until(NEXT + LISTENED)

    assert site.status() == "disconnected"


def test_a_worker_with_leases_is_unheard_once_a_lease_cannot_be_on_its_way_any_more() -> None:
    site = silent_site()
    site.report_in("b")  # holds nothing

    assert site.scheduler.list_unheard(T0 + 2 * SECOND) == []
    assert site.scheduler.list_unheard(T0 + 2 * SECOND + 1) == ["a"]


def test_a_worker_whose_poll_waits_is_not_unheard() -> None:
    site = silent_site()
    [lease] = site.scheduler.held_by("a")
    site.poll(running=keys(lease), wait_s=20.0)
    site.turn()

    assert site.scheduler.list_unheard(T0 + 10 * SECOND) == []


def test_a_worker_that_has_sent_nothing_since_a_restart_is_unheard() -> None:
    site = silent_site()
    [lease] = site.scheduler.held_by("a")
    site.restart(SECOND, lease)

    assert site.scheduler.list_unheard(SECOND) == ["a"]
