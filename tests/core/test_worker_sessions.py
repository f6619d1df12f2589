"""Worker sessions: what a request does, and when it is answered."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core.commands import (
    Cancel,
    CompletePolls,
    DetachWorker,
    HoldLease,
    Poll,
    PollBroken,
    TransferAttempts,
)
from schedo.core.leases import Snoozed, StopReason
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX
from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.core.states import State
from schedo.core.worker_messages import Progress
from tests.core.builders import HOUR, SECOND, T0, make_spec
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


def test_a_poll_gets_an_empty_response_when_its_wait_has_passed() -> None:
    site = Site()
    poll = site.poll(wait_s=10.0)

    site.run_until(10 * SECOND - 1)
    assert poll not in site.replies
    site.run_until(10 * SECOND)

    assert site.response(poll).leases == []


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "not durable"])
def test_a_poll_waits_as_long_when_the_clock_is_set(step: int, is_durable: bool) -> None:
    site = Site()
    lease = site.leased()
    site.apply(Poll(99, make_poll(reports=[done(lease)], max_leases=None, wait_s=10.0)), T0)
    if is_durable:
        site.turn(T0)

    site.follow_clock(step)
    site.turn(step)

    site.run_until(step + 10 * SECOND - 1)
    assert 99 not in site.replies
    site.run_until(step + 10 * SECOND)
    assert site.response(99).leases == []


def test_a_report_gets_its_response_at_once_and_leaves_the_poll_open() -> None:
    site = Site()
    poll = site.poll()

    assert site.report_in().leases == []

    assert poll not in site.replies


def test_a_newer_poll_gets_the_leases_and_the_older_one_an_empty_response() -> None:
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
    site.report_in(reports=[done(lease)])
    site.apply(Poll(99, make_poll(reports=[done(lease)])), T0)
    site.tick(T0)

    assert 99 not in site.replies
    assert site.scheduler.awaits_commit


def test_a_response_confirms_results_and_carries_the_next_lease() -> None:
    site = Site()
    lease = site.leased()
    site.submit(make_spec())

    [following] = site.poll_at_once(reports=[done(lease)]).leases

    assert following.key.job_id != lease.key.job_id


def test_a_lease_does_not_wait_for_the_commit_of_a_result() -> None:
    site = Site()
    lease = site.leased()
    job = site.submit(make_spec())
    site.apply(Poll(99, make_poll(reports=[done(lease)], max_leases=1, wait_s=30.0)), T0)

    site.tick(T0)
    assert site.state(job.id) is State.QUEUED, "another worker may take it meanwhile"
    site.round(T0)
    site.tick(T0)

    assert [each.key.job_id for each in site.response(99).leases] == [job.id]


def test_a_poll_that_breaks_during_the_commit_of_its_results_gets_no_lease() -> None:
    site = Site()
    lease = site.leased()
    job = site.submit(make_spec())
    site.apply(Poll(99, make_poll(reports=[done(lease)], max_leases=1, wait_s=30.0)), T0)
    site.tick(T0)
    site.apply(PollBroken(99, "a"), T0)

    site.turn()

    assert (site.state(lease.key.job_id), site.state(job.id)) == (State.COMPLETED, State.QUEUED)


@pytest.mark.parametrize("fields", [{"session": "s2"}, {"is_draining": True}])
def test_a_process_that_is_replaced_or_drains_gets_no_lease_after_its_commit(
    fields: dict[str, Any],
) -> None:
    site = Site()
    lease = site.leased(slots=2)
    job = site.submit(make_spec())
    poll = make_poll(slots=2, reports=[done(lease)], max_leases=2, wait_s=30.0)
    site.apply(Poll(99, poll), T0)

    site.report_in(slots=2, **fields)

    assert site.response(99).leases == []
    assert site.state(job.id) is State.QUEUED


def test_a_stop_request_is_in_each_response_and_completes_one_poll() -> None:
    site = Site()
    lease = site.leased(slots=2)
    poll = site.poll(slots=2, running=keys(lease))

    site.apply(Cancel(lease.key.job_id), T0)
    site.turn()

    [stop] = site.response(poll).stops
    assert (stop.key, stop.reason) == (lease.key, StopReason.CANCEL)
    assert site.poll(slots=2, running=keys(lease)) not in site.replies
    assert site.report_in(slots=2).stops == [stop]


def test_a_stop_request_for_an_unknown_worker_is_ignored() -> None:
    site = Site(local_slots=1)
    job = site.submit(make_spec())
    site.turn()

    site.apply(Cancel(job.id), T0)
    site.turn()

    assert site.state(job.id) is State.RUNNING


def test_a_shutdown_completes_all_open_polls() -> None:
    site = Site()
    polls = [site.poll("a"), site.poll("b")]

    site.apply(CompletePolls(), T0)
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


# Large responses.

STORED = b'"' + b"x" * PAYLOAD_INLINE_BYTES_MAX + b'"'  # memory does not keep it


def test_a_response_has_a_bounded_number_of_stored_payloads_and_the_next_one_continues() -> None:
    site = Site()
    site.report_in(slots=10)
    site.submit_all([make_spec(payload=STORED)] * 10)

    sizes = [len(site.poll_at_once(slots=10).leases) for _ in range(5)]

    assert sizes == [4, 4, 2, 0, 0]


def test_small_payloads_count_by_their_sizes() -> None:
    site = Site()
    site.report_in(slots=100)
    site.submit_all([make_spec(payload=b'"x"')] * 100)

    assert len(site.poll_at_once(slots=100).leases) == 100


def test_leases_that_wait_for_the_next_poll_count_toward_its_maximum() -> None:
    site = Site()
    site.report_in(slots=10)
    site.submit_all([make_spec(payload=STORED)] * 10)
    site.poll_at_once(slots=10, max_leases=5)

    assert len(site.poll_at_once(slots=10, max_leases=1).leases) == 1
    assert len(site.poll_at_once(slots=10, max_leases=5).leases) == 4


def test_leases_that_wait_for_the_next_poll_end_with_the_session() -> None:
    site = Site()
    site.report_in(slots=5)
    for _ in range(5):
        last = site.submit(make_spec(payload=STORED))
    site.poll_at_once(slots=5)
    assert site.state(last.id) is State.RUNNING

    site.report_in(slots=5, is_draining=True)

    assert site.state(last.id) is State.QUEUED


def test_a_lease_whose_payload_cannot_be_read_runs_again_later() -> None:
    site = Site()
    lease = site.leased()

    site.apply(PollBroken(99, "a", [lease.key], Snoozed(SECOND)), T0)
    site.turn()

    assert site.poll_at_once().leases == []
    assert [each.key.job_id for each in site.poll_at_once(now=SECOND).leases] == [lease.key.job_id]


def test_a_transfer_leaves_remote_workers_their_attempts() -> None:
    site = Site(local_slots=1)
    local = site.submit(make_spec())
    site.turn()
    site.poll()
    remote = site.submit(make_spec())
    site.turn()

    site.apply(TransferAttempts("handover-7"), T0)

    assert [site.job(job.id).worker for job in (local, remote)] == ["handover-7", "a"]


def test_the_poll_of_one_worker_is_completed_alone() -> None:
    site = Site()
    polls = [site.poll(name) for name in ("a", "b")]

    site.apply(CompletePolls("a"), T0)
    site.apply(CompletePolls("unknown"), T0)
    site.turn()

    assert [poll in site.replies for poll in polls] == [True, False]
