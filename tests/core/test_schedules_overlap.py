"""The overlap policies: a schedule fires while a run of it is unfinished."""

from __future__ import annotations

import pytest

from schedo.core.commands import (
    Cancel,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    RetryJob,
    TriggerSchedule,
)
from schedo.core.leases import Stopped
from schedo.core.limits import ACTIVE_RUNS_KNOWN_MAX
from schedo.core.model import Catchup, Decision, Overlap, Trigger
from schedo.core.states import State
from tests.core.builders import HOUR, MINUTE, SECOND, every, make_spec, tries
from tests.core.scheduled import kinds, made, states
from tests.core.server import Server


def test_the_policy_skip_makes_no_run_while_another_is_unfinished() -> None:
    server = Server()
    schedule = made(server)
    server.settle(MINUTE)
    [first] = server.runs(schedule.id)

    server.settle(2 * MINUTE)
    assert len(server.runs(schedule.id)) == 1
    assert kinds(server, schedule) == [Decision.FIRED, Decision.SKIPPED_OVERLAP]

    server.complete(first.id, 150 * SECOND)
    server.settle(3 * MINUTE)
    assert states(server, schedule) == [State.COMPLETED, State.RUNNING]
    assert server.store.schedules[schedule.id].overlap_skipped == 1


@pytest.mark.parametrize("state", [State.QUEUED, State.RETRYING])
def test_a_run_that_has_not_started_counts_as_unfinished(state: State) -> None:
    server = Server()
    schedule = made(server, rule=every(5, end_at=10 * SECOND), job=make_spec(retry=tries(5)))
    if state is State.QUEUED:
        server.scheduler._workers.close("w")
    server.settle(5 * SECOND)
    if state is State.RETRYING:
        server.send(PauseSchedule(schedule.name), 5 * SECOND)  # lifts the bound of retries
        server.fail(server.runs(schedule.id)[0].id, 5 * SECOND)
        server.send(ResumeSchedule(schedule.name, 5 * SECOND), 5 * SECOND)
    assert states(server, schedule) == [state]

    server.settle(10 * SECOND)

    assert len(server.runs(schedule.id)) == 1
    assert kinds(server, schedule)[-1] is Decision.SKIPPED_OVERLAP


def test_the_policy_allow_starts_runs_beside_each_other() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.ALLOW)

    for minute in (1, 2, 3):
        server.settle(minute * MINUTE)

    assert states(server, schedule) == [State.RUNNING] * 3


def test_the_policy_buffer_one_blocks_one_run_and_skips_the_others() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.BUFFER_ONE)
    for minute in (1, 2, 3):
        server.settle(minute * MINUTE)

    assert states(server, schedule) == [State.RUNNING, State.BLOCKED]
    assert kinds(server, schedule) == [
        Decision.FIRED,
        Decision.BUFFERED,
        Decision.SKIPPED_OVERLAP,
    ]
    assert server.store.schedules[schedule.id].buffered == 1


def test_a_buffered_run_starts_when_the_run_before_it_has_ended() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.BUFFER_ONE)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    first, second = server.runs(schedule.id)

    server.complete(first.id, 150 * SECOND)
    assert server.run(150 * SECOND) == [second.id]

    server.settle(3 * MINUTE)
    assert states(server, schedule) == [State.COMPLETED, State.RUNNING, State.BLOCKED]


def test_a_buffered_run_with_jitter_waits_for_its_own_instant() -> None:
    server = Server()
    rule = every(60, jitter_us=50 * SECOND)
    schedule = made(server, rule=rule, overlap=Overlap.BUFFER_ONE)
    server.settle(119 * SECOND)
    server.settle(2 * MINUTE)
    first, second = server.runs(schedule.id)
    assert second.due_at > 121 * SECOND

    server.complete(first.id, 121 * SECOND)
    server.settle(121 * SECOND)
    assert states(server, schedule) == [State.COMPLETED, State.SCHEDULED]
    server.settle(second.due_at)

    assert states(server, schedule) == [State.COMPLETED, State.RUNNING]


def test_a_cancelled_buffered_run_lets_another_run_be_buffered() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.BUFFER_ONE)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)

    server.cancel(server.runs(schedule.id)[1].id, 150 * SECOND)
    server.settle(3 * MINUTE)

    assert states(server, schedule) == [State.RUNNING, State.CANCELLED, State.BLOCKED]


def test_a_buffered_run_cannot_be_run_early() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.BUFFER_ONE)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    blocked = server.runs(schedule.id)[1]

    assert server.scheduler.explain(blocked).reasons == [
        "an earlier run of its schedule is not finished"
    ]
    assert server.scheduler._schedule_table.find("s") is schedule
    assert schedule.blocked == blocked.id


def test_the_policy_cancel_other_stops_the_running_run_and_starts_after_it() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.CANCEL_OTHER)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    first, second = server.runs(schedule.id)

    assert [stop.key.job_id for stop in server.stops] == [first.id]
    assert server.state(second.id) is State.BLOCKED
    server.report(first.id, Stopped(), 121 * SECOND)
    assert server.run(121 * SECOND) == [second.id]
    assert server.state(first.id) is State.CANCELLED


def test_the_policy_cancel_other_replaces_a_run_that_has_not_started_at_once() -> None:
    server = Server(slots=0)
    schedule = made(server, overlap=Overlap.CANCEL_OTHER)
    server.settle(MINUTE)

    server.settle(2 * MINUTE)

    assert states(server, schedule) == [State.CANCELLED, State.QUEUED]


def test_the_policy_cancel_other_replaces_the_run_that_was_blocked_behind_a_slow_one() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.CANCEL_OTHER)
    for minute in (1, 2, 3):
        server.settle(minute * MINUTE)
    first, second, third = server.runs(schedule.id)

    assert states(server, schedule) == [State.RUNNING, State.CANCELLED, State.BLOCKED]
    server.report(first.id, Stopped(), 181 * SECOND)
    assert server.run(181 * SECOND) == [third.id]
    assert server.state(second.id) is State.CANCELLED


def test_runs_of_the_catchup_policy_all_may_overlap() -> None:
    server = Server()
    schedule = made(server, catchup=Catchup.ALL, rule=every(60, end_at=3 * MINUTE))

    server.settle(HOUR)

    assert states(server, schedule) == [State.RUNNING] * 3


@pytest.mark.parametrize(
    ("overlap", "made_by_late", "decision", "end"),
    [
        (Overlap.SKIP, 0, Decision.SKIPPED_OVERLAP, [State.RUNNING] * 16),
        (Overlap.BUFFER_ONE, 1, Decision.SKIPPED_OVERLAP, [State.RUNNING] * 16 + [State.BLOCKED]),
        (Overlap.CANCEL_OTHER, 60, Decision.FIRED, [State.CANCELLED] * 75 + [State.RUNNING]),
        (Overlap.ALLOW, 60, Decision.FIRED, [State.RUNNING] * 76),
    ],
)
def test_only_caught_up_runs_ignore_the_overlap_policy_and_late_runs_obey_it(
    overlap: Overlap, made_by_late: int, decision: Decision, end: list[State]
) -> None:
    server = Server(slots=100)
    schedule = made(server, catchup=Catchup.ALL, rule=every(1), overlap=overlap)

    server.settle(76 * SECOND)

    triggers = [run.trigger for run in server.runs(schedule.id)]
    assert triggers == [Trigger.CATCHUP] * 16 + [Trigger.SCHEDULE] * made_by_late
    assert states(server, schedule) == end
    decided = kinds(server, schedule)
    assert (len(decided), decided[-1]) == (76, decision)


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.BUFFER_ONE])
def test_late_runs_of_a_schedule_resumed_from_an_earlier_instant_obey_the_overlap_policy(
    overlap: Overlap,
) -> None:
    server = Server()
    schedule = made(server, catchup=Catchup.ALL, overlap=overlap)
    server.send(PauseSchedule(schedule.name), SECOND)

    server.send(ResumeSchedule(schedule.name, HOUR - 3 * MINUTE), HOUR)
    server.settle(HOUR)

    blocked = [State.BLOCKED] if overlap is Overlap.BUFFER_ONE else []
    assert states(server, schedule) == [State.RUNNING] * 3 + blocked


def test_a_failed_run_is_retried_only_before_the_next_fire() -> None:
    server = Server()
    schedule = made(server, job=make_spec(retry=tries(5)))
    server.settle(MINUTE)
    [run] = server.runs(schedule.id)

    server.fail(run.id, 109 * SECOND)
    assert server.state(run.id) is State.RETRYING
    server.settle(119 * SECOND)
    server.fail(run.id, 119 * SECOND)
    assert server.state(run.id) is State.FAILED


@pytest.mark.parametrize("way", ["allow", "paused", "deleted"])
def test_a_run_is_retried_past_the_next_fire_if_that_fire_makes_no_run(way: str) -> None:
    server = Server()
    overlap = Overlap.ALLOW if way == "allow" else Overlap.SKIP
    schedule = made(server, job=make_spec(retry=tries(5)), overlap=overlap)
    server.settle(MINUTE)
    if way == "paused":
        server.send(PauseSchedule(schedule.name), MINUTE)
    elif way == "deleted":
        server.send(DeleteSchedule(schedule.name), MINUTE)

    server.fail(server.runs(schedule.id)[0].id, 119 * SECOND)

    assert states(server, schedule) == [State.RETRYING]


def test_a_manually_retried_run_is_active_again() -> None:
    server = Server()
    schedule = made(server, job=make_spec(retry=tries(1)))
    server.settle(MINUTE)
    [run] = server.runs(schedule.id)
    server.fail(run.id, 61 * SECOND)
    server.change(RetryJob(run.id), 62 * SECOND)

    server.settle(2 * MINUTE)

    assert kinds(server, schedule)[-1] is Decision.SKIPPED_OVERLAP


def test_a_schedule_tracks_a_bounded_number_of_its_runs() -> None:
    server = Server(slots=0, capacity=5_000)
    schedule = made(server, overlap=Overlap.ALLOW)
    for _ in range(ACTIVE_RUNS_KNOWN_MAX + 5):
        server.send(TriggerSchedule(schedule.name), SECOND)

    assert len(schedule.active) == 1_000


def test_an_untracked_buffered_run_starts_when_the_tracked_runs_have_ended() -> None:
    server = Server(slots=0, capacity=5_000)
    schedule = made(server, overlap=Overlap.ALLOW)
    for _ in range(ACTIVE_RUNS_KNOWN_MAX):
        server.send(TriggerSchedule(schedule.name), SECOND)
    blocked = server.trigger("s", SECOND, Overlap.BUFFER_ONE).job
    assert blocked is not None
    assert blocked.id not in schedule.active

    for job_id in list(schedule.active):
        server.cancel(job_id, SECOND)
    server.settle(SECOND)

    assert server.state(blocked.id) is State.QUEUED


def test_an_untracked_run_ends_like_any_other() -> None:
    server = Server(slots=0, capacity=5_000)
    schedule = made(server, overlap=Overlap.ALLOW)
    for _ in range(ACTIVE_RUNS_KNOWN_MAX + 1):
        last = server.trigger("s", SECOND).job
    assert last is not None

    server.cancel(last.id, SECOND)

    assert server.state(last.id) is State.CANCELLED
    assert len(schedule.active) == 1_000


def test_the_policy_cancel_other_does_not_change_a_run_that_has_ended() -> None:
    server = Server(capacity=1, slots=0)
    schedule = made(server, overlap=Overlap.CANCEL_OTHER)
    server.submit_all([make_spec() for _ in range(3)], SECOND)  # the ready index is full
    server.settle(MINUTE)
    [first] = server.runs(schedule.id)
    assert server.scheduler._jobs.find(first.id) is None
    server.send(Cancel(first.id), MINUTE)

    server.tick(2 * MINUTE)
    server.settle(2 * MINUTE)

    assert states(server, schedule) == [State.CANCELLED, State.QUEUED]
