"""Expectations of schedules and of work outside: when they are missed, and when they are met."""

from __future__ import annotations

import json

import pytest

from schedo.core.commands import (
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
)
from schedo.core.expectations import Expectation
from schedo.core.ids import render_id
from schedo.core.limits import EARLY_RUNS_KEPT
from schedo.core.model import (
    Catchup,
    Decision,
    Expect,
    JobSpec,
    Options,
    Overlap,
    PauseScope,
    Retry,
    Rule,
)
from schedo.core.pause_commands import PauseServer
from tests.core.builders import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    every,
    make_schedule_spec,
    worker_spec,
)
from tests.core.expecting import (
    GIVE_UP,
    MISSED,
    OK,
    WITHIN,
    decisions,
    event_jobs,
    facts,
    of,
    run_through,
    tasks,
)
from tests.core.scheduled import made
from tests.core.server import Server

# The runs of a schedule.


def test_a_schedule_whose_runs_complete_in_time_is_never_missed() -> None:
    server = Server()
    schedule = made(server, expect=WITHIN)

    for number in range(1, 60):
        run_through(server, number * MINUTE)
        server.settle(number * MINUTE + 59 * SECOND)

    assert event_jobs(server) == []
    assert decisions(server, schedule.id) == []
    assert of(server, schedule.id).through == 59 * MINUTE


def test_a_run_that_has_not_completed_is_missed_at_its_limit_and_back_when_one_completes() -> None:
    server = Server()
    schedule = made(server, expect=WITHIN)
    (run,) = server.run(MINUTE)
    assert server.scheduler.next_wake_at() == MINUTE + 30 * SECOND

    server.settle(MINUTE + 30 * SECOND - 1)
    assert of(server, schedule.id).state is OK
    server.settle(MINUTE + 30 * SECOND)
    assert of(server, schedule.id).state is MISSED
    server.complete(run, MINUTE + 40 * SECOND)

    assert of(server, schedule.id).state is OK
    miss, back = event_jobs(server)
    assert (miss.task, back.task) == ("alert", "all-clear")
    assert json.loads(miss.payload or b"")["a"] == 1
    assert facts(miss) == {
        "event": "missed",
        "at": "1970-01-01T00:01:30.000000Z",
        "schedule": "s",
        "message": "no run has completed within 30 s after 1970-01-01T00:01:00.000000Z",
        "scheduled_for": "1970-01-01T00:01:00.000000Z",
    }
    assert facts(back) == {
        "event": "back",
        "at": "1970-01-01T00:01:40.000000Z",
        "schedule": "s",
        "missed_since": "1970-01-01T00:01:30.000000Z",
        "job": render_id(run),
    }
    assert decisions(server, schedule.id) == [
        (Decision.EXPECTATION_MISSED, MINUTE, 1),
        (Decision.EXPECTATION_BACK, MINUTE, 1),
    ]
    assert server.scheduler.take_notes().warnings == [
        "the expectation of the schedule 's' is missed: no run has completed within 30 s after"
        " 1970-01-01T00:01:00.000000Z",
        "the expectation of the schedule 's' is met again",
    ]
    assert server.scheduler.take_notes().warnings == []


def test_each_further_miss_leaves_a_decision_but_no_job() -> None:
    server = Server(slots=0)
    schedule = made(server, expect=WITHIN, overlap=Overlap.ALLOW)

    for number in (1, 2, 3):
        server.settle(number * MINUTE + 30 * SECOND)

    assert tasks(server) == ["alert"]
    assert [instant for _, instant, _ in decisions(server, schedule.id)] == [
        MINUTE,
        2 * MINUTE,
        3 * MINUTE,
    ]
    assert of(server, schedule.id).missed == 3


@pytest.mark.parametrize("reason", ["paused", "server paused", "overlap", "failed", "no worker"])
def test_whatever_prevents_a_run_is_noticed_at_the_limit(reason: str) -> None:
    server = Server(slots=0 if reason == "no worker" else 10)
    options = Options(retry=Retry(max_attempts=1))
    job = JobSpec("work", options=options)
    schedule = made(server, expect=WITHIN, job=job)
    if reason == "paused":
        server.apply(PauseSchedule("s"), 2)
    if reason == "server paused":
        server.apply(PauseServer([PauseScope.SCHEDULES]), 2)
    if reason == "overlap":
        server.trigger("s", 2)
        server.run(2)
    running = server.run(MINUTE)
    if reason == "failed":
        server.report(running[0], GIVE_UP, MINUTE)

    server.settle(MINUTE + 30 * SECOND - 1)
    assert tasks(server) == []
    server.settle(MINUTE + 30 * SECOND)

    assert tasks(server) == ["alert"]
    assert decisions(server, schedule.id) == [(Decision.EXPECTATION_MISSED, MINUTE, 1)]


def test_a_miss_while_no_server_ran_is_noticed_at_the_start_as_one_decision() -> None:
    server = Server()
    schedule = made(server, expect=WITHIN)
    server.run(MINUTE)
    server.round(MINUTE)

    server.crash(10 * MINUTE)
    server.settle(10 * MINUTE)

    assert tasks(server) == ["alert"]
    assert decisions(server, schedule.id) == [(Decision.EXPECTATION_MISSED, 9 * MINUTE, 9)]


def test_a_crash_neither_loses_nor_doubles_the_jobs_of_break_and_return() -> None:
    server = Server()
    schedule = made(server, expect=WITHIN)
    server.run(MINUTE)
    server.round(MINUTE)
    limit = MINUTE + 30 * SECOND

    server.tick(limit)
    server.crash(limit)  # before the commit of the break
    server.settle(limit)
    server.crash(limit + 1)  # after it
    server.settle(limit + 1)
    assert tasks(server) == ["alert"]

    server.attach(worker_spec())
    run = server.runs(schedule.id)[0].id
    server.run(limit + 2)
    server.complete(run, limit + 3)
    server.crash(limit + 4)  # the result is lost with the return
    assert tasks(server) == ["alert"]
    server.attach(worker_spec())
    server.leases.clear()
    server.run(limit + 5)
    server.complete(run, limit + 6)
    server.round(limit + 6)
    server.crash(limit + 7)
    server.settle(limit + 7)

    assert tasks(server) == ["alert", "all-clear"]
    assert of(server, schedule.id).state is OK


def test_a_run_may_complete_before_the_one_of_an_earlier_instant() -> None:
    server = Server()
    expect = Expect(within_us=150 * SECOND)
    schedule = made(server, expect=expect, overlap=Overlap.ALLOW)
    (first,) = server.run(MINUTE)
    (second,) = set(server.run(2 * MINUTE)) - {first}

    server.complete(second, 2 * MINUTE + SECOND)
    assert of(server, schedule.id).early == (2 * MINUTE,)
    server.complete(first, 3 * MINUTE - SECOND)

    assert (of(server, schedule.id).through, of(server, schedule.id).early) == (2 * MINUTE, ())


def test_an_instant_between_completed_ones_is_missed_alone() -> None:
    server = Server()
    expect = Expect(within_us=150 * SECOND)
    schedule = made(server, expect=expect, overlap=Overlap.ALLOW)
    (first,) = server.run(MINUTE)
    for number in (2, 3):
        for run in set(server.run(number * MINUTE)) - {first}:
            server.complete(run, number * MINUTE)

    server.settle(MINUTE + 150 * SECOND)

    assert decisions(server, schedule.id) == [(Decision.EXPECTATION_MISSED, MINUTE, 1)]
    assert of(server, schedule.id).through == 3 * MINUTE


def test_of_several_overdue_instants_the_last_one_that_was_missed_is_named() -> None:
    server = Server()
    schedule = made(server, expect=Expect(within_us=10 * MINUTE), overlap=Overlap.ALLOW)
    server.run(MINUTE)
    server.run(2 * MINUTE)
    server.complete(max(server.run(3 * MINUTE)), 3 * MINUTE)
    server.round(3 * MINUTE)

    server.crash(13 * MINUTE)
    server.settle(13 * MINUTE)

    assert decisions(server, schedule.id) == [(Decision.EXPECTATION_MISSED, 2 * MINUTE, 2)]


def test_early_runs_are_bounded() -> None:
    expectation = Expectation(1, "s", True, every(1), Expect(within_us=DAY), 0, 0, 0, 0)

    for number in range(2, 3 * EARLY_RUNS_KEPT):
        expectation.complete(number * SECOND)

    assert len(expectation.early) == EARLY_RUNS_KEPT
    assert expectation.through == 0


def test_a_caught_up_run_stands_for_the_instants_that_it_replaces() -> None:
    server = Server()
    schedule = made(server, expect=Expect(within_us=HOUR), catchup=Catchup.LATEST)

    server.crash(30 * MINUTE)
    server.attach(worker_spec())
    for run in server.run(30 * MINUTE):
        server.complete(run, 30 * MINUTE)

    assert of(server, schedule.id).through == 30 * MINUTE
    server.settle(30 * MINUTE + SECOND)
    assert decisions(server, schedule.id) == []


def test_a_late_run_stands_for_the_late_instants_beyond_the_maximum() -> None:
    server = Server()
    expect = Expect(within_us=MINUTE)
    schedule = made(server, rule=every(10), expect=expect, catchup_max=1)

    server.crash(50 * SECOND)
    server.attach(worker_spec())
    (run,) = server.run(50 * SECOND)
    server.complete(run, 50 * SECOND)

    assert server.job(run).missed_count == 4
    assert of(server, schedule.id).through == 50 * SECOND


def test_a_caught_up_run_stands_for_no_earlier_run_that_has_failed() -> None:
    server = Server()
    schedule = made(server, expect=Expect(within_us=10 * MINUTE), overlap=Overlap.ALLOW)
    (first,) = server.run(MINUTE)
    server.report(first, GIVE_UP, MINUTE)
    server.round(MINUTE)

    server.crash(330 * SECOND)
    server.attach(worker_spec())
    (late,) = server.run(330 * SECOND)
    server.complete(late, 330 * SECOND)
    server.settle(11 * MINUTE)

    assert server.job(late).missed_count == 3
    assert decisions(server, schedule.id) == [(Decision.EXPECTATION_MISSED, MINUTE, 1)]


def test_a_caught_up_run_stands_for_no_instant_before_the_catchup_window() -> None:
    server = Server()
    schedule = made(
        server, expect=Expect(within_us=HOUR), catchup_window_us=5 * MINUTE, overlap=Overlap.ALLOW
    )

    server.crash(30 * MINUTE)
    server.attach(worker_spec())
    for run in server.run(30 * MINUTE):
        server.complete(run, 30 * MINUTE)
    server.settle(HOUR + 24 * MINUTE)

    assert decisions(server, schedule.id) == [(Decision.EXPECTATION_MISSED, 24 * MINUTE, 24)]


def test_a_manual_run_ends_a_miss_but_is_not_the_run_of_an_instant() -> None:
    server = Server()
    schedule = made(server, expect=WITHIN)
    server.apply(PauseSchedule("s"), 2)
    server.settle(MINUTE + 30 * SECOND)

    server.trigger("s", 100 * SECOND)
    for run in server.run(100 * SECOND):
        server.complete(run, 100 * SECOND)

    assert of(server, schedule.id).state is OK
    server.settle(2 * MINUTE + 30 * SECOND)
    assert of(server, schedule.id).state is MISSED


def test_an_expectation_is_followed_from_when_it_is_put() -> None:
    server = Server(slots=0)
    schedule = made(server)
    server.settle(10 * MINUTE)

    server.put(make_schedule_spec(expect=WITHIN), 10 * MINUTE + 1)
    server.settle(11 * MINUTE)

    assert decisions(server, schedule.id) == []
    assert of(server, schedule.id).limit() == 11 * MINUTE + 30 * SECOND


def test_another_limit_applies_at_once_and_another_rule_from_now_on() -> None:
    server = Server(slots=0)
    schedule = made(server, expect=WITHIN)
    server.settle(MINUTE)

    server.put(make_schedule_spec(expect=Expect(within_us=10 * SECOND)), MINUTE + SECOND)
    assert of(server, schedule.id).limit() == MINUTE + 10 * SECOND
    server.put(make_schedule_spec(rule=every(600), expect=WITHIN), MINUTE + 2 * SECOND)

    assert of(server, schedule.id).limit() == 10 * MINUTE + 30 * SECOND


def test_a_limit_that_is_added_holds_from_then_on() -> None:
    server = Server(slots=0)
    schedule = made(server, expect=Expect(max_duration_us=SECOND))
    server.settle(10 * MINUTE)
    later = 10 * MINUTE + SECOND

    server.put(make_schedule_spec(expect=WITHIN), later)
    server.settle(later)

    assert tasks(server) == []
    assert of(server, schedule.id).limit() == 11 * MINUTE + 30 * SECOND


@pytest.mark.parametrize("how", ["put", "delete"])
def test_an_expectation_that_is_removed_is_followed_no_longer(how: str) -> None:
    server = Server(slots=0)
    schedule = made(server, expect=WITHIN)
    server.round(2)

    if how == "put":
        server.put(make_schedule_spec(), 3)
    else:
        server.apply(DeleteSchedule("s"), 3)
    server.round(3)
    server.crash(4)
    server.settle(10 * MINUTE)

    assert server.scheduler.expectations.find(schedule.id) is None
    assert tasks(server) == []


def test_a_schedule_that_has_ended_is_missed_no_more() -> None:
    server = Server()
    schedule = made(server, rule=Rule(at=MINUTE), expect=WITHIN)

    run_through(server, MINUTE)

    assert of(server, schedule.id).limit() is None


def test_a_resumed_schedule_is_met_again_with_its_next_completed_run() -> None:
    server = Server()
    made(server, expect=WITHIN)
    server.apply(PauseSchedule("s"), 2)
    server.settle(5 * MINUTE)
    server.apply(ResumeSchedule("s"), 5 * MINUTE + 31 * SECOND)

    run_through(server, 6 * MINUTE)

    assert tasks(server) == ["alert", "all-clear"]
