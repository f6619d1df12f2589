"""Schedules: when they fire, what a fire makes, and instants that were missed."""

from __future__ import annotations

import pytest

from schedo.core.commands import PauseSchedule, ResumeSchedule
from schedo.core.model import Catchup, Decision, Overlap, PauseScope, Retry, Rule, Trigger
from schedo.core.pause_commands import PauseServer, ResumeServer
from schedo.core.states import State
from tests.core.builders import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    every,
    make_schedule_spec,
    make_spec,
    tries,
    worker_spec,
)
from tests.core.scheduled import T1, kinds, made
from tests.core.server import Server

# Firing.


def test_a_schedule_fires_when_exactly_due_and_not_before() -> None:
    server = Server()
    schedule = made(server)
    assert server.scheduler.next_wake_at() == MINUTE

    server.settle(MINUTE - 1)
    assert server.runs(schedule.id) == []

    server.settle(MINUTE)
    [run] = server.runs(schedule.id)
    assert (run.scheduled_for, run.due_at, run.trigger) == (MINUTE, MINUTE, Trigger.SCHEDULE)
    assert (run.schedule_id, run.missed_count, run.state) == (schedule.id, 0, State.RUNNING)
    assert server.decisions(schedule.id) == [(Decision.FIRED, MINUTE, 1)]


def test_metrics_count_the_schedules_in_memory() -> None:
    server = Server()
    made(server)
    server.put(make_schedule_spec("other"), T1)
    server.send(PauseSchedule("other"), T1)

    assert server.scheduler.stats().schedules == 1


def test_an_instant_equal_to_the_creation_time_fires() -> None:
    server = Server()
    schedule = server.put(make_schedule_spec(), MINUTE)

    server.settle(MINUTE)

    assert [run.scheduled_for for run in server.runs(schedule.id)] == [MINUTE]


def test_the_watermark_and_the_run_are_in_one_commit() -> None:
    server = Server()
    schedule = made(server)

    server.tick(MINUTE)
    server.take()

    assert server.taken is not None
    assert [job.schedule_id for job in server.taken.jobs] == [schedule.id]
    [written] = server.taken.schedules
    assert (written.evaluated_through, written.next_fire_at) == (MINUTE, 2 * MINUTE)
    assert (written.fired, written.last_fired_at) == (1, MINUTE)
    assert written.last_job_id == server.taken.jobs[0].id


@pytest.mark.parametrize("is_durable", [False, True], ids=["before its commit", "after it"])
def test_a_crash_around_a_fire_neither_loses_nor_repeats_the_instant(is_durable: bool) -> None:
    server = Server()
    schedule = made(server)
    server.tick(MINUTE)
    if is_durable:
        server.round(MINUTE)

    server.crash(MINUTE)
    server.settle(MINUTE)

    assert [run.scheduled_for for run in server.runs(schedule.id)] == [MINUTE]


def test_a_run_has_the_fields_of_its_schedule_and_three_attempts() -> None:
    server = Server()
    job = make_spec("mail", queue="q", payload=b"[1]", priority=2, expires_in_us=HOUR)
    schedule = made(server, job=job)

    server.settle(MINUTE)

    [run] = server.runs(schedule.id)
    assert (run.task, run.queue, run.payload, run.priority) == ("mail", "q", b"[1]", 2)
    assert run.expires_at == MINUTE + HOUR
    assert run.options.retry is not None
    assert run.options.retry.max_attempts == 3


@pytest.mark.parametrize("task", ["shell", "http"])
def test_a_run_of_a_built_in_task_has_one_attempt_unless_more_are_asked_for(task: str) -> None:
    server = Server()
    plain = made(server, job=make_spec(task))
    asked = made(server, name="asked", job=make_spec(task, retry=Retry(max_attempts=4)))

    server.settle(MINUTE)

    attempts = [
        run.options.retry.max_attempts
        for schedule in (plain, asked)
        for run in server.runs(schedule.id)
        if run.options.retry is not None
    ]
    assert attempts == [1, 4]


def test_a_run_that_may_start_at_most_once_has_one_attempt() -> None:
    server = Server()
    schedule = made(server, job=make_spec("mail", at_most_once=True))

    server.settle(MINUTE)

    retry = server.runs(schedule.id)[0].options.retry
    assert retry is not None
    assert retry.max_attempts == 1


def test_a_run_has_the_timeout_of_its_task_and_its_own_retry() -> None:
    server = Server()
    mail = make_spec(timeout_us=5 * SECOND, retry=tries(8)).options
    server.attach(worker_spec(task_defaults={"mail": mail}))
    schedule = made(server, job=make_spec("mail", retry=tries(2)))

    server.settle(MINUTE)

    [run] = server.runs(schedule.id)
    assert run.options.timeout_us == 5 * SECOND
    assert run.options.retry == tries(2)


def test_the_jitter_of_a_run_is_always_the_same() -> None:
    delays = []
    for _ in range(2):
        server = Server()
        schedule = made(server, rule=every(60, jitter_us=30 * SECOND))
        server.settle(MINUTE)
        [run] = server.runs(schedule.id)
        assert run.scheduled_for == MINUTE
        delays.append(run.due_at - MINUTE)

    assert 0 < delays[0] <= 30 * SECOND
    assert delays[0] == delays[1]


def test_jitter_never_reaches_the_next_instant() -> None:
    server = Server()
    schedule = made(server, rule=every(1, jitter_us=HOUR), overlap=Overlap.ALLOW)

    for second in range(1, 20):
        server.settle(second * SECOND)

    runs = server.runs(schedule.id)
    assert len(runs) == 19
    assert all(0 <= run.due_at - (run.scheduled_for or 0) < SECOND for run in runs)


def test_a_schedule_of_one_instant_fires_once() -> None:
    server = Server()
    schedule = made(server, rule=Rule(at=MINUTE))

    server.settle(MINUTE)
    server.settle(DAY)

    assert len(server.runs(schedule.id)) == 1
    assert server.store.schedules[schedule.id].next_fire_at is None


# Missed instants, through the whole scheduler.


@pytest.mark.parametrize(
    ("catchup", "triggers", "missed"),
    [
        (Catchup.LATEST, [Trigger.SCHEDULE], 0),
        (Catchup.ALL, [Trigger.CATCHUP] * 99, 0),
        (Catchup.SKIP, [Trigger.SCHEDULE], 99),
    ],
)
def test_after_a_long_downtime_each_instant_has_one_decision(
    catchup: Catchup, triggers: list[Trigger], missed: int
) -> None:
    server = Server(slots=0)
    schedule = made(server, catchup=catchup)

    server.settle(100 * MINUTE + SECOND)

    assert [run.trigger for run in server.runs(schedule.id)] == triggers
    assert sum(count for _, _, count in server.decisions(schedule.id)) == 100
    assert server.store.schedules[schedule.id].missed == missed


def test_a_coalesced_run_has_the_number_of_missed_instants() -> None:
    server = Server(slots=0)
    schedule = made(server, rule=every(60, end_at=10 * MINUTE))

    server.settle(HOUR)

    [run] = server.runs(schedule.id)
    assert (run.trigger, run.scheduled_for, run.missed_count) == (
        Trigger.CATCHUP,
        10 * MINUTE,
        9,
    )
    assert kinds(server, schedule) == [Decision.COALESCED, Decision.CAUGHT_UP]


def test_a_schedule_catches_up_the_instant_from_which_it_is_resumed() -> None:
    server = Server()
    schedule = made(server, rule=every(3_600))
    server.send(PauseSchedule(schedule.name), SECOND)

    server.send(ResumeSchedule(schedule.name, HOUR), HOUR + 30 * MINUTE)
    server.settle(HOUR + 30 * MINUTE)

    assert [run.scheduled_for for run in server.runs(schedule.id)] == [HOUR]


def test_instants_that_wait_when_the_rule_is_changed_are_missed_and_leave_a_decision() -> None:
    server = Server()
    schedule = made(server)
    server.apply(PauseServer([PauseScope.SCHEDULES]), T1)

    changed = server.put(make_schedule_spec(rule=every(3_600)), 10 * MINUTE)
    server.apply(ResumeServer([PauseScope.SCHEDULES]), 10 * MINUTE)
    server.settle(HOUR)

    assert server.decisions(schedule.id) == [
        (Decision.MISSED, 10 * MINUTE, 10),
        (Decision.FIRED, HOUR, 1),
    ]
    assert changed.missed == 10
