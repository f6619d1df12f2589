"""The checkers find every fault: a good history passes, and each mutation of it is found.

The simulation makes one good history, without faults of the store or the server. Every mutation is
applied to it at several random places, and the named checker must find it each time.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from schedo.core.model import Rule
from tests.sim import (
    attempt_checkers,
    checkers,
    event_checkers,
    operation_checkers,
    schedule_checkers,
    timeout_checkers,
)
from tests.sim import event_mutations as e
from tests.sim import mutations as m
from tests.sim import operation_mutations as o
from tests.sim import schedule_mutations as s
from tests.sim.checkers import check
from tests.sim.history import History
from tests.sim.oracle import instants
from tests.sim.plan import STARTS, Plan
from tests.sim.simulator import run
from tests.sim.trace import Trace

PLAN = Plan(
    start=STARTS[0],
    minutes=10,
    action_every_s=0.8,
    schedules=6,
    keeps=False,
    has_operations=False,
)
WITH_OPERATIONS = replace(PLAN, has_operations=True)
SEED = 7  # a history in which every mutation has its places
PLACES = 5
SECOND = 1_000_000


@pytest.fixture(scope="module")
def good() -> Trace:
    return run(SEED, PLAN)


def test_a_good_history_has_no_violations(good: Trace) -> None:
    assert check(good) == []


@pytest.mark.parametrize(
    ("mutate", "checker"),
    [
        (m.drop_a_job, checkers.nothing_acknowledged_is_lost),
        (m.acknowledge_too_soon, checkers.nothing_acknowledged_is_lost),
        (m.lose_sight_of_a_job, checkers.acknowledged_jobs_are_found),
        (m.forget_a_caller, checkers.every_call_is_answered),
        (m.run_a_refused_submit, checkers.one_submit_makes_one_job),
        (m.duplicate_a_job, checkers.one_submit_makes_one_job),
        (m.start_before_durable, attempt_checkers.durable_before_runnable),
        (m.start_twice, attempt_checkers.never_two_live_leases),
        (m.give_an_old_attempt, attempt_checkers.attempts_only_grow),
        (m.give_a_stale_epoch, attempt_checkers.epochs_only_grow),
        (m.open_with_an_old_epoch, attempt_checkers.epochs_only_grow),
        (m.shift_early, attempt_checkers.nothing_starts_early),
        (m.repeat_what_runs_once, attempt_checkers.at_most_once_means_once),
        (m.revive_an_ended_job, checkers.ended_jobs_stay_ended),
        (m.run_a_completed_job_again, attempt_checkers.a_reported_completion_stands),
        (m.complete_a_cancelled_job, checkers.an_acknowledged_cancel_holds),
        (m.fail_once_too_often, checkers.budgets_hold),
        (m.start_an_expired_job, attempt_checkers.expired_jobs_do_not_start),
        (m.stop_too_soon, timeout_checkers.timeouts_are_kept),
        (m.never_stop, timeout_checkers.timeouts_are_kept),
        (m.exceed_a_limit, attempt_checkers.queues_keep_their_limits),
        (m.start_in_a_paused_queue, attempt_checkers.queues_keep_their_limits),
        (m.share_a_key, checkers.unique_keys_are_unique),
        (m.leave_a_job_unfinished, checkers.everything_comes_to_an_end),
        (m.end_too_soon, checkers.everything_comes_to_an_end),
        (m.contradict_the_disk, checkers.server_and_disk_agree),
        (m.hold_too_much, checkers.memory_is_bounded),
        (s.duplicate_an_instant, schedule_checkers.an_instant_has_one_job),
        (s.invent_an_instant, schedule_checkers.no_ghost_instants),
        (s.drop_an_instant, schedule_checkers.every_instant_is_decided_once),
        (s.decide_twice, schedule_checkers.every_instant_is_decided_once),
        (s.turn_a_watermark_back, schedule_checkers.every_instant_is_decided_once),
        (s.call_a_late_instant_missed, schedule_checkers.policies_are_kept),
        (s.let_runs_overlap, schedule_checkers.leases_of_runs_do_not_overlap),
        (s.fire_after_a_pause, schedule_checkers.a_stopped_schedule_makes_no_runs),
        (s.stop_a_schedule_in_silence, schedule_checkers.schedules_go_on),
        (e.lose_the_job_of_a_failure, event_checkers.a_failure_makes_one_event_job),
        (e.double_the_job_of_a_failure, event_checkers.a_failure_makes_one_event_job),
        (e.lose_the_job_of_a_break, event_checkers.breaks_and_returns_alternate),
        (e.double_the_job_of_a_return, event_checkers.breaks_and_returns_alternate),
    ],
)
def test_each_mutation_of_a_history_is_found(
    good: Trace, mutate: m.Mutation, checker: checkers.Checker
) -> None:
    random = Random(1)
    missed = [place for place in range(PLACES) if not list(checker(History(mutate(good, random))))]

    assert not missed, f"{checker.__name__} saw nothing at {missed}"


@pytest.fixture(scope="module")
def with_operations() -> Trace:
    return run(SEED, WITH_OPERATIONS)


def test_a_good_history_with_operations_has_no_violations(with_operations: Trace) -> None:
    assert check(with_operations) == []


@pytest.mark.parametrize(
    ("mutate", "checker"),
    [
        (o.count_a_job_too_many, operation_checkers.operations_change_as_many_jobs_as_they_count),
        (o.leave_an_operation_running, operation_checkers.operations_come_to_an_end),
        (o.miss_a_job, operation_checkers.operations_miss_no_job),
    ],
)
def test_each_mutation_of_an_operation_is_found(
    with_operations: Trace, mutate: m.Mutation, checker: checkers.Checker
) -> None:
    test_each_mutation_of_a_history_is_found(with_operations, mutate, checker)


# The oracle is checked against examples computed by hand.


@pytest.mark.parametrize(
    ("rule", "after", "through", "expected"),
    [
        (Rule(every_us=7 * SECOND), 6 * SECOND, 21 * SECOND, [7, 14, 21]),
        (Rule(every_us=7 * SECOND, start_at=3 * SECOND), 0, 17 * SECOND, [3, 10, 17]),
        (Rule(every_us=7 * SECOND, end_at=14 * SECOND), 0, 90 * SECOND, [7, 14]),
        (Rule(at=5 * SECOND), 4 * SECOND, 5 * SECOND, [5]),
        (Rule(at=5 * SECOND), 5 * SECOND, 9 * SECOND, []),
        (Rule(cron="*/20 * * * * *"), 0, 60 * SECOND, [20, 40, 60]),
        (Rule(cron="1-2 0 * * *"), 0, 86_400 * SECOND, [60, 120]),
    ],
    ids=["every", "from", "until", "at", "after", "seconds", "minutes"],
)
def test_the_oracle_counts_instants(
    rule: Rule, after: int, through: int, expected: list[int]
) -> None:
    assert instants(rule, after, through) == [second * SECOND for second in expected]


@pytest.mark.parametrize(
    ("cron", "tz", "day", "expected"),
    [
        # 2026-03-29, Berlin: 02:00 becomes 03:00 at 01:00Z, so 02:30 runs at 03:00 = 01:00Z.
        ("30 2 * * *", "Europe/Berlin", 20_541, ["01:00"]),
        (
            "0 */2 * * *",
            "Europe/Berlin",
            20_541,
            ["23:00", "02:00", "04:00", "06:00"],
        ),
        # 2026-10-25, Berlin: 03:00 becomes 02:00 at 01:00Z, so 02:30 comes at 00:30Z and 01:30Z.
        ("30 2 * * *", "Europe/Berlin", 20_751, ["00:30"]),
        # 2025-10-05, Lord Howe: 02:00 becomes 02:30 at 15:30Z of the day before.
        ("15 2 * * *", "Australia/Lord_Howe", 20_365, ["15:30"]),
    ],
    ids=["gap", "wildcard", "fold", "half an hour"],
)
def test_the_oracle_follows_changes_of_daylight_saving_time(
    cron: str, tz: str, day: int, expected: list[str]
) -> None:
    start = day * 86_400 * SECOND
    found = instants(Rule(cron=cron, tz=tz), start - 3_601 * SECOND, start + 86_399 * SECOND)

    times = [f"{at // (3600 * SECOND) % 24:02}:{at // (60 * SECOND) % 60:02}" for at in found]
    assert times[: len(expected)] == expected
