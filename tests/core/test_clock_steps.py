"""When the wall clock is set, durations count elapsed time and calendars follow the clock."""

from __future__ import annotations

import pytest

from schedo.core.commands import Reschedule, Submit
from schedo.core.leases import Failed, Snoozed
from schedo.core.model import Catchup, Overlap, Rule, Trigger, Unique
from schedo.core.states import State
from tests.core.builders import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    T0,
    every,
    make_schedule,
    make_schedule_spec,
    make_spec,
    tries,
    worker_spec,
)
from tests.core.fake_store import OOPS
from tests.core.scheduled import made
from tests.core.server import Server

STEPS = pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
CAPACITIES = pytest.mark.parametrize("capacity", [2, 100])
NOW = 2 * DAY


def started(server: Server, now: int) -> int:
    """Return how many attempts run at the instant."""
    return len(server.run(now))


@STEPS
@CAPACITIES
def test_a_delay_ends_when_its_time_has_passed(step: int, capacity: int) -> None:
    server = Server(capacity, now=NOW)
    for _ in range(10):
        server.submit(make_spec(delay_us=5 * MINUTE), NOW)
    server.settle(NOW + MINUTE)

    server.follow_clock(step)

    assert started(server, NOW + step + 5 * MINUTE - 1) == 0
    assert started(server, NOW + step + 5 * MINUTE) == 10


@STEPS
def test_a_job_that_is_due_at_an_instant_follows_the_wall_clock(step: int) -> None:
    server = Server(now=NOW)
    server.submit(make_spec(run_at=NOW + 2 * HOUR), NOW)

    server.follow_clock(step)

    assert started(server, NOW + 2 * HOUR - 1) == 0
    assert started(server, NOW + 2 * HOUR) == 1


@STEPS
@pytest.mark.parametrize("outcome", [Failed(OOPS), Snoozed(10 * SECOND)], ids=["retry", "snooze"])
def test_a_retry_and_a_snooze_count_elapsed_time(step: int, outcome: Failed | Snoozed) -> None:
    server = Server(now=NOW)
    job = server.submit(make_spec(run_at=NOW, retry=tries(3)), NOW)
    server.run(NOW)
    server.report(job.id, outcome, NOW)
    server.round(NOW)

    server.follow_clock(step)

    assert started(server, NOW + step + 10 * SECOND - 1) == 0
    assert started(server, NOW + step + 10 * SECOND) == 1


@STEPS
def test_a_clock_step_shifts_jobs_that_are_not_committed_yet(step: int) -> None:
    server = Server(now=NOW)
    server.send(Submit([make_spec(delay_us=MINUTE)]), NOW)

    server.follow_clock(step)

    assert started(server, NOW + step + MINUTE - 1) == 0
    assert started(server, NOW + step + MINUTE) == 1


@STEPS
def test_a_relative_expiry_counts_elapsed_time_and_an_absolute_one_follows_the_clock(
    step: int,
) -> None:
    server = Server(now=NOW, slots=0)
    counting = server.submit(make_spec(expires_in_us=MINUTE), NOW)
    following = server.submit(make_spec(expires_at=NOW + MINUTE), NOW)

    server.follow_clock(step)
    server.expire_and_trim(NOW + step + MINUTE)
    server.round(NOW + step + MINUTE)
    server.round(NOW + step + MINUTE)

    assert server.state(counting.id) is State.EXPIRED
    assert server.state(following.id) is (State.EXPIRED if step > 0 else State.QUEUED)


@STEPS
def test_a_job_rescheduled_by_a_delay_counts_elapsed_time(step: int) -> None:
    server = Server(now=NOW)
    job = server.submit(make_spec(run_at=NOW + DAY), NOW)
    server.change(Reschedule(job.id, delay_us=MINUTE), NOW)
    server.round(NOW)

    server.follow_clock(step)

    assert started(server, NOW + step + MINUTE - 1) == 0
    assert started(server, NOW + step + MINUTE) == 1


@STEPS
def test_a_change_of_priority_does_not_change_what_a_delay_counts(step: int) -> None:
    server = Server(now=NOW)
    job = server.submit(make_spec(delay_us=MINUTE), NOW)
    server.change(Reschedule(job.id, priority=5), NOW)
    server.round(NOW)

    server.follow_clock(step)

    assert started(server, NOW + step + MINUTE) == 1


@STEPS
def test_jobs_queued_before_a_clock_step_go_first(step: int) -> None:
    server = Server(now=NOW, slots=0)
    jobs = [server.submit(make_spec(), NOW).id]
    server.follow_clock(step)
    jobs.append(server.submit(make_spec(), NOW + step + SECOND).id)

    server.attach(worker_spec())

    assert server.run(NOW + step + SECOND) == jobs


@STEPS
def test_the_period_of_a_unique_key_counts_elapsed_time(step: int) -> None:
    server = Server(now=NOW)
    spec = make_spec(unique=Unique("k", for_us=MINUTE))
    first = server.submit(spec, NOW)
    server.run(NOW)
    server.complete(first.id, NOW)
    server.round(NOW)

    server.follow_clock(step)

    assert server.submit(spec, NOW + step + MINUTE - 1).id == first.id
    assert server.submit(spec, NOW + step + MINUTE).id != first.id


def test_a_clock_step_does_not_shift_ended_jobs() -> None:
    server = Server(now=NOW)
    job = server.submit(make_spec(delay_us=MINUTE, expires_in_us=HOUR), NOW)
    server.run(NOW + MINUTE)
    server.complete(job.id, NOW + MINUTE)
    server.round(NOW + MINUTE)

    server.follow_clock(-HOUR)

    ended = server.store.jobs[job.id]
    assert (ended.due_at, ended.expires_at, ended.ended_at) == (
        NOW + MINUTE,
        NOW + HOUR,
        NOW + MINUTE,
    )


def test_a_queued_job_stays_queued_when_its_priority_is_changed_after_a_step_back() -> None:
    server = Server(now=NOW, slots=0)
    job = server.submit(make_spec(), NOW)

    server.follow_clock(-HOUR)
    server.change(Reschedule(job.id, priority=5), NOW - HOUR)

    assert server.state(job.id) is State.QUEUED


# Schedules.


@pytest.mark.parametrize("step", [HOUR, -HOUR, 17 * SECOND, -17 * SECOND])
@CAPACITIES
def test_an_interval_keeps_its_distance_after_a_clock_step(step: int, capacity: int) -> None:
    server = Server(capacity, now=NOW)
    schedule = server.put(make_schedule_spec(rule=every(10), overlap=Overlap.ALLOW), NOW)
    server.settle(NOW)
    server.settle(NOW + 10 * SECOND)

    server.follow_clock(step)
    for seconds in (19, 20, 29, 30):
        server.settle(NOW + step + seconds * SECOND)

    assert [run.scheduled_for for run in server.runs(schedule.id)] == [
        NOW,
        NOW + 10 * SECOND,
        NOW + step + 20 * SECOND,
        NOW + step + 30 * SECOND,
    ]
    assert server.store.schedules[schedule.id].missed == 0


def test_an_interval_keeps_its_distance_over_many_steps_and_crashes() -> None:
    server = Server(now=NOW)
    schedule = server.put(make_schedule_spec(rule=every(10), overlap=Overlap.ALLOW), NOW)
    server.settle(NOW)
    wall = NOW

    for number, step in enumerate([-HOUR, HOUR, -HOUR, 3 * SECOND, -DAY, HOUR], 1):
        server.follow_clock(step)
        wall += step
        server.crash(wall)
        server.attach(worker_spec(slots=100))
        server.round(wall)
        server.settle(wall + 10 * SECOND - 1)
        assert len(server.runs(schedule.id)) == number
        wall += 10 * SECOND
        server.settle(wall)
        assert len(server.runs(schedule.id)) == number + 1


@STEPS
def test_an_interval_that_has_not_begun_begins_by_the_wall_clock(step: int) -> None:
    server = Server(now=NOW)
    rule = every(60, start_at=NOW + 2 * HOUR)
    schedule = server.put(make_schedule_spec(rule=rule), NOW)
    server.settle(NOW)

    server.follow_clock(step)
    server.settle(NOW + 2 * HOUR - 1)
    assert server.runs(schedule.id) == []
    server.settle(NOW + 2 * HOUR)

    assert [run.scheduled_for for run in server.runs(schedule.id)] == [NOW + 2 * HOUR]


def test_an_interval_ends_by_the_wall_clock() -> None:
    server = Server(now=NOW)
    rule = every(60, end_at=NOW + HOUR)
    schedule = server.put(make_schedule_spec(rule=rule), NOW)
    server.settle(NOW)

    server.follow_clock(HOUR)
    server.settle(NOW + HOUR + MINUTE)

    assert len(server.runs(schedule.id)) == 1
    assert server.store.schedules[schedule.id].next_fire_at is None


def test_a_cron_rule_does_not_fire_a_decided_instant_again_when_the_clock_is_set_back() -> None:
    server = Server(now=NOW)
    spec = make_schedule_spec(rule=Rule(cron="* * * * *"), overlap=Overlap.ALLOW)
    schedule = server.put(spec, NOW + 1)
    server.settle(NOW + 1)
    server.settle(NOW + MINUTE)

    server.follow_clock(-HOUR)
    for minutes in range(-59, 3):
        server.settle(NOW + minutes * MINUTE)

    instants = [run.scheduled_for for run in server.runs(schedule.id)]
    assert instants == [NOW + MINUTE, NOW + 2 * MINUTE]


def test_a_cron_rule_catches_up_by_its_policy_when_the_clock_is_set_forward() -> None:
    server = Server(now=NOW, slots=0)
    spec = make_schedule_spec(rule=Rule(cron="* * * * *"), catchup=Catchup.LATEST)
    schedule = server.put(spec, NOW + 1)
    server.settle(NOW + 1)

    server.follow_clock(HOUR)
    server.settle(NOW + HOUR + SECOND)

    [run] = server.runs(schedule.id)
    assert (run.trigger, run.scheduled_for) == (Trigger.SCHEDULE, NOW + HOUR)


def test_an_interval_that_becomes_a_cron_rule_fires_no_instant_a_second_time() -> None:
    server = Server(now=NOW)
    schedule = server.put(make_schedule_spec(rule=every(60), overlap=Overlap.ALLOW), NOW)
    server.settle(NOW)
    server.settle(NOW + MINUTE)

    server.follow_clock(-HOUR)
    now = NOW + MINUTE - HOUR + SECOND
    cron = make_schedule_spec(rule=Rule(cron="* * * * *"), overlap=Overlap.ALLOW)
    server.put(cron, now)
    for minutes in range(2 - 60, 3):
        server.settle(NOW + minutes * MINUTE)

    instants = [run.scheduled_for for run in server.runs(schedule.id)]
    assert instants == [NOW, NOW + MINUTE, NOW + 2 * MINUTE]


def test_a_cron_rule_that_becomes_an_interval_begins_at_once() -> None:
    server = Server(now=NOW)
    schedule = server.put(make_schedule_spec(rule=Rule(cron="* * * * *")), NOW)
    server.settle(NOW)

    server.follow_clock(-HOUR)
    interval = make_schedule_spec(rule=every(60), overlap=Overlap.ALLOW)
    server.put(interval, NOW - HOUR + 1)
    server.settle(NOW - HOUR + MINUTE)

    assert server.runs(schedule.id)[-1].scheduled_for == NOW - HOUR + MINUTE
    assert server.store.schedules[schedule.id].next_fire_at == NOW - HOUR + 2 * MINUTE


@STEPS
def test_the_jitter_of_a_run_counts_elapsed_time(step: int) -> None:
    server = Server(now=NOW)
    schedule = made(server, rule=Rule(cron="* * * * *", jitter_us=50 * SECOND))
    server.settle(NOW)
    [run] = server.runs(schedule.id)[-1:]
    wait_us = run.due_at - NOW
    assert wait_us > 0

    server.follow_clock(step)
    server.settle(NOW + step + wait_us - 1)
    assert server.state(run.id) is State.SCHEDULED
    server.settle(NOW + step + wait_us)

    assert server.state(run.id) is State.RUNNING


def test_a_blocked_run_is_unblocked_also_after_a_step_back() -> None:
    server = Server(now=NOW)
    schedule = server.put(make_schedule_spec(overlap=Overlap.BUFFER_ONE), NOW)
    server.settle(NOW)
    server.settle(NOW + MINUTE)
    first, second = server.runs(schedule.id)
    assert second.state is State.BLOCKED

    server.follow_clock(-HOUR)
    now = NOW + MINUTE - HOUR
    server.complete(first.id, now)
    server.settle(now)

    assert server.state(second.id) is State.RUNNING


def test_a_clock_step_also_shifts_a_schedule_that_fires_no_more() -> None:
    schedule = make_schedule(next_fire_at=None)

    schedule.shift(HOUR)

    assert (schedule.evaluated_through, schedule.next_fire_at) == (T0 + HOUR, None)


def test_an_instant_that_was_skipped_is_not_decided_again_after_two_changes_of_the_rule() -> None:
    server = Server(now=NOW)
    cron, skip = Rule(cron="* * * * *"), Overlap.SKIP
    schedule = server.put(make_schedule_spec(rule=cron, overlap=skip), NOW)
    server.settle(NOW)
    server.settle(NOW + MINUTE)  # skipped: no job is made that would be as new as the instant
    assert server.store.schedules[schedule.id].overlap_skipped == 1

    server.follow_clock(-HOUR)
    now = NOW + MINUTE - HOUR
    server.put(make_schedule_spec(rule=every(60), overlap=skip), now + SECOND)
    server.put(make_schedule_spec(rule=cron, overlap=skip), now + 2 * SECOND)
    server.follow_clock(HOUR)
    server.settle(NOW + 2 * MINUTE)

    decided = [each.scheduled_for for each in server.store.decisions]
    assert decided.count(NOW + MINUTE) == 1
