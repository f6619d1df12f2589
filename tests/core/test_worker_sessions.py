"""Worker sessions: what a request does, when it is answered, and who has a name."""

from __future__ import annotations

import pytest

from schedo.core.commands import (
    AnswerPolls,
    Cancel,
    Cordon,
    DetachWorker,
    Drain,
    HoldLease,
    Poll,
    PollBroken,
)
from schedo.core.leases import StopReason
from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.core.states import State
from schedo.core.worker_messages import Progress
from schedo.core.worker_sessions import EVICTED_AT_ONCE, SESSIONS_MAX
from schedo.errors import NotFound, Overloaded, WorkerReplaced
from tests.core.builders import SECOND, T0, make_spec
from tests.core.remote_site import Site, done, keys, make_poll

# Responses.


def test_a_poll_waits_for_the_next_job() -> None:
    site = Site()
    poll = site.poll()
    assert poll not in site.replies

    job = site.submit(make_spec())
    site.turn(SECOND)

    [lease] = site.response(poll).leases
    assert (lease.key, lease.worker) == (LeaseKey(job.id, 1, 1), "a")


def test_a_poll_is_answered_when_its_time_is_up() -> None:
    site = Site()
    poll = site.poll(wait_s=10.0)

    site.run_until(10 * SECOND - 1)
    assert poll not in site.replies
    site.run_until(10 * SECOND)

    assert site.response(poll).leases == []


def test_a_request_without_a_poll_is_answered_at_once_and_leaves_the_poll_open() -> None:
    site = Site()
    poll = site.poll()

    assert site.say().leases == []

    assert poll not in site.replies


def test_a_newer_poll_gets_the_leases_and_the_older_one_is_answered_without() -> None:
    site = Site()
    first, second = site.poll(), site.poll()
    site.submit(make_spec())
    site.turn()

    assert site.response(first).leases == []
    assert len(site.response(second).leases) == 1


def test_a_poll_gets_no_more_leases_than_it_requests() -> None:
    site = Site()
    poll = site.poll(slots=5, max_leases=2)
    site.submit_all([make_spec()] * 3)
    site.turn()

    assert len(site.response(poll).leases) == 2


def test_results_are_confirmed_after_the_commit_that_carries_them() -> None:
    site = Site()
    lease = site.leased()
    site.apply(Poll(99, make_poll(reports=[done(lease)])), T0)

    site.tick(T0)
    assert 99 not in site.replies
    site.round(T0)
    site.tick(T0)

    assert site.response(99).refused == []
    assert site.state(lease.key.job_id) is State.COMPLETED


def test_a_repeated_result_waits_for_a_commit_too() -> None:
    site = Site()
    lease = site.leased()
    site.say(reports=[done(lease)])
    site.apply(Poll(99, make_poll(reports=[done(lease)])), T0)
    site.tick(T0)

    assert 99 not in site.replies
    assert site.scheduler.has_pending_work


def test_a_result_and_the_next_lease_travel_in_one_exchange() -> None:
    site = Site()
    lease = site.leased()
    site.submit(make_spec())

    [following] = site.hire(reports=[done(lease)]).leases

    assert following.key.job_id != lease.key.job_id


def test_a_stop_request_is_in_each_response_and_completes_one_poll() -> None:
    site = Site()
    lease = site.leased(slots=2)
    poll = site.poll(slots=2, running=keys(lease))

    site.apply(Cancel(lease.key.job_id), T0)
    site.turn()

    [stop] = site.response(poll).stops
    assert (stop.key, stop.reason) == (lease.key, StopReason.CANCEL)
    assert site.poll(slots=2, running=keys(lease)) not in site.replies
    assert site.say(slots=2).stops == [stop]


def test_a_stop_request_for_an_unknown_worker_is_ignored() -> None:
    site = Site(local_slots=1)
    job = site.submit(make_spec())
    site.turn()

    site.apply(Cancel(job.id), T0)
    site.turn()

    assert site.state(job.id) is State.RUNNING


def test_a_shutdown_answers_all_polls() -> None:
    site = Site()
    polls = [site.poll("a"), site.poll("b")]

    site.apply(AnswerPolls(), T0)
    site.turn()

    assert [site.response(poll).leases for poll in polls] == [[], []]


def test_progress_counts_while_the_worker_holds_the_attempt() -> None:
    site = Site()
    lease = site.leased()
    progress = Progress(lease.key, ProgressUpdate(50.0))

    site.apply(Poll(98, make_poll(progress=[progress])), T0)
    assert site.scheduler.take_notes().progress == [progress]
    site.apply(Poll(99, make_poll("b", progress=[progress])), T0)
    assert site.scheduler.take_notes().progress == []


# Broken connections.


def test_a_poll_that_breaks_before_the_turn_gets_no_lease() -> None:
    site = Site()
    job = site.submit(make_spec())
    site.apply(Poll(1, make_poll(max_leases=1, wait_s=30.0)), T0)
    site.apply(PollBroken(1, "a"), T0)

    site.turn()

    assert site.state(job.id) is State.QUEUED


def test_the_leases_of_a_response_that_cannot_be_sent_are_released() -> None:
    site = Site()
    poll = site.poll()
    job = site.submit(make_spec())
    site.turn()
    [lease] = site.response(poll).leases

    site.apply(PollBroken(poll, "a", [lease.key]), T0)
    site.turn()

    assert (site.state(job.id), site.job(job.id).losses) == (State.QUEUED, 0)


def test_a_lease_that_no_response_carries_yet_is_released_with_its_poll() -> None:
    site = Site()
    poll = site.poll()
    job = site.submit(make_spec())
    site.scheduler.tick(T0)
    leases = site.scheduler.take_leases()
    site.scheduler.take_notes()
    site.apply(HoldLease(leases[0]), T0)
    site.apply(PollBroken(poll, "a"), T0)
    site.turn()

    assert site.state(job.id) is State.QUEUED


def test_a_broken_heartbeat_changes_nothing() -> None:
    site = Site()
    poll = site.poll()
    site.apply(Poll(99, make_poll()), T0)
    site.apply(PollBroken(99, "a"), T0)
    site.apply(PollBroken(100, "unknown"), T0)
    site.submit(make_spec())
    site.turn()

    assert len(site.response(poll).leases) == 1


def test_a_lease_of_an_ended_attempt_is_not_sent() -> None:
    site = Site()
    poll = site.poll()
    site.submit(make_spec())
    site.scheduler.tick(T0)
    [lease] = site.scheduler.take_leases()
    site.apply(DetachWorker("a", "it left"), T0)
    site.apply(HoldLease(lease), T0)
    site.turn()

    assert site.scheduler.held_by("a") == []
    assert poll not in site.replies


# Names.


def test_a_new_process_takes_the_name_over_and_the_old_one_gets_an_error() -> None:
    site = Site()
    lease = site.leased()
    poll = site.poll(running=keys(lease))

    site.say(session="s2")

    assert isinstance(site.replies[poll], WorkerReplaced)
    assert isinstance(site.replies[site.poll(session="s1")], WorkerReplaced)
    assert site.job(lease.key.job_id).losses == 1


def test_a_new_process_may_go_on_with_attempts_of_the_old_one() -> None:
    site = Site()
    lease = site.leased()

    site.say(session="s2", running=keys(lease))

    assert site.job(lease.key.job_id).state is State.RUNNING


def test_a_name_is_forgotten_when_too_many_are_disconnected() -> None:
    site = Site()
    for number in range(SESSIONS_MAX):
        session = make_poll(f"w{number}", is_draining=number < SESSIONS_MAX - 1)
        site.apply(Poll(-number, session), T0)
    site.turn()

    site.say("new")

    with pytest.raises(NotFound):
        site.status("w0")
    assert site.status(f"w{SESSIONS_MAX - 2}") == "disconnected"
    assert len(site.scheduler._session_table.by_name) <= SESSIONS_MAX - EVICTED_AT_ONCE + 1


def test_beyond_the_limit_of_sessions_a_worker_is_refused() -> None:
    site = Site()
    for number in range(SESSIONS_MAX):
        site.apply(Poll(-number, make_poll(f"w{number}")), T0)

    assert isinstance(site.replies[site.poll("new")], Overloaded)


# Operators.


def test_a_cordon_outlives_the_session_and_a_recovery() -> None:
    site = Site()
    site.say()
    site.apply(Cordon("a", True), T0)
    site.say(is_draining=True)
    site.say()
    assert site.status() == "cordoned"

    site.recover(T0)
    assert site.status() == "cordoned"

    assert site.apply(Cordon("a", False), T0).state == "active"


def test_a_drain_is_requested_with_the_open_poll_and_ends_with_the_process() -> None:
    site = Site()
    poll = site.poll()

    assert site.apply(Drain("a"), T0).state == "draining"
    site.turn()
    assert site.response(poll).drain

    site.say(is_draining=True, running=frozenset())
    assert site.status() == "disconnected"
    site.say(session="s2")
    assert site.status() == "active"


def test_a_drain_of_a_worker_without_a_poll_is_in_its_next_response() -> None:
    site = Site()
    site.say()
    site.apply(Drain("a"), T0)

    assert site.say().drain


def test_a_local_worker_that_is_drained_is_cordoned() -> None:
    site = Site(local_slots=1)

    assert site.apply(Drain("local"), T0).state == "cordoned"


@pytest.mark.parametrize("command", [Cordon("nobody", True), Drain("nobody")])
def test_an_unknown_worker_is_not_found(command: Cordon | Drain) -> None:
    with pytest.raises(NotFound):
        Site().apply(command, T0)


def test_a_draining_worker_gets_no_lease_through_its_open_poll() -> None:
    site = Site()
    lease = site.leased(slots=2)
    poll = site.poll(slots=2, running=keys(lease))

    site.say(slots=2, is_draining=True, running=keys(lease))
    job = site.submit(make_spec())
    site.turn()

    assert site.response(poll).leases == []
    assert (site.status(), site.state(job.id)) == ("draining", State.QUEUED)


def test_a_worker_that_is_detached_loses_its_attempts() -> None:
    site = Site()
    lease = site.leased()

    site.apply(DetachWorker("a", "it must go"), T0)
    site.turn()

    assert (site.status(), site.job(lease.key.job_id).losses) == ("disconnected", 1)
    assert [worker.name for worker in site.scheduler.worker_statuses(T0)] == ["a"]


# Recovery.


def test_a_recovery_keeps_sessions_and_attempts_and_ends_open_polls() -> None:
    site = Site()
    lease = site.leased(slots=2)
    site.poll(slots=2, running=keys(lease))

    site.recover(SECOND, lease)

    assert site.status() == "active"
    assert [each.key for each in site.scheduler.held_by("a")] == [lease.key]
    job = site.submit(make_spec(), SECOND)
    site.turn(SECOND)
    assert site.state(job.id) is State.QUEUED, "no poll is open"
    response = site.say(slots=2, reports=[done(lease)])
    assert response.refused == []
    assert site.state(lease.key.job_id) is State.COMPLETED


def test_a_lease_that_a_recovery_did_not_keep_is_revoked() -> None:
    site = Site()
    lease = site.leased()

    site.recover(SECOND)

    assert site.scheduler.held_by("a") == []
    assert site.say(running=keys(lease)).revoked == [lease.key]


def test_a_disconnected_worker_stays_detached_over_a_recovery() -> None:
    site = Site()
    site.say(is_draining=True)

    site.recover(SECOND)

    assert (site.status(), "a" in site.scheduler._workers) == ("disconnected", False)
    assert site.scheduler.next_wake_at() is None
