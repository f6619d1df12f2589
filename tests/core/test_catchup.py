"""Which due instants run: late, caught up, coalesced or missed; each gets exactly one decision."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedo.core.catchup import FirePlan, Firing, plan_fires
from schedo.core.model import Catchup, Decision, DecisionRecord, Rule, Schedule, Trigger
from schedo.core.triggers import latest_through
from tests.core.builders import HOUR, MINUTE, SECOND, T0, every, make_schedule, make_schedule_spec

S, C = Trigger.SCHEDULE, Trigger.CATCHUP


def schedule(catchup: Catchup = Catchup.LATEST, rule: Rule | None = None, **spec: Any) -> Schedule:
    """Return a schedule of each minute, seen through T0, that next fires at one minute."""
    return make_schedule(make_schedule_spec(rule=rule, catchup=catchup, **spec))


def folded(plan: FirePlan) -> list[tuple[Decision, int, int]]:
    return [(d.decision, d.scheduled_for, d.count) for d in plan.decisions]


# On time and late.


@pytest.mark.parametrize("late", [0, 1, 59 * SECOND])
def test_a_single_instant_that_is_on_time_or_late_fires(late: int) -> None:
    plan = plan_fires(schedule(), MINUTE + late)

    assert plan == FirePlan([Firing(MINUTE, S)], [], 2 * MINUTE)


@pytest.mark.parametrize("catchup", Catchup)
def test_a_single_instant_is_late_up_to_60_s_and_then_missed(catchup: Catchup) -> None:
    one = schedule(catchup, every(60, end_at=MINUTE))

    late, missed = plan_fires(one, 2 * MINUTE - 1), plan_fires(one, 2 * MINUTE)

    assert late == FirePlan([Firing(MINUTE, S)], [], None)
    assert missed.fires == ([] if catchup is Catchup.SKIP else [Firing(MINUTE, C)])


@pytest.mark.parametrize("catchup", Catchup)
def test_one_of_several_instants_is_late_up_to_60_s_and_then_missed(catchup: Catchup) -> None:
    one = schedule(catchup, every(59, end_at=118 * SECOND))
    one.next_fire_at = 59 * SECOND

    late, missed = plan_fires(one, 119 * SECOND - 1), plan_fires(one, 119 * SECOND)

    assert late == FirePlan([Firing(59 * SECOND, S), Firing(118 * SECOND, S)], [], None)
    assert Firing(59 * SECOND, S) not in missed.fires
    assert Firing(118 * SECOND, S, missed_count=catchup is Catchup.LATEST) in missed.fires


def test_several_instants_within_60_s_all_fire_oldest_first() -> None:
    one = make_schedule(make_schedule_spec(rule=every(20)), next_fire_at=20 * SECOND)

    plan = plan_fires(one, 61 * SECOND)

    assert plan == FirePlan(
        [Firing(20 * SECOND, S), Firing(40 * SECOND, S), Firing(60 * SECOND, S)], [], 80 * SECOND
    )


def test_late_instants_beyond_the_maximum_are_coalesced_into_the_first_that_runs() -> None:
    spec = make_schedule_spec(rule=every(10), catchup_max=2)

    plan = plan_fires(make_schedule(spec, next_fire_at=10 * SECOND), 50 * SECOND)

    assert plan.fires == [Firing(40 * SECOND, S, missed_count=3), Firing(50 * SECOND, S)]
    assert folded(plan) == [(Decision.COALESCED, 30 * SECOND, 3)]


def test_a_rule_that_has_come_to_its_end_has_no_next_fire() -> None:
    plan = plan_fires(schedule(rule=every(60, end_at=90 * SECOND)), MINUTE)

    assert plan == FirePlan([Firing(MINUTE, S)], [], None)


# An instant that was stored with older time zone data.

DAILY = Rule(cron="0 2 * * *", tz="Europe/Berlin")  # at 01:00 UTC in winter


def test_an_instant_that_newer_time_zone_data_moves_to_later_fires_only_there() -> None:
    stored = 24 * HOUR  # as if Berlin had summer time in winter
    one = make_schedule(make_schedule_spec(rule=DAILY), next_fire_at=stored)
    one.evaluated_through = stored - 23 * HOUR

    plan = plan_fires(one, stored)

    assert plan == FirePlan([], [], stored + HOUR)


def test_an_instant_that_newer_time_zone_data_moves_to_earlier_is_caught_up() -> None:
    stored = 26 * HOUR  # as if Berlin had the time of London
    one = make_schedule(make_schedule_spec(rule=DAILY), next_fire_at=stored)
    one.evaluated_through = stored - 24 * HOUR

    plan = plan_fires(one, stored)

    assert plan == FirePlan([Firing(stored - HOUR, C)], [], stored + 23 * HOUR)


# Missed: each policy with 1 and with 100 missed instants.

ONE = 2 * MINUTE + 30 * SECOND  # after the instants 1:00 (missed) and 2:00 (late)


@pytest.mark.parametrize(
    ("catchup", "fires", "decisions"),
    [
        (
            Catchup.LATEST,
            [Firing(2 * MINUTE, S, missed_count=1)],
            [(Decision.COALESCED, MINUTE, 1)],
        ),
        (Catchup.ALL, [Firing(MINUTE, C), Firing(2 * MINUTE, S)], []),
        (Catchup.SKIP, [Firing(2 * MINUTE, S)], [(Decision.MISSED, MINUTE, 1)]),
    ],
)
def test_a_late_instant_fires_and_an_earlier_one_is_missed(
    catchup: Catchup, fires: list[Firing], decisions: list[tuple[Decision, int, int]]
) -> None:
    plan = plan_fires(schedule(catchup), ONE)

    assert plan.fires == fires
    assert folded(plan) == decisions
    assert plan.next_fire_at == 3 * MINUTE


@pytest.mark.parametrize(
    ("catchup", "fires", "decisions"),
    [
        (Catchup.LATEST, [Firing(MINUTE, C)], []),
        (Catchup.ALL, [Firing(MINUTE, C)], []),
        (Catchup.SKIP, [], [(Decision.MISSED, MINUTE, 1)]),
    ],
)
def test_a_single_missed_instant_fires_unless_the_policy_is_skip(
    catchup: Catchup, fires: list[Firing], decisions: list[tuple[Decision, int, int]]
) -> None:
    plan = plan_fires(schedule(catchup, every(60, end_at=MINUTE)), HOUR)

    assert plan.fires == fires
    assert folded(plan) == decisions
    assert plan.next_fire_at is None


def test_the_policy_latest_fires_one_of_100_missed_instants_and_counts_the_others() -> None:
    plan = plan_fires(schedule(rule=every(60, end_at=100 * MINUTE)), 200 * MINUTE)

    assert plan.fires == [Firing(100 * MINUTE, C, missed_count=99)]
    assert folded(plan) == [(Decision.COALESCED, 99 * MINUTE, 99)]


def test_the_policy_all_fires_each_of_100_missed_instants() -> None:
    plan = plan_fires(schedule(Catchup.ALL, every(60, end_at=100 * MINUTE)), 200 * MINUTE)

    assert plan.fires == [Firing(n * MINUTE, C) for n in range(1, 101)]
    assert plan.decisions == []


def test_the_policy_all_fires_up_to_its_maximum_and_counts_the_oldest_as_missed() -> None:
    spec = schedule(Catchup.ALL, every(60, end_at=100 * MINUTE), catchup_max=3)

    plan = plan_fires(spec, 200 * MINUTE)

    assert plan.fires == [Firing(n * MINUTE, C) for n in (98, 99, 100)]
    assert folded(plan) == [(Decision.MISSED, 97 * MINUTE, 97)]


def test_the_policy_skip_fires_none_of_100_missed_instants() -> None:
    plan = plan_fires(schedule(Catchup.SKIP, every(60, end_at=100 * MINUTE)), 200 * MINUTE)

    assert plan.fires == []
    assert folded(plan) == [(Decision.MISSED, 100 * MINUTE, 100)]


# The window.


@pytest.mark.parametrize(
    ("catchup", "fires", "decisions"),
    [
        (
            Catchup.LATEST,
            [Firing(60 * MINUTE, S, missed_count=9)],
            [(Decision.MISSED, 50 * MINUTE, 50), (Decision.COALESCED, 59 * MINUTE, 9)],
        ),
        (
            Catchup.ALL,
            [*(Firing(n * MINUTE, C) for n in range(51, 60)), Firing(60 * MINUTE, S)],
            [(Decision.MISSED, 50 * MINUTE, 50)],
        ),
        (
            Catchup.SKIP,
            [Firing(60 * MINUTE, S)],
            [(Decision.MISSED, 50 * MINUTE, 50), (Decision.MISSED, 59 * MINUTE, 9)],
        ),
    ],
)
def test_instants_before_the_catchup_window_are_missed(
    catchup: Catchup, fires: list[Firing], decisions: list[tuple[Decision, int, int]]
) -> None:
    spec = schedule(catchup, catchup_window_us=10 * MINUTE)

    plan = plan_fires(spec, 60 * MINUTE + 30 * SECOND)

    assert plan.fires == fires
    assert folded(plan) == decisions


def test_an_instant_that_is_exactly_as_old_as_the_catchup_window_is_caught_up() -> None:
    rule = every(3_600)

    plan = plan_fires(schedule(rule=rule, catchup_window_us=HOUR), 2 * HOUR)
    assert plan.fires[0].missed_count == 1
    plan = plan_fires(schedule(Catchup.ALL, rule, catchup_window_us=HOUR), 2 * HOUR)
    assert plan.fires == [Firing(HOUR, C), Firing(2 * HOUR, S)]


def test_a_catchup_window_shorter_than_60_s_leaves_no_instant_to_catch_up() -> None:
    plan = plan_fires(schedule(Catchup.ALL, catchup_window_us=0), 10 * MINUTE + SECOND)

    assert plan.fires == [Firing(10 * MINUTE, S)]
    assert folded(plan) == [(Decision.MISSED, 9 * MINUTE, 9)]


def test_a_single_instant_older_than_the_catchup_window_is_missed() -> None:
    rule = Rule(at=MINUTE)

    plan = plan_fires(schedule(rule=rule, catchup_window_us=HOUR), 3 * HOUR)

    assert plan == FirePlan(
        [], [DecisionRecord(1, MINUTE, 3 * HOUR, Decision.MISSED, None, 1)], None
    )


def test_a_watermark_within_the_last_minute_leaves_no_instant_to_catch_up() -> None:
    one = make_schedule(
        make_schedule_spec(rule=every(10)), evaluated_through=25 * SECOND, next_fire_at=30 * SECOND
    )

    plan = plan_fires(one, 45 * SECOND)

    assert plan == FirePlan([Firing(30 * SECOND, S), Firing(40 * SECOND, S)], [], 50 * SECOND)


def test_no_decision_is_made_before_the_next_fire() -> None:
    resumed = make_schedule(evaluated_through=10 * SECOND, next_fire_at=None)

    assert plan_fires(resumed, 50 * SECOND) == FirePlan([], [], MINUTE)


@given(
    seconds=st.sampled_from([7, 10, 30, 59, 60, 61, 600]),
    through=st.integers(T0, 10 * MINUTE),
    now=st.integers(10 * MINUTE, 3 * HOUR),
    catchup=st.sampled_from(Catchup),
    window_us=st.sampled_from([0, 30 * SECOND, 5 * MINUTE, 24 * HOUR]),
    count_max=st.sampled_from([1, 2, 100]),
)
def test_every_instant_has_exactly_one_decision(
    seconds: int, through: int, now: int, catchup: Catchup, window_us: int, count_max: int
) -> None:
    rule = every(seconds)
    spec = make_schedule_spec(
        rule=rule, catchup=catchup, catchup_window_us=window_us, catchup_max=count_max
    )
    due = (through // (seconds * SECOND) + 1) * seconds * SECOND
    one = make_schedule(spec, evaluated_through=through, next_fire_at=due)

    plan = plan_fires(one, now)

    instants = [fire.scheduled_for for fire in plan.fires]
    assert instants == sorted(set(instants))
    assert all(through < instant <= now for instant in instants)
    _, due_count = latest_through(rule, through, now, 0)
    assert len(instants) + sum(decision.count for decision in plan.decisions) == due_count
    coalesced = sum(d.count for d in plan.decisions if d.decision is Decision.COALESCED)
    counted = sum(fire.missed_count for fire in plan.fires)
    assert counted == coalesced
    assert plan.next_fire_at == (now // (seconds * SECOND) + 1) * seconds * SECOND
