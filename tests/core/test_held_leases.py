"""The leases of remote workers: how each of them ends, and which results are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schedo.core.commands import Poll
from schedo.core.leases import AttemptResult, Completed, Failed
from schedo.core.model import Failure, LeaseKey
from schedo.core.states import State
from schedo.core.worker_session import REPORTED_KEPT, Session
from tests.core.builders import SECOND, T0, make_spec, worker_spec
from tests.core.remote_site import Site, done, keys, make_poll

IN_FLIGHT = 2 * SECOND
RELAYED = replace(make_poll().spec, is_relayed=True)


def test_a_lease_that_never_arrived_is_requeued_uncounted() -> None:
    site = Site()
    lease = site.leased()

    [again] = site.poll_at_once(running=frozenset()).leases

    assert again.key == LeaseKey(lease.key.job_id, 2, 1)
    assert site.job(lease.key.job_id).losses == 0


def test_a_heartbeat_releases_a_lease_only_when_it_cannot_be_on_its_way() -> None:
    site = Site()
    lease = site.leased(session_timeout_s=30.0)

    site.report_in(now=IN_FLIGHT, running=frozenset())
    assert site.state(lease.key.job_id) is State.RUNNING
    site.report_in(now=IN_FLIGHT + 1, running=frozenset())

    assert site.state(lease.key.job_id) is State.QUEUED


def test_a_request_that_lists_no_attempts_releases_none() -> None:
    site = Site()
    lease = site.leased(slots=2)

    site.poll_at_once(slots=2)

    assert site.state(lease.key.job_id) is State.RUNNING


def test_leases_that_a_worker_ignores_count_losses_from_the_ninth_one_on_and_fail_the_job() -> None:
    site = Site()
    lease = site.leased()

    for number in range(9):
        site.poll_at_once(now=T0 + number * IN_FLIGHT, running=frozenset())
    assert site.job(lease.key.job_id).losses == 1
    for number in range(9, 12):
        site.poll_at_once(now=T0 + number * IN_FLIGHT, running=frozenset())

    job = site.job(lease.key.job_id)
    assert (job.state, job.losses) == (State.FAILED, 3)
    assert job.failure is not None
    assert job.failure.message == "worker a ignores its leases"


def test_a_lost_response_with_several_leases_counts_once() -> None:
    site = Site()
    site.report_in(slots=12)
    for _ in range(12):
        site.submit(make_spec(), T0)
    leases = site.poll_at_once(slots=12).leases
    assert len(leases) == 12

    for number in range(8):
        site.poll_at_once(slots=12, running=frozenset(), now=T0 + number * IN_FLIGHT)

    assert {site.job(lease.key.job_id).losses for lease in leases} == {0}


def test_the_old_polls_that_a_paused_server_reads_cost_no_job_a_loss() -> None:
    site = Site()
    site.report_in(slots=200)
    jobs = [site.submit(make_spec(), T0) for _ in range(200)]
    site.poll_at_once(slots=200)

    for _ in range(20):
        site.poll_at_once(slots=200, running=frozenset(), now=T0 + 60 * SECOND)

    assert {site.job(job.id).losses for job in jobs} == {0}


def test_an_attempt_without_a_lease_is_revoked() -> None:
    site = Site()

    assert site.report_in(running=frozenset({LeaseKey(77, 1, 1)})).revoked == [LeaseKey(77, 1, 1)]


def test_a_poll_with_an_attempt_without_a_lease_gets_its_response_at_once() -> None:
    site = Site()

    poll = site.poll(running=frozenset({LeaseKey(77, 1, 1)}))

    assert site.response(poll).revoked == [LeaseKey(77, 1, 1)]


def test_a_worker_that_is_slow_to_stop_revoked_attempts_polls_with_waits() -> None:
    site = Site()
    running = frozenset({LeaseKey(77, 1, 1), LeaseKey(78, 1, 1)})
    site.report_in(running=running)

    poll = site.poll(running=running)
    assert poll not in site.replies
    site.run_until(T0 + 30 * SECOND)

    assert frozenset(site.response(poll).revoked) == running


def test_each_newly_revoked_attempt_ends_the_wait() -> None:
    site = Site()
    slow = LeaseKey(77, 1, 1)
    site.report_in(running=frozenset({slow}))

    poll = site.poll(running=frozenset({slow, LeaseKey(78, 1, 1)}))

    assert len(site.response(poll).revoked) == 2


def test_a_reported_attempt_is_not_revoked() -> None:
    site = Site()
    lease = site.leased()
    site.report_in(reports=[done(lease)])

    assert site.report_in(running=keys(lease)).revoked == []


def test_a_result_that_a_failed_commit_took_back_counts_when_it_comes_again() -> None:
    site = Site()
    lease = site.leased()
    site.apply(Poll(99, make_poll(reports=[done(lease)])), T0)
    site.tick(T0)

    site.recover(T0, expected=[lease])  # its shard was at another server meanwhile
    site.report_in(reports=[done(lease)])

    assert site.state(lease.key.job_id) is State.COMPLETED


def test_a_draining_worker_releases_what_it_does_not_run() -> None:
    site = Site()
    lease = site.leased()

    site.report_in(is_draining=True, running=frozenset())

    assert (site.status(), site.state(lease.key.job_id)) == ("disconnected", State.QUEUED)


def test_a_second_result_that_contradicts_the_first_is_refused_and_recorded_once() -> None:
    site = Site()
    lease = site.leased()
    failed = AttemptResult(lease.key, Failed(Failure("ValueError", "no")))
    reason = "worker a does not hold this attempt any more"

    refused = [site.report_in(reports=each).refused for each in ([done(lease)], [failed], [failed])]

    assert refused == [[], [(lease.key, reason)], [(lease.key, reason)]]
    assert [each.outcome for each in site.store.attempts] == ["stale"]
    assert len(site.warnings) == 1


def test_a_worker_cannot_end_the_attempt_of_another_one() -> None:
    site = Site()
    lease = site.leased()

    assert site.report_in("b", reports=[done(lease)]).refused != []

    assert site.state(lease.key.job_id) is State.RUNNING
    assert site.store.attempts == []


def test_an_at_most_once_job_of_a_worker_without_sessions_is_lost_and_not_repeated() -> None:
    site = Site()
    site.poll(session="")
    job = site.submit(make_spec(at_most_once=True))
    site.turn()

    site.poll_at_once(session="", running=frozenset())

    assert site.state(job.id) is State.FAILED


def test_an_at_most_once_lease_is_sent_when_its_start_is_durable() -> None:
    site = Site()
    poll = site.poll()
    site.submit(make_spec(at_most_once=True))

    site.tick(T0)
    assert poll not in site.replies
    site.round(T0)
    site.tick(T0)

    assert len(site.response(poll).leases) == 1


def test_a_lease_that_waits_for_its_commit_is_released_with_its_worker() -> None:
    site = Site()
    site.poll()
    job = site.submit(make_spec(at_most_once=True))
    site.tick(T0)

    site.report_in(is_draining=True)

    assert (site.job(job.id).state, site.job(job.id).losses) == (State.QUEUED, 0)


def test_a_lease_that_waits_for_its_commit_does_not_wait_for_a_worker_that_drains() -> None:
    site = Site()
    other = site.leased(slots=2)
    site.poll(slots=2, running=keys(other))
    job = site.submit(make_spec(at_most_once=True))
    site.tick(T0)

    site.report_in(slots=2, running=keys(other), is_draining=True)

    assert (site.state(other.key.job_id), site.state(job.id)) == (State.RUNNING, State.QUEUED)


def test_an_attempt_of_the_previous_server_that_its_worker_does_not_run_is_lost() -> None:
    site = Site()
    lease = site.leased()
    site.restart(SECOND, lease)

    site.poll_at_once(now=SECOND, session="s2", running=frozenset())

    job = site.job(lease.key.job_id)
    assert (job.state, job.losses) == (State.RUNNING, 0), "without blame it runs again"
    assert job.attempt == 2


def test_an_attempt_of_the_previous_server_is_confirmed_when_its_worker_lists_it() -> None:
    site = Site()
    lease = site.leased()
    site.restart(SECOND, lease)
    site.report_in(now=SECOND, running=keys(lease))

    site.poll_at_once(now=SECOND, running=frozenset())

    assert site.job(lease.key.job_id).losses == 1


def test_a_result_with_a_value_of_another_type_fails_its_attempt() -> None:
    site = Site()
    lease = site.leased()

    site.report_in(reports=[AttemptResult(lease.key, Completed("no bytes"))])  # type: ignore[arg-type]

    assert site.state(lease.key.job_id) is State.FAILED


def test_a_session_remembers_a_bounded_number_of_ended_attempts() -> None:
    session = Session("a", worker_spec("a"))

    for number in range(REPORTED_KEPT + 1):
        session.note_reported(LeaseKey(number, 1, 1), Completed())

    assert len(session.reported) == len(session.revoked) == REPORTED_KEPT
    assert not session.has_reported(LeaseKey(0, 1, 1), Completed())
    assert session.has_reported(LeaseKey(REPORTED_KEPT, 1, 1), Completed())


# Attempts of other servers.

THEIRS = frozenset({LeaseKey(77, 1, 9)})


def test_attempts_for_other_servers_take_slots() -> None:
    site = Site()
    full = site.poll(slots=1, running=frozenset(), elsewhere=THEIRS)
    job = site.submit(make_spec())
    site.turn(SECOND)
    assert full not in site.replies
    assert site.state(job.id) is State.QUEUED

    [lease] = site.poll_at_once(now=2 * SECOND, slots=1, running=frozenset()).leases

    assert lease.key.job_id == job.id


def test_an_attempt_that_the_worker_says_it_runs_for_another_server_is_kept() -> None:
    site = Site()
    lease = site.leased()

    response = site.poll_at_once(running=frozenset(), elsewhere=frozenset({lease.key}) | THEIRS)

    assert response.revoked == []
    assert site.state(lease.key.job_id) is State.RUNNING


# Workers that several servers know: an old list can come after a newer request.


def test_a_list_through_another_server_takes_nothing_that_came_straight() -> None:
    site = Site()
    lease = site.leased()

    site.poll_at_once(running=frozenset(), spec=RELAYED)

    assert site.job(lease.key.job_id).attempt == 1
    assert site.state(lease.key.job_id) is State.RUNNING


def test_a_straight_list_takes_nothing_that_came_through_another_server() -> None:
    site = Site()
    lease = site.leased(spec=RELAYED)

    site.poll_at_once(now=IN_FLIGHT, running=frozenset())

    assert site.job(lease.key.job_id).attempt == 1


def test_a_lease_that_another_server_lost_is_requeued_when_no_list_can_be_older_than_it() -> None:
    site = Site()
    lease = site.leased(spec=RELAYED)

    [again] = site.poll_at_once(now=IN_FLIGHT + 1, running=frozenset()).leases

    assert again.key == LeaseKey(lease.key.job_id, 2, 1)


@pytest.mark.parametrize("relayed", [{}, {"spec": RELAYED}])
def test_a_list_takes_no_lease_that_is_newer_than_it(relayed: dict[str, Any]) -> None:
    site = Site()
    lease = site.leased(now=SECOND, **relayed)

    late = SECOND + 2 * IN_FLIGHT
    site.poll_at_once(now=late, running=frozenset(), age_us=2 * IN_FLIGHT + 1, **relayed)

    assert site.job(lease.key.job_id).attempt == 1


def test_a_list_that_had_to_wait_takes_no_lease_that_has_left_since() -> None:
    site = Site()
    lease = site.leased(now=SECOND)

    site.poll_at_once(now=2 * SECOND, running=frozenset(), came_at=SECOND - 1)

    assert site.job(lease.key.job_id).attempt == 1


def test_a_list_takes_no_attempt_of_the_previous_server_that_has_come_here_since() -> None:
    site = Site()
    lease = site.leased()
    site.recover(SECOND, expected=[lease])

    site.poll_at_once(now=2 * SECOND, running=frozenset(), age_us=SECOND + 1)

    assert site.state(lease.key.job_id) is State.RUNNING
