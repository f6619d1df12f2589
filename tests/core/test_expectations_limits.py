"""Limits of the duration of runs, changes of the clock, and named expectations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schedo.core.commands import (
    PutEffect,
    ResumeSchedule,
)
from schedo.core.cron import parse_cron
from schedo.core.expectation_table import Beat, DeleteExpectation, PutExpectation
from schedo.core.expectations import Expectation, ExpectationSpec
from schedo.core.ids import render_id
from schedo.core.limits import EXPECTATIONS_MAX
from schedo.core.model import (
    Expect,
    OnFailure,
    Overlap,
    Rule,
)
from schedo.core.states import State
from schedo.core.triggers import next_after
from schedo.errors import Conflict, NotFound
from tests.core.builders import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    T0,
    every,
    make_schedule_spec,
    make_spec,
)
from tests.core.expecting import (
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
from tests.core.scheduled import T1, made
from tests.core.server import Server

# The duration of runs.


def test_a_run_that_takes_too_long_is_a_miss_until_a_run_has_completed() -> None:
    server = Server()
    longest = Expect(None, 10 * SECOND, OnFailure("alert"), OnFailure("all-clear"))
    schedule = made(server, expect=longest)
    (run,) = server.run(MINUTE)

    server.settle(MINUTE + 10 * SECOND - 1)
    assert tasks(server) == []
    server.settle(MINUTE + 10 * SECOND)
    (miss,) = event_jobs(server)
    assert facts(miss)["message"] == f"job {render_id(run)} has run for more than 10 s"
    assert facts(miss)["job"] == render_id(run)
    server.complete(run, MINUTE + 20 * SECOND)

    assert tasks(server) == ["alert", "all-clear"]
    assert of(server, schedule.id).missed == 1


def test_a_run_that_ends_in_time_is_no_miss() -> None:
    server = Server()
    made(server, expect=Expect(max_duration_us=10 * SECOND, on_miss=OnFailure("alert")))
    (run,) = server.run(MINUTE)

    server.complete(run, MINUTE + 9 * SECOND)
    server.settle(MINUTE + 59 * SECOND)

    assert tasks(server) == []


def test_an_attempt_that_a_recovery_finds_running_is_reported_once() -> None:
    server = Server()
    schedule = made(server, expect=Expect(max_duration_us=10 * SECOND, on_miss=OnFailure("alert")))
    server.run(MINUTE)
    server.round(MINUTE)
    (lease,) = server.leases.values()
    server.settle(MINUTE + 10 * SECOND)
    stored = server.store.load_job(lease.key.job_id)
    assert stored is not None

    known = [each.copy() for each in server.scheduler.expectations.all()]
    server.crash(MINUTE + 11 * SECOND)
    server.scheduler.restore([], [], False, expectations=known)
    now = MINUTE + 11 * SECOND
    server.scheduler.recover_running(server.job(stored.id), lease, now, now)
    server.settle(MINUTE + 30 * SECOND)

    assert tasks(server) == ["alert"]
    assert of(server, schedule.id).missed == 1


def test_the_limit_of_the_duration_may_be_removed_while_a_run_goes_on() -> None:
    server = Server()
    made(server, expect=Expect(max_duration_us=10 * SECOND, on_miss=OnFailure("alert")))
    server.run(MINUTE)

    server.put(make_schedule_spec(expect=Expect(within_us=HOUR)), MINUTE)
    server.settle(MINUTE + 30 * SECOND)

    assert tasks(server) == []


@pytest.mark.parametrize("before", [Expect(max_duration_us=SECOND), Expect(HOUR, DAY), None])
def test_another_limit_of_the_duration_applies_to_the_attempt_that_runs(
    before: Expect | None,
) -> None:
    server = Server(slots=1)
    schedule = made(server, rule=every(3600), overlap=Overlap.ALLOW, expect=before)
    running, waiting = (server.trigger("s", T1).job for _ in range(2))
    assert running is not None
    assert waiting is not None
    assert server.run(T1) == [running.id]

    longest = Expect(max_duration_us=MINUTE, on_miss=OnFailure("alert"))
    server.put(msgspec.structs.replace(schedule.spec, expect=longest), T1)
    server.settle(MINUTE)
    assert tasks(server) == []
    server.settle(MINUTE + T1)

    (miss,) = event_jobs(server)
    assert facts(miss)["message"] == f"job {render_id(running.id)} has run for more than 1 min"


# Clock changes, and a year with daylight saving.

RULES = pytest.mark.parametrize(
    "rule",
    [every(600), every(600, start_at=DAY + 10 * MINUTE), Rule(cron="*/10 * * * *")],
    ids=["every", "every from its start", "cron"],
)


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
@RULES
def test_a_limit_counts_elapsed_time_when_the_clock_is_set(step: int, rule: Rule) -> None:
    server = Server(slots=0, now=DAY)
    schedule = server.put(make_schedule_spec(rule=rule, expect=WITHIN), DAY + 1)
    instant = DAY + 10 * MINUTE
    server.settle(instant)
    server.settle(instant + 20 * SECOND)

    server.round(instant + 20 * SECOND)
    server.follow_clock(step)
    server.settle(instant + step + 30 * SECOND - 1)
    assert of(server, schedule.id).state is OK
    server.settle(instant + step + 30 * SECOND)

    assert of(server, schedule.id).state is MISSED
    skipped = 6 if step > 0 and rule.cron else 0  # instants that the clock has jumped over
    assert of(server, schedule.id).missed == 1 + skipped


@pytest.mark.parametrize("step", [HOUR, -HOUR, 7 * MINUTE, -7 * MINUTE])
@RULES
def test_a_run_that_goes_on_while_the_clock_is_set_is_the_one_of_its_instant(
    step: int, rule: Rule
) -> None:
    server = Server(now=DAY)
    schedule = server.put(make_schedule_spec(rule=rule, expect=WITHIN), DAY + 1)
    instant = DAY + 10 * MINUTE
    (run,) = server.run(instant)

    server.round(instant)
    server.follow_clock(step)
    server.complete(run, instant + step + 10 * SECOND)

    moved = step if rule.every_us is not None else 0
    assert of(server, schedule.id).through == instant + moved
    assert of(server, schedule.id).early == ()


@pytest.mark.parametrize("step", [7 * MINUTE, -7 * MINUTE], ids=["forward", "back"])
def test_a_schedule_that_was_paused_over_its_start_and_its_expectation_have_the_same_instants(
    step: int,
) -> None:
    server = Server(now=DAY)
    rule = every(600, start_at=DAY + 10 * MINUTE)
    schedule = server.put(make_schedule_spec(rule=rule, expect=WITHIN, paused=True), DAY + 1)
    server.settle(DAY + 11 * MINUTE)
    assert of(server, schedule.id).state is MISSED

    server.follow_clock(step)
    server.apply(ResumeSchedule(schedule.name), DAY + step + 12 * MINUTE)
    server.round(DAY + step + 12 * MINUTE)

    fire_at = server.store.schedules[schedule.id].next_fire_at
    assert of(server, schedule.id).open_at() == fire_at


def test_a_second_change_of_the_clock_adds_to_the_first() -> None:
    server = Server(slots=0, now=DAY)
    rule = Rule(cron="*/10 * * * *")
    schedule = server.put(make_schedule_spec(rule=rule, expect=WITHIN), DAY + 1)
    instant = DAY + 10 * MINUTE
    server.settle(instant + SECOND)
    server.round(instant + SECOND)

    for step in (MINUTE, MINUTE):
        server.follow_clock(step)

    assert of(server, schedule.id).limit() == instant + 30 * SECOND + 2 * MINUTE


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize(("gap", "fold"), [("after", "first"), ("skip", "both")])
def test_a_year_of_kept_runs_has_no_miss_though_clocks_change(
    zone: str, gap: Any, fold: Any
) -> None:
    year = 1_767_225_600 * SECOND  # 2026-01-01
    cron = parse_cron("30 1,2,3 * * *", seed="").normalized
    rule = Rule(cron=cron, tz=zone, gap=gap, fold=fold)
    expectation = Expectation(
        1, "s", True, rule, Expect(within_us=20 * MINUTE), year, year, year, year
    )
    instant, kept = next_after(rule, year), 0

    while instant is not None and instant < year + 366 * DAY:
        limit = expectation.limit()
        assert limit == instant + 20 * MINUTE
        assert expectation.take_overdue(limit - 1) is None
        expectation.complete(instant)
        instant, kept = next_after(rule, instant), kept + 1

    assert kept > 1_090
    assert expectation.early == ()


@pytest.mark.parametrize("zone", ["Europe/Paris", "Australia/Lord_Howe"])
def test_a_server_makes_no_event_job_in_a_year_of_completed_runs(zone: str) -> None:
    year = 1_767_225_600 * SECOND  # 2026-01-01
    rule = Rule(cron="30 1,2,3 * * *", tz=zone, fold="both")
    server = Server(now=year)
    expect = msgspec.structs.replace(WITHIN, within_us=20 * MINUTE)
    schedule = server.put(make_schedule_spec(rule=rule, expect=expect), year)
    instant, kept = next_after(rule, year), 0

    while instant is not None and instant < year + 365 * DAY:
        run_through(server, instant)
        server.settle(instant + 21 * MINUTE)
        instant, kept = next_after(rule, instant), kept + 1

    assert kept > 1_090
    assert event_jobs(server) == []
    assert decisions(server, schedule.id) == []
    assert of(server, schedule.id).missed == 0


# Named expectations.


def named(
    name: str = "laptop", rule: Rule | None = None, expect: Expect = WITHIN
) -> PutExpectation:
    return PutExpectation(ExpectationSpec(name, rule or every(60), expect))


def test_a_beat_keeps_a_named_expectation_for_one_interval_and_the_limit() -> None:
    server = Server()
    known, effect = server.apply(named(), T0)
    assert effect is PutEffect.CREATED

    server.settle(80 * SECOND)
    server.apply(Beat("laptop"), 80 * SECOND)
    assert of(server, known.id).limit() == 170 * SECOND
    server.settle(170 * SECOND - 1)
    assert tasks(server) == []
    server.settle(170 * SECOND)
    server.settle(HOUR)
    server.apply(Beat("laptop"), HOUR)

    assert tasks(server) == ["alert", "all-clear"]
    miss, back = event_jobs(server)
    assert facts(miss)["name"] == "laptop"
    assert facts(miss)["message"].startswith("no beat has come within 30 s after")
    assert facts(back)["missed_since"] == "1970-01-01T00:02:50.000000Z"
    assert server.decisions(known.id) == []


def test_a_named_expectation_of_a_cron_rule_waits_for_its_next_instant() -> None:
    server = Server()
    known, _ = server.apply(named(rule=Rule(cron="*/5 * * * *")), T0)

    assert of(server, known.id).limit() == 5 * MINUTE + 30 * SECOND
    server.apply(Beat("laptop"), 6 * MINUTE)

    assert of(server, known.id).limit() == 10 * MINUTE + 30 * SECOND


def test_a_beat_that_comes_after_the_limit_in_the_same_turn_is_a_miss_and_a_return() -> None:
    server = Server()
    server.apply(named(), T0)

    server.apply(Beat("laptop"), HOUR)

    assert tasks(server) == ["alert", "all-clear"]


def test_the_same_put_changes_nothing_and_another_one_changes_the_limit() -> None:
    server = Server()
    known, _ = server.apply(named(), T0)

    same = server.apply(named(), SECOND)[1]
    other = server.apply(named(expect=Expect(within_us=SECOND)), 2 * SECOND)[1]

    assert (same, other) == (PutEffect.UNCHANGED, PutEffect.CHANGED)
    assert of(server, known.id).limit() == 61 * SECOND


def test_a_beat_after_the_clock_was_set_back_is_followed_by_the_next_instant() -> None:
    server = Server(now=DAY)
    known, _ = server.apply(named(rule=Rule(cron="0 * * * *")), DAY)
    server.apply(Beat("laptop"), DAY + HOUR)
    server.settle(DAY + HOUR)

    server.follow_clock(-4 * HOUR)
    server.apply(Beat("laptop"), DAY - 3 * HOUR + MINUTE)

    assert of(server, known.id).limit() == DAY - 2 * HOUR + 30 * SECOND


def test_another_rule_of_a_named_expectation_holds_from_then_on() -> None:
    server = Server()
    known, _ = server.apply(named(rule=every(86_400)), T0)

    server.apply(named(rule=every(3_600)), 20 * HOUR)
    server.settle(20 * HOUR)

    assert tasks(server) == []
    assert of(server, known.id).limit() == 21 * HOUR + 30 * SECOND


def test_a_named_expectation_is_kept_over_a_crash_and_can_be_deleted() -> None:
    server = Server()
    known, _ = server.apply(named(), T0)
    server.round(T0)
    server.crash(SECOND)
    assert of(server, known.id) is not known

    server.apply(DeleteExpectation("laptop"), SECOND)
    server.round(SECOND)
    server.crash(2 * SECOND)

    assert list(server.scheduler.expectations.all()) == []
    with pytest.raises(NotFound, match="there is no expectation 'laptop'"):
        server.apply(Beat("laptop"), 2 * SECOND)
    with pytest.raises(NotFound, match="there is no expectation 'laptop'"):
        server.apply(DeleteExpectation("laptop"), 2 * SECOND)


def test_the_number_of_expectations_is_bounded() -> None:
    server = Server()
    for number in range(EXPECTATIONS_MAX):
        server.apply(named(f"n{number}"), T0)

    with pytest.raises(Conflict):
        server.apply(named(), T0)
    with pytest.raises(Conflict):
        server.put(make_schedule_spec(expect=WITHIN), T0)
    server.put(make_schedule_spec(), T0)
    assert server.apply(named("n0", expect=Expect(within_us=1)), T0)[1] is PutEffect.CHANGED


def test_without_event_jobs_only_the_state_changes() -> None:
    server = Server()
    known, _ = server.apply(named(expect=Expect(within_us=SECOND)), T0)

    server.settle(HOUR)
    assert of(server, known.id).state is MISSED
    server.apply(Beat("laptop"), HOUR)

    assert of(server, known.id).state is OK
    assert event_jobs(server) == []


def test_a_schedule_that_already_has_its_expectation_may_change_when_there_is_no_room() -> None:
    server = Server()
    schedule = made(server, expect=WITHIN)
    for number in range(EXPECTATIONS_MAX - 1):
        server.apply(named(f"n{number}"), T0)

    server.put(make_schedule_spec(job=make_spec("other"), expect=WITHIN), SECOND)

    assert of(server, schedule.id).updated_at == SECOND
    assert server.state(server.trigger("s", SECOND).job.id) is State.QUEUED  # type: ignore[union-attr]
