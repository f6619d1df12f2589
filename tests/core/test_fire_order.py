"""Many schedules of one instant: newly due ones fire before them, and all of them fire."""

from __future__ import annotations

from schedo.core.commands import DeleteSchedule, PauseSchedule
from schedo.core.model import Overlap, Rule, Schedule
from schedo.core.states import State
from tests.core.builders import HOUR, MINUTE, SECOND, every, make_schedule_spec
from tests.core.scheduled import T1
from tests.core.server import Server

COUNT = 400
CAPACITY = 8


def crowded() -> tuple[Server, list[Schedule]]:
    """Return a server with COUNT schedules that fire at one hour."""
    server = Server(CAPACITY, slots=0)
    made = []
    for number in range(COUNT):
        made.append(server.put(make_schedule_spec(f"s{number}", Rule(at=HOUR)), T1))
        if number % 50 == 0:
            server.settle(T1)
    server.settle(T1)
    return server, made


def turn(server: Server, now: int) -> None:
    """Do one turn and one round."""
    server.tick(now)
    server.round(now)


def test_a_schedule_that_fires_each_second_is_on_time_whatever_its_id() -> None:
    server, made = crowded()
    spec = make_schedule_spec("second", every(1), overlap=Overlap.ALLOW)
    second = server.put(spec, HOUR - 3 * SECOND)
    server.settle(HOUR - SECOND)
    moment = HOUR

    for step in range(4):
        turn(server, moment + step)
    for _ in range(3):
        moment += SECOND
        turn(server, moment)

    runs = server.runs(second.id)
    assert [run.scheduled_for for run in runs][-4:] == [HOUR + n * SECOND for n in range(4)]
    assert all(run.created_at - (run.scheduled_for or 0) < 10 for run in runs[-4:])
    assert sum(len(server.runs(schedule.id)) for schedule in made) < COUNT, "a backlog is left"


def test_each_of_many_schedules_due_at_one_instant_fires_once() -> None:
    server, made = crowded()

    server.settle(HOUR)

    assert [len(server.runs(schedule.id)) for schedule in made] == [1] * COUNT
    assert len(server.scheduler._schedule_table.order) == 0
    assert len(server.scheduler._schedule_table._schedules) == 0


def test_a_crash_while_many_schedules_fire_repeats_no_fire_and_loses_none() -> None:
    server, made = crowded()
    for _ in range(12):
        turn(server, HOUR)
    fired = sum(len(server.runs(schedule.id)) for schedule in made)
    assert 0 < fired < COUNT

    server.crash(HOUR + SECOND)
    server.settle(HOUR + SECOND)

    assert [len(server.runs(schedule.id)) for schedule in made] == [1] * COUNT


def test_a_change_of_an_overdue_schedule_takes_effect() -> None:
    server, made = crowded()
    for _ in range(6):
        turn(server, HOUR + SECOND)
    overdue = [*server.scheduler._schedule_table.order.overdue]
    assert len(overdue) >= 3
    paused, deleted, edited = (
        next(schedule for schedule in made if schedule.id == ident) for ident in overdue[:3]
    )

    server.send(PauseSchedule(paused.name), HOUR + SECOND)
    server.send(DeleteSchedule(deleted.name), HOUR + SECOND)
    server.put(make_schedule_spec(edited.name, Rule(at=2 * HOUR)), HOUR + SECOND)
    server.settle(HOUR + MINUTE)

    runs = {schedule.id: len(server.runs(schedule.id)) for schedule in made}
    assert [runs.pop(ident) for ident in overdue[:3]] == [0, 0, 0]
    assert set(runs.values()) == {1}
    server.settle(2 * HOUR)
    assert len(server.runs(edited.id)) == 1


def test_memory_stays_bounded_while_many_schedules_fire() -> None:
    server, made = crowded()
    most = 0
    while any(job.state is not State.QUEUED for job in server.store.jobs.values()) or (
        len(server.store.jobs) < COUNT
    ):
        turn(server, HOUR + SECOND)
        most = max(most, len(server.scheduler._schedule_table._schedules))

    assert most < 150, "the index, a page of the backlog, and what one commit takes"
    assert made
