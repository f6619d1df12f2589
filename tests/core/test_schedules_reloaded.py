"""Schedules whose records are loaded again: after a crash, a step of the clock, a retry."""

from __future__ import annotations

from schedo.core.limits import BLOCKED_PAGE
from schedo.core.loads import BlockedRun, LoadBlocked
from schedo.core.model import Catchup, Overlap, Retry
from schedo.core.states import State
from tests.core.builders import (
    HOUR,
    MINUTE,
    SECOND,
    T0,
    every,
    make_schedule_spec,
    make_spec,
    worker_spec,
)
from tests.core.scheduled import made
from tests.core.server import Server


def test_an_overdue_schedule_is_not_due_any_more_when_the_clock_is_set_back() -> None:
    server = Server(capacity=4, slots=0)
    for number in range(30):
        server.put(make_schedule_spec(f"s{number}", catchup=Catchup.ALL, catchup_max=1))
    server.settle(T0)
    server.crash(HOUR)
    server.round(HOUR)
    server.tick(HOUR)
    server.round(HOUR)
    assert server.scheduler._schedule_table.order.overdue, "a page of the backlog has been loaded"
    fired = {schedule.name for schedule in server.store.schedules.values() if schedule.fired}

    server.tick(T0)
    server.round(T0)

    assert fired == {each.name for each in server.store.schedules.values() if each.fired}
    server.settle(HOUR)
    assert all(schedule.fired for schedule in server.store.schedules.values())


def test_a_retry_that_is_cancelled_while_its_schedule_is_loaded_stays_cancelled() -> None:
    server = Server(capacity=4, slots=100)
    retry = Retry(3, "fixed", 2 * HOUR, jitter=0.0)
    hourly = made(server, name="hourly", rule=every(3_600), job=make_spec(retry=retry))
    for number in range(30):
        made(server, name=f"s{number}", rule=every(1_800))
    server.settle(HOUR)
    [run] = server.runs(hourly.id)
    server.fail(run.id, HOUR + SECOND)  # its schedule must be loaded, to know when it fires next

    server.cancel(run.id, HOUR + SECOND)
    server.settle(HOUR + SECOND)

    assert server.state(run.id) is State.CANCELLED


def test_both_blocked_runs_of_a_deleted_schedule_are_unblocked_after_a_crash() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.CANCEL_OTHER)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    server.tick(3 * MINUTE)
    server.take()
    server.commit()
    _, second, third = server.runs(schedule.id)
    del server.store.schedules[schedule.id]

    server.crash(181 * SECOND)
    server.attach(worker_spec())
    server.settle(181 * SECOND)

    assert server.state(second.id) is State.RUNNING
    assert server.state(third.id) is State.RUNNING


def test_memory_wins_over_a_loaded_page_of_blocked_runs() -> None:
    server = Server(slots=0)
    schedule = made(server, overlap=Overlap.BUFFER_ONE)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    first, second = server.runs(schedule.id)
    server.cancel(first.id, 121 * SECOND)
    server.take()
    server.commit()
    page = (LoadBlocked(0, BLOCKED_PAGE), [BlockedRun(second.id, schedule.id, schedule.copy())])
    server.crash(122 * SECOND)
    server.cancel(second.id, 122 * SECOND)

    server.scheduler.deliver([page], 122 * SECOND)
    server.settle(122 * SECOND)

    assert server.state(second.id) is State.CANCELLED


def test_more_blocked_runs_than_fit_into_a_page_are_unblocked_after_a_crash() -> None:
    server = Server(capacity=4, slots=0)
    names = [f"s{number}" for number in range(BLOCKED_PAGE + 10)]
    rule = every(60, end_at=2 * MINUTE)
    schedules = [made(server, name=n, rule=rule, overlap=Overlap.BUFFER_ONE) for n in names]
    server.settle(MINUTE)
    server.settle(2 * MINUTE)
    waiting = [server.runs(schedule.id) for schedule in schedules]
    assert [runs[1].state for runs in waiting] == [State.BLOCKED] * len(names)

    server.crash(150 * SECOND)
    server.settle(150 * SECOND)
    assert len(server.scheduler._schedule_table.blocked._schedules) == 4
    assert {server.state(second.id) for _, second in waiting} == {State.BLOCKED}
    for first, _ in waiting:
        server.cancel(first.id, 151 * SECOND)
    server.settle(151 * SECOND)

    assert {server.state(second.id) for _, second in waiting} == {State.QUEUED}
