"""Attempts that a server started and did not store before it died: the next one continues them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schedo.core.commands import ConfigureQueue, Poll, Reschedule, RunNow
from schedo.core.leases import AttemptResult, Failed, Lease
from schedo.core.model import JobSpec, LeaseKey, PauseScope
from schedo.core.pause_commands import PauseServer
from schedo.core.progress import ProgressUpdate
from schedo.core.states import State
from schedo.core.worker_messages import PollResponse, Progress
from schedo.core.worker_pool import WorkerSpec
from schedo.core.worker_session import RESTART_TIMEOUT_US
from tests.core.builders import HOUR, MILLISECOND, SECOND, make_spec, tries, worker_spec
from tests.core.fake_store import OOPS
from tests.core.remote_site import Site, done, keys, make_poll
from tests.core.succession import (
    JOB_ID,
    KILLED,
    NEXT,
    crashed,
    is_continued,
    succeed,
)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_an_attempt_that_its_worker_lists_continues(is_loaded: bool) -> None:
    site, lease = crashed()
    if is_loaded:
        site.settle(NEXT)

    response = site.report_in(now=NEXT, running=keys(lease))

    assert response.revoked == []
    assert is_continued(site, lease)
    assert site.store.jobs[lease.key.job_id].key == lease.key, "its start is durable now"
    assert site.scheduler.take_notes().adopted == []
    site.report_in(now=NEXT, reports=[done(lease)])
    assert site.state(lease.key.job_id) is State.COMPLETED


def test_the_engine_gets_the_lease_of_an_attempt_that_continues() -> None:
    site, lease = crashed()

    site.apply(Poll(99, make_poll(running=keys(lease))), NEXT)

    assert [each.key for each in site.scheduler.take_notes().adopted] == [lease.key]


def test_a_result_of_an_attempt_whose_start_is_not_stored_counts() -> None:
    site, lease = crashed()

    response = site.report_in(now=NEXT, reports=[done(lease)], running=keys(lease))

    assert (response.refused, response.revoked) == ([], [])
    job = site.job(lease.key.job_id)
    assert (job.state, job.attempt, job.result) == (State.COMPLETED, 1, b"1")


def test_a_repetition_of_such_a_result_counts_once() -> None:
    site, lease = crashed(make_spec(retry=tries(3)))
    failed = AttemptResult(lease.key, Failed(OOPS))

    site.report_in(now=NEXT, reports=[failed])
    response = site.report_in(now=NEXT + SECOND, reports=[failed])

    assert response.refused == []
    assert site.job(lease.key.job_id).failures == 1


def test_a_second_attempt_continues_after_a_stored_first_one() -> None:
    site = Site()
    first = site.leased(now=0)
    site.report_in(now=0, reports=[AttemptResult(first.key, Failed(OOPS))])
    site.apply(RunNow(first.key.job_id), 0)
    site.round(0)
    site.apply(Poll(99, make_poll(max_leases=1)), 0)
    site.tick(0)
    [second] = site.response(99).leases
    succeed(site)

    site.report_in(now=NEXT, running=keys(second))

    assert second.key.attempt == 2
    assert is_continued(site, second)


def test_the_progress_in_the_same_request_is_kept() -> None:
    site, lease = crashed()
    progress = Progress(lease.key, ProgressUpdate(0.5))

    site.apply(Poll(99, make_poll(running=keys(lease), progress=[progress])), NEXT)

    assert site.scheduler.take_notes().progress == [progress]


def test_an_attempt_that_continues_takes_a_slot_of_its_worker_and_its_queue() -> None:
    site, lease = crashed()
    site.report_in(now=NEXT, running=keys(lease))
    site.submit(make_spec(), NEXT)

    assert site.poll_at_once(now=NEXT, running=keys(lease)).leases == []
    assert site.scheduler.queue("default").running == 1


def test_an_attempt_that_continues_and_is_not_listed_any_more_is_lost() -> None:
    site, lease = crashed()
    site.report_in(now=NEXT, running=keys(lease))

    site.poll_at_once(now=NEXT + SECOND, running=frozenset())

    assert site.job(lease.key.job_id).losses == 1


def test_an_attempt_continues_after_a_recovery_of_the_next_server() -> None:
    site, lease = crashed()
    site.report_in("b", now=NEXT)
    site.recover(NEXT)

    site.report_in(now=NEXT + SECOND, running=keys(lease))

    assert is_continued(site, lease)


def test_an_attempt_continues_after_a_step_of_the_clock() -> None:
    site, lease = crashed()
    site.settle(NEXT)
    site.follow_clock(HOUR)

    site.report_in(now=NEXT + HOUR, running=keys(lease))

    assert is_continued(site, lease)


def test_the_result_of_one_attempt_makes_room_for_another_one_of_a_full_queue() -> None:
    site = Site()
    site.apply(ConfigureQueue("default", {"concurrency": 1}), 0)
    first = site.leased(now=0)
    second_id = site.submit(make_spec(), 0).id
    site.apply(Poll(99, make_poll(reports=[done(first)])), 0)
    site.apply(Poll(100, make_poll(max_leases=1)), 0)
    site.tick(0)
    [second] = site.response(100).leases
    assert second.key.job_id == second_id
    site.restart(KILLED, first)

    site.report_in(now=NEXT, reports=[done(first)], running=keys(second))

    assert site.state(first.key.job_id) is State.COMPLETED
    assert is_continued(site, second)


# Attempts that the next server must not continue.


def start_anew(site: Site, lease: Lease) -> None:
    site.attach(worker_spec("local"))
    site.settle(NEXT)


def cancel(site: Site, lease: Lease) -> None:
    site.cancel(lease.key.job_id, NEXT)


def move_to_later(site: Site, lease: Lease) -> None:
    site.apply(Reschedule(lease.key.job_id, NEXT + HOUR), NEXT)


def pause_queue(site: Site, lease: Lease) -> None:
    site.apply(ConfigureQueue("default", {"paused": True}), NEXT)


def pause_server(site: Site, lease: Lease) -> None:
    site.apply(PauseServer((PauseScope.STARTS,)), NEXT)


def fill_queue(site: Site, lease: Lease) -> None:
    site.apply(ConfigureQueue("default", {"concurrency": 1}), NEXT)
    site.attach(worker_spec("local", tasks=frozenset({"other"})))
    site.submit(make_spec("other"), NEXT)
    site.settle(NEXT)


DECISIONS = (start_anew, cancel, move_to_later, pause_queue, pause_server, fill_queue)


@pytest.mark.parametrize("decide", DECISIONS)
@pytest.mark.parametrize("has_ended", [False, True])
def test_what_the_next_server_has_decided_meanwhile_holds(
    decide: Callable[[Site, Lease], None], has_ended: bool
) -> None:
    site, lease = crashed()
    decide(site, lease)
    state = site.state(lease.key.job_id)

    if has_ended:
        response = site.report_in(now=NEXT, reports=[done(lease)])
        assert [key for key, _ in response.refused] == [lease.key]
    else:
        response = site.report_in(now=NEXT, running=keys(lease))
        assert response.revoked == [lease.key]

    assert site.state(lease.key.job_id) is state
    assert not is_continued(site, lease)


def invent(site: Site, **fields: Any) -> PollResponse:
    """Let a worker list attempt 1 of the first job under epoch 1, which it never got."""
    changed = {"job_id": JOB_ID, "attempt": 1, "epoch": 1} | {
        name: fields.pop(name) for name in ("job_id", "attempt", "epoch") if name in fields
    }
    key = LeaseKey(**changed)
    now = fields.pop("now", NEXT)
    assert isinstance(now, int)
    return site.report_in("x", now=now, **{"running": frozenset({key})} | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"attempt": 2},
        {"attempt": 0},
        {"epoch": 2},
        {"epoch": 3},
        {"epoch": -1},
        {"job_id": 2 * JOB_ID},
        {"now": KILLED + RESTART_TIMEOUT_US},
        {"spec": WorkerSpec("x", 1, frozenset({"other"}))},
        {"spec": WorkerSpec("x", 1, queues=frozenset({"other"}))},
        {"spec": WorkerSpec("x", 0)},
        {"spec": WorkerSpec("x", 1, durable_starts=True)},
    ],
    ids=str,
)
def test_a_worker_gets_no_job_by_an_attempt_that_it_cannot_have(fields: dict[str, Any]) -> None:
    site = Site()
    job = site.submit(make_spec(), 0)
    assert job.id == JOB_ID
    succeed(site)

    response = invent(site, **fields)

    assert len(response.revoked) == 1
    assert site.state(JOB_ID) is State.QUEUED


@pytest.mark.parametrize(
    "spec",
    [make_spec(at_most_once=True), make_spec(delay_us=KILLED + MILLISECOND)],
    ids=["at most once", "due later"],
)
def test_a_worker_gets_no_job_whose_start_must_be_stored_or_was_not_due(spec: JobSpec) -> None:
    site = Site()
    site.submit(spec, 0)
    succeed(site)

    assert len(invent(site).revoked) == 1


def test_a_worker_gets_no_job_that_the_next_server_has_accepted() -> None:
    site = Site()
    succeed(site)
    job = site.submit(make_spec(), KILLED)

    response = invent(site, job_id=job.id)

    assert len(response.revoked) == 1
    assert site.state(job.id) is State.QUEUED


def test_a_worker_continues_no_more_attempts_than_it_has_slots() -> None:
    site = Site()
    for _ in range(3):
        site.submit(make_spec(), 0)
    succeed(site)
    running = frozenset(LeaseKey(number * JOB_ID, 1, 1) for number in (1, 2, 3))

    response = site.report_in("x", now=NEXT, slots=2, running=running)

    assert len(response.revoked) == 1
    assert site.scheduler.queue("default").running == 2


def test_of_two_workers_with_the_same_attempt_the_first_one_continues_it() -> None:
    site, lease = crashed()
    site.report_in("a", now=NEXT, running=keys(lease))

    response = site.report_in("b", now=NEXT, running=keys(lease))

    assert response.revoked == [lease.key]
    assert is_continued(site, lease)


def test_a_server_that_succeeds_none_continues_no_attempt() -> None:
    site = Site()
    site.submit(make_spec(), 0)

    assert len(invent(site, epoch=0).revoked) == 1
