"""Commands on schedules: trigger, pause, resume, edit and delete."""

from __future__ import annotations

from schedo.core.commands import (
    DeleteSchedule,
    PauseSchedule,
    PutEffect,
    PutSchedule,
    ResumeSchedule,
    Triggered,
)
from schedo.core.loads import LoadSchedule
from schedo.core.model import Catchup, Decision, Overlap, Schedule, Trigger
from schedo.core.states import State
from tests.core.builders import DAY, HOUR, MINUTE, SECOND, T0, every, make_schedule_spec, make_spec
from tests.core.scheduled import T1, kinds, made, states
from tests.core.server import Server

# Manual runs.


def test_a_manual_run_is_due_now_and_does_not_change_the_next_fire() -> None:
    server = Server()
    schedule = made(server, rule=every(60, jitter_us=30 * SECOND))

    run, skipped_by = server.trigger("s", 10 * SECOND)

    assert run is not None
    assert (run.trigger, run.scheduled_for, run.due_at) == (
        Trigger.MANUAL,
        10 * SECOND,
        10 * SECOND,
    )
    assert skipped_by is None
    assert schedule.next_fire_at == MINUTE
    assert server.decisions(schedule.id) == [(Decision.MANUAL, 10 * SECOND, 1)]


def test_a_skipped_manual_run_names_the_unfinished_run() -> None:
    server = Server()
    schedule = made(server)
    server.settle(MINUTE)
    [first] = server.runs(schedule.id)

    assert server.trigger("s", 61 * SECOND) == Triggered(None, first.id)
    assert kinds(server, schedule)[-1] is Decision.SKIPPED_OVERLAP


def test_a_manual_run_may_have_its_own_overlap_policy() -> None:
    server = Server()
    schedule = made(server)
    server.settle(MINUTE)

    assert server.trigger("s", 61 * SECOND, Overlap.ALLOW).job is not None
    assert server.trigger("s", 62 * SECOND, Overlap.BUFFER_ONE).job is not None
    server.settle(62 * SECOND)

    assert states(server, schedule) == [State.RUNNING, State.RUNNING, State.BLOCKED]


def test_two_manual_runs_at_one_instant_are_two_runs() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.ALLOW)

    server.trigger("s", SECOND)
    server.trigger("s", SECOND)
    server.settle(SECOND)

    assert len(server.runs(schedule.id)) == 2


# Pause and resume.


def test_a_paused_schedule_does_not_fire_but_can_be_triggered() -> None:
    server = Server()
    schedule = made(server)

    server.send(PauseSchedule(schedule.name, "for a while"), SECOND)
    server.settle(HOUR)
    assert (schedule.paused, schedule.note, schedule.updated_at) == (True, "for a while", SECOND)
    assert server.runs(schedule.id) == []
    assert server.scheduler.next_wake_at() is None

    server.trigger("s", HOUR)
    server.settle(HOUR)
    assert states(server, schedule) == [State.RUNNING]


def test_a_resumed_schedule_continues_from_now() -> None:
    server = Server()
    schedule = made(server)
    server.send(PauseSchedule(schedule.name, "x"), SECOND)

    server.send(ResumeSchedule(schedule.name), HOUR)
    server.settle(HOUR + MINUTE)

    assert (schedule.paused, schedule.note) == (False, None)
    assert [run.scheduled_for for run in server.runs(schedule.id)] == [HOUR + MINUTE]
    assert kinds(server, schedule) == [Decision.PAUSED, Decision.FIRED]


def test_a_schedule_resumed_from_an_earlier_instant_catches_up() -> None:
    server = Server()
    schedule = made(server, catchup=Catchup.ALL, overlap=Overlap.ALLOW)
    server.send(PauseSchedule(schedule.name), SECOND)

    server.send(ResumeSchedule(schedule.name, HOUR - 3 * MINUTE), HOUR)
    server.settle(HOUR)

    assert [run.scheduled_for for run in server.runs(schedule.id)] == [
        HOUR - 3 * MINUTE,
        HOUR - 2 * MINUTE,
        HOUR - MINUTE,
        HOUR,
    ]


def test_a_schedule_is_never_resumed_from_the_future() -> None:
    server = Server()
    schedule = made(server)
    server.send(PauseSchedule(schedule.name), SECOND)

    server.send(ResumeSchedule(schedule.name, DAY), HOUR)

    assert schedule.next_fire_at == HOUR + MINUTE


def test_an_instant_that_fired_before_the_pause_does_not_fire_again() -> None:
    server = Server()
    schedule = made(server, catchup=Catchup.ALL, overlap=Overlap.ALLOW)
    server.settle(MINUTE)
    server.send(PauseSchedule(schedule.name), 90 * SECOND)

    server.send(ResumeSchedule(schedule.name, T0), 150 * SECOND)
    server.settle(150 * SECOND)

    assert [run.scheduled_for for run in server.runs(schedule.id)] == [MINUTE, 2 * MINUTE]


def test_resuming_a_schedule_that_is_not_paused_does_not_change_its_fires() -> None:
    server = Server()
    schedule = made(server)

    server.send(ResumeSchedule(schedule.name, T0), SECOND)

    assert (schedule.evaluated_through, schedule.next_fire_at) == (0, MINUTE)


# Edits.


def test_putting_the_same_spec_again_changes_nothing() -> None:
    server = Server()
    schedule = made(server)

    again, effect = server.apply(PutSchedule(make_schedule_spec()), HOUR)

    assert (again, effect) == (schedule, PutEffect.UNCHANGED)
    assert not server.scheduler._jobs.changes


def test_putting_the_same_spec_again_does_not_resume_a_paused_schedule() -> None:
    server = Server()
    schedule = made(server)
    server.send(PauseSchedule(schedule.name, "by hand"), SECOND)

    server.put(make_schedule_spec(), MINUTE)

    assert schedule.paused


def test_a_new_rule_never_fires_for_the_past() -> None:
    server = Server()
    schedule = made(server, rule=every(7_200))

    server.put(make_schedule_spec(rule=every(60)), HOUR)
    server.settle(HOUR)
    assert server.runs(schedule.id) == []

    server.settle(HOUR + MINUTE)
    assert [run.scheduled_for for run in server.runs(schedule.id)] == [HOUR + MINUTE]


def test_a_new_rule_never_fires_an_instant_again_even_if_the_clock_was_set_back() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.ALLOW)
    server.settle(2 * MINUTE)

    server.put(make_schedule_spec(rule=every(30), overlap=Overlap.ALLOW), 61 * SECOND)
    server.settle(150 * SECOND)

    assert [run.scheduled_for for run in server.runs(schedule.id)] == [
        2 * MINUTE,
        150 * SECOND,
    ]


def test_a_new_payload_does_not_change_the_next_fire() -> None:
    server = Server()
    schedule = made(server)

    server.put(make_schedule_spec(job=make_spec(payload=b"2")), 30 * SECOND)
    server.settle(MINUTE)

    assert schedule.updated_at == 30 * SECOND
    assert [run.payload for run in server.runs(schedule.id)] == [b"2"]


def test_a_put_can_pause_a_schedule_and_a_put_that_resumes_it_uses_the_new_rule() -> None:
    server = Server()
    schedule = made(server)

    server.put(make_schedule_spec(paused=True), SECOND)
    server.settle(HOUR)
    assert server.runs(schedule.id) == []

    edited = server.put(make_schedule_spec(rule=every(7)), HOUR)
    assert edited.next_fire_at == 3_605 * SECOND  # 515 times 7 s
    assert not edited.paused


def test_a_put_that_resumes_a_schedule_ends_the_note_of_its_pause() -> None:
    server = Server()
    schedule = made(server)
    server.apply(PauseSchedule(schedule.name, "the database is moved"), T1)
    assert server.put(make_schedule_spec(paused=True), T1).note == "the database is moved"

    assert server.put(make_schedule_spec(), T1).note is None
    assert server.put(make_schedule_spec(paused=True), T1).note is None


def test_a_schedule_can_be_created_paused() -> None:
    server = Server()
    schedule = made(server, paused=True)

    server.settle(HOUR)

    assert server.runs(schedule.id) == []


def test_two_puts_of_one_new_name_make_one_schedule() -> None:
    server = Server()
    found: list[tuple[Schedule, PutEffect]] = []
    for seconds in (60, 30):
        spec = make_schedule_spec(rule=every(seconds))
        server.send(PutSchedule(spec), T1, found.append)

    server.round(T1)

    assert [effect for _, effect in found] == [PutEffect.CREATED, PutEffect.CHANGED]
    assert found[0][0] is found[1][0]


# Delete.


def test_a_deleted_schedule_fires_no_more_and_its_runs_stay() -> None:
    server = Server()
    schedule = made(server)
    server.settle(MINUTE)

    server.send(DeleteSchedule(schedule.name), 61 * SECOND)
    server.settle(HOUR)

    assert server.store.schedules == {}
    assert states(server, schedule) == [State.RUNNING]
    server.complete(server.runs(schedule.id)[0].id, HOUR)
    server.settle(HOUR)


def test_deleting_a_schedule_unblocks_its_blocked_run() -> None:
    server = Server()
    schedule = made(server, overlap=Overlap.BUFFER_ONE)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)

    server.send(DeleteSchedule(schedule.name), 2 * MINUTE)
    server.settle(2 * MINUTE)

    assert states(server, schedule) == [State.RUNNING, State.RUNNING]


def test_a_name_can_be_used_again_in_the_same_commit() -> None:
    server = Server()
    old = made(server)
    server.send(DeleteSchedule(old.name), SECOND)

    new = server.put(make_schedule_spec(), SECOND)
    server.settle(SECOND)

    assert new.id != old.id
    assert list(server.store.schedules) == [new.id]


def test_a_deleted_schedule_that_a_loaded_page_still_contains_stays_deleted() -> None:
    server = Server()
    schedule = made(server)
    server.crash(SECOND)
    server.take()
    server.commit()
    server.fetch()
    loaded = server.store.load_schedule("s")
    assert loaded is not None
    server.scheduler.apply(DeleteSchedule("s"), SECOND, {LoadSchedule("s"): loaded})

    server.deliver(SECOND)

    assert server.scheduler._schedule_table.find(schedule.id) is None
    assert server.scheduler._schedule_table.current("s", loaded) is None
    server.settle(HOUR)
    assert server.runs(schedule.id) == []


def test_a_schedule_paused_while_its_page_is_loaded_stays_paused() -> None:
    server = Server(slots=0)
    schedule = made(server)
    server.crash(SECOND)
    server.take()
    server.commit()
    server.fetch()
    loaded = server.store.load_schedule("s")
    server.scheduler.apply(PauseSchedule("s"), SECOND, {LoadSchedule("s"): loaded})

    server.deliver(SECOND)
    server.settle(HOUR)

    assert server.runs(schedule.id) == []


# Instants that pass during a pause.


def test_the_instants_of_a_pause_leave_one_decision_with_their_count() -> None:
    server = Server()
    schedule = made(server)
    server.settle(MINUTE)
    server.send(PauseSchedule(schedule.name), 90 * SECOND)
    server.settle(HOUR)

    server.send(ResumeSchedule(schedule.name), HOUR)
    server.settle(HOUR)

    assert server.decisions(schedule.id) == [
        (Decision.FIRED, MINUTE, 1),
        (Decision.PAUSED, HOUR, 59),
    ]


def test_a_resume_from_an_earlier_instant_decides_about_the_instants_before_it_only() -> None:
    server = Server()
    schedule = made(server, catchup=Catchup.SKIP)
    server.send(PauseSchedule(schedule.name), SECOND)

    server.send(ResumeSchedule(schedule.name, HOUR - 10 * MINUTE), HOUR)
    server.settle(HOUR)

    assert server.decisions(schedule.id) == [
        (Decision.PAUSED, HOUR - 11 * MINUTE, 49),
        (Decision.MISSED, HOUR - MINUTE, 10),
        (Decision.FIRED, HOUR, 1),
    ]


def test_a_pause_without_an_instant_leaves_no_decision() -> None:
    server = Server()
    schedule = made(server)
    server.send(PauseSchedule(schedule.name), 10 * SECOND)

    server.send(ResumeSchedule(schedule.name), 20 * SECOND)
    server.send(ResumeSchedule(schedule.name), MINUTE - SECOND)

    assert server.decisions(schedule.id) == []


def test_a_put_that_ends_the_pause_or_changes_the_rule_decides_as_well() -> None:
    server = Server()
    schedule = made(server, paused=True)

    server.put(make_schedule_spec(paused=True, rule=every(3_600)), 10 * MINUTE)
    server.put(make_schedule_spec(paused=False, rule=every(3_600)), 3 * HOUR)
    server.settle(3 * HOUR)

    assert server.decisions(schedule.id) == [
        (Decision.PAUSED, 10 * MINUTE, 10),
        (Decision.PAUSED, 3 * HOUR, 3),
    ]


def test_a_put_that_changes_something_else_leaves_the_pause_undecided() -> None:
    server = Server()
    schedule = made(server, paused=True)

    server.put(make_schedule_spec(paused=True, overlap=Overlap.ALLOW), 10 * MINUTE)
    server.settle(10 * MINUTE)

    assert server.decisions(schedule.id) == []
