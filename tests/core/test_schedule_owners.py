"""The owner of a schedule: what declares it, and what a change by hand and a removal do."""

from __future__ import annotations

from typing import TypeVar

import pytest

from schedo.core import expectation_table
from schedo.core.commands import (
    Command,
    Declared,
    DeclareSchedules,
    PauseSchedule,
    PutEffect,
    PutSchedule,
    ResetSchedule,
)
from schedo.core.declarations import plan_declaration
from schedo.core.expectation_table import PutExpectation
from schedo.core.expectations import ExpectationSpec
from schedo.core.limits import EXPECTATIONS_MAX
from schedo.core.model import Overlap, Schedule, ScheduleSpec
from schedo.errors import Conflict, Forbidden, SchedoError
from tests.core.builders import MINUTE, every, make_schedule_spec
from tests.core.expecting import WITHIN
from tests.core.scheduled import made
from tests.core.server import Server

R = TypeVar("R")
CODE = "code:shop:app"
SPEC = make_schedule_spec()
EDITED = make_schedule_spec(overlap=Overlap.ALLOW)
NEWER = make_schedule_spec(overlap=Overlap.BUFFER_ONE)


def declare(
    server: Server, *specs: ScheduleSpec, owner: str = CODE, removed: tuple[str, ...] = ()
) -> list[Declared]:
    """Declare the specs as the code of an application does."""
    return send(server, DeclareSchedules(owner, specs, removed, keeps_edits=True))


def send(server: Server, command: Command[R]) -> R:
    """Return the reply to a command whose schedules may have to be loaded."""
    replies: list[R] = []
    server.send(command, MINUTE, replies.append)
    server.round(MINUTE)
    [reply] = replies
    server.round(MINUTE)
    return reply


def put(server: Server, spec: ScheduleSpec) -> Schedule:
    schedule, _ = send(server, PutSchedule(spec))
    return schedule


def effects(done: list[Declared]) -> list[PutEffect]:
    return [each.effect for each in done]


def test_a_put_by_hand_makes_a_schedule_without_a_declaration() -> None:
    schedule = made(Server())

    assert (schedule.owner, schedule.declared) == ("api", None)


def test_a_schedule_that_is_not_there_is_created() -> None:
    assert plan_declaration(None, SPEC, DeclareSchedules(CODE, [SPEC])) is PutEffect.CREATED


def test_a_declared_schedule_belongs_to_its_owner() -> None:
    server = Server()

    [first] = declare(server, SPEC)
    [second] = declare(server, SPEC)

    assert (first.effect, first.before, first.schedule.owner) == (PutEffect.CREATED, None, CODE)
    assert second.effect is PutEffect.UNCHANGED


def test_a_declaration_takes_over_the_schedule_of_another_owner() -> None:
    server = Server()
    made(server)

    [done] = declare(server, SPEC)

    assert done.effect is PutEffect.UNCHANGED
    assert done.before is not None
    assert (done.before.owner, done.schedule.owner) == ("api", CODE)


def test_a_change_by_hand_keeps_the_owner_and_its_declaration() -> None:
    server = Server()
    declare(server, SPEC)

    schedule = put(server, EDITED)
    assert (schedule.owner, schedule.declared) == (CODE, SPEC)

    schedule = put(server, NEWER)
    assert (schedule.owner, schedule.declared) == (CODE, SPEC)


def test_a_change_by_hand_that_is_undone_by_hand_is_forgotten() -> None:
    server = Server()
    declare(server, SPEC)
    put(server, EDITED)

    assert put(server, SPEC).declared is None


def test_code_keeps_a_change_by_hand_while_it_declares_the_same() -> None:
    server = Server()
    declare(server, SPEC)
    put(server, EDITED)

    [done] = declare(server, SPEC)

    assert done.effect is PutEffect.KEPT
    assert (done.schedule.spec, done.schedule.declared) == (EDITED, SPEC)


def test_code_that_has_changed_replaces_a_change_by_hand() -> None:
    server = Server()
    declare(server, SPEC)
    put(server, EDITED)

    [done] = declare(server, NEWER)

    assert done.effect is PutEffect.CHANGED
    assert done.before is not None
    assert (done.before.spec, done.before.declared) == (EDITED, SPEC)
    assert (done.schedule.spec, done.schedule.declared) == (NEWER, None)


def test_code_that_declares_the_change_by_hand_agrees_with_it() -> None:
    server = Server()
    declare(server, SPEC)
    put(server, EDITED)

    [done] = declare(server, EDITED)

    assert (done.effect, done.schedule.declared) == (PutEffect.UNCHANGED, None)


def test_a_file_replaces_a_change_by_hand() -> None:
    server = Server()
    send(server, DeclareSchedules("file:x", [SPEC]))
    put(server, EDITED)

    [done] = send(server, DeclareSchedules("file:x", [SPEC]))

    assert done.effect is PutEffect.CHANGED
    assert (done.schedule.spec, done.schedule.declared) == (SPEC, None)


def test_a_declaration_removes_only_what_its_owner_has() -> None:
    server = Server()
    declare(server, make_schedule_spec(name="old"), make_schedule_spec(name="kept"))
    declare(server, make_schedule_spec(name="other"), owner="file:x")

    done = declare(server, make_schedule_spec(name="kept"), removed=("old", "other", "gone"))

    assert effects(done) == [PutEffect.UNCHANGED, PutEffect.REMOVED]
    assert done[1].schedule.name == "old"
    assert server.scheduler.find_schedule(done[1].schedule.id) is None


def test_what_is_paused_already_is_not_changed_by_a_paused_spec() -> None:
    server = Server()
    made(server)
    schedule = send(server, PauseSchedule("s", "at night"))
    before = schedule.updated_at

    schedule, effect = send(server, PutSchedule(make_schedule_spec(paused=True)))

    assert effect is PutEffect.UNCHANGED
    assert (schedule.paused, schedule.note, schedule.updated_at) == (True, "at night", before)
    assert schedule.spec.paused


def test_a_declaration_finds_its_schedules_in_memory_and_in_the_store() -> None:
    server = Server()
    declare(server, make_schedule_spec(name="a", paused=True), make_schedule_spec(name="b"))

    done = declare(server, make_schedule_spec(name="a"), make_schedule_spec(name="b"))

    assert effects(done) == [PutEffect.CHANGED, PutEffect.UNCHANGED]


def test_a_reset_puts_what_the_owner_declared_last() -> None:
    server = Server()
    declare(server, SPEC)
    put(server, EDITED)

    schedule, effect = send(server, ResetSchedule("s"))
    assert (effect, schedule.spec, schedule.declared) == (PutEffect.CHANGED, SPEC, None)

    _, effect = send(server, ResetSchedule("s"))
    assert effect is PutEffect.UNCHANGED


def test_a_reset_makes_no_expectation_beyond_the_most_there_may_be() -> None:
    server = Server()
    declare(server, make_schedule_spec(expect=WITHIN))
    put(server, EDITED)
    for number in range(EXPECTATIONS_MAX):
        server.apply(PutExpectation(ExpectationSpec(f"n{number}", every(60), WITHIN)), MINUTE)

    with pytest.raises(Conflict):
        send(server, ResetSchedule("s"))

    assert put(server, EDITED).declared == make_schedule_spec(expect=WITHIN)


def test_expectations_that_take_the_place_of_others_need_no_further_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expectation_table, "EXPECTATIONS_MAX", 2)
    plain = [make_schedule_spec(name=name) for name in "abcd"]
    watched = [make_schedule_spec(name=name, expect=WITHIN) for name in "abcd"]
    server = Server()
    declare(server, *watched[:2])

    with pytest.raises(Conflict):
        declare(server, *watched[:3])
    done = declare(server, plain[0], *watched[2:], removed=("b",))

    assert effects(done) == [
        PutEffect.CHANGED,
        PutEffect.CREATED,
        PutEffect.CREATED,
        PutEffect.REMOVED,
    ]


def test_a_kept_edit_keeps_its_expectation_and_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectation_table, "EXPECTATIONS_MAX", 1)
    server = Server()
    declare(server, SPEC)
    put(server, make_schedule_spec(expect=WITHIN))

    with pytest.raises(Conflict):
        declare(server, SPEC, make_schedule_spec(name="new", expect=WITHIN))


def test_a_declaration_that_its_check_refuses_changes_nothing() -> None:
    server = Server()
    declare(server, make_schedule_spec(name="old"), make_schedule_spec(name="a"))
    checked: list[tuple[str, str]] = []

    def refuse(verb: str, schedule: Schedule) -> None:
        checked.append((verb, schedule.name))
        if verb == "delete":
            raise Forbidden("no")

    specs = [make_schedule_spec(name="a", paused=True), make_schedule_spec(name="new")]
    command = DeclareSchedules(CODE, specs, ["old", "gone"], check=refuse)
    refusals: list[SchedoError] = []
    server.send(command, MINUTE, refused=refusals.append)
    server.round(MINUTE)

    assert checked == [("replace", "a"), ("delete", "old")]
    assert [type(each) for each in refusals] == [Forbidden]
    [kept] = declare(server, make_schedule_spec(name="a"), removed=("new",))
    assert kept.effect is PutEffect.UNCHANGED


def test_a_declaration_that_its_check_accepts_is_carried_out() -> None:
    server = Server()
    declare(server, make_schedule_spec(name="old"))

    specs = [make_schedule_spec(name="new")]
    done = send(server, DeclareSchedules(CODE, specs, ["old"], check=lambda verb, schedule: None))

    assert effects(done) == [PutEffect.CREATED, PutEffect.REMOVED]
