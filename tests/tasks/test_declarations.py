"""The schedules of an application's code: what a start puts, keeps, deletes and logs."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schedo.core.commands import Declared, DeclareSchedules, PutEffect
from schedo.core.limits import MINUTE
from schedo.core.model import JobSpec, Overlap, Rule, ScheduleSpec
from schedo.tasks.declarations import declare_schedules
from tests.engine.world import World, running

CODE = "code:shop:app"


def spec(name: str = "s", overlap: Overlap = Overlap.SKIP) -> ScheduleSpec:
    return ScheduleSpec(name, Rule(every_us=MINUTE), JobSpec("work"), overlap=overlap)


class Code:
    """An application of which each start puts its schedules."""

    def __init__(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        self.engine = world.engine
        self._caplog = caplog

    async def start(self, *specs: ScheduleSpec, is_pruning: bool = False) -> list[str]:
        """Start the application; return the lines that it logs."""
        self._caplog.clear()
        await declare_schedules(self.engine, CODE, specs, is_pruning=is_pruning)
        return [record.message for record in self._caplog.records]


@pytest.fixture
async def code(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Code]:
    caplog.set_level(logging.INFO, "schedo")
    async with running(tmp_path / "data" / "schedo.db") as world:
        yield Code(world, caplog)


async def test_a_start_logs_what_is_created_changed_and_up_to_date(code: Code) -> None:
    first = await code.start(spec("a"), spec("b"))
    second = await code.start(spec("a"), spec("b", Overlap.ALLOW), spec("c"))
    third = await code.start(spec("a"), spec("b", Overlap.ALLOW), spec("c"))

    assert first == ["schedules of code:shop:app: 2 created (a, b)"]
    assert second == ["schedules of code:shop:app: 1 created (c), 1 changed (b), 1 up to date"]
    assert third == ["schedules of code:shop:app: 3 up to date"]


async def test_a_server_says_what_other_servers_of_its_cluster_put(
    code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = code.engine.declarations.put

    async def put_own(command: DeclareSchedules) -> list[Declared]:
        return [each for each in await put(command) if each.schedule.name == "a"]

    monkeypatch.setattr(code.engine.declarations, "put", put_own)

    some = await code.start(spec("a"), spec("b"), spec("c"))
    none = await code.start(spec("b"))

    assert some == ["schedules of code:shop:app: 1 created (a), 2 in shards of other servers"]
    assert none[0] == "schedules of code:shop:app: 1 in shards of other servers"


async def test_an_application_without_schedules_logs_nothing(code: Code) -> None:
    assert await code.start() == []


async def test_what_the_code_no_longer_declares_is_logged_at_each_start(code: Code) -> None:
    await code.start(spec("a"), spec("old"), spec("older"))
    await code.engine.put_schedule(spec("by-hand"))

    for _ in range(2):
        lines = await code.start(spec("a"))
        assert lines[1:] == [
            "code:shop:app no longer declares old, older, which will fire until deleted: schedo"
            " schedules rm NAME deletes one, a start with --prune deletes all that are no longer"
            " declared"
        ]
    assert await names(code) == ["a", "by-hand", "old", "older"]


async def test_many_names_are_cut(code: Code) -> None:
    await code.start(*(spec(f"s{number:02}") for number in range(12)))

    line = (await code.start())[-1]

    assert "s00, s01, s02, s03, s04, s05, s06, s07, s08, s09 and 2 more, which" in line


async def test_a_pruning_start_deletes_what_the_code_no_longer_declares(code: Code) -> None:
    await code.start(spec("a"), spec("old"))
    await code.engine.put_schedule(spec("by-hand"))

    lines = await code.start(spec("a"), is_pruning=True)

    assert lines == ["schedules of code:shop:app: 1 up to date, 1 removed (old)"]
    assert await names(code) == ["a", "by-hand"]


async def test_a_change_by_hand_is_kept_and_logged_at_each_start(code: Code) -> None:
    await code.start(spec())
    _, effect = await code.engine.put_schedule(spec(overlap=Overlap.ALLOW))
    assert effect is PutEffect.CHANGED

    for _ in range(2):
        assert await code.start(spec()) == [
            "schedules of code:shop:app: 1 changed by hand (s)",
            "schedule s: overlap: changed by hand; this stays until code:shop:app declares the"
            " schedule differently, or until a reset (schedo schedules reset s)",
        ]
    assert (await code.engine.get_schedule("s")).spec.overlap is Overlap.ALLOW


async def test_code_that_has_changed_replaces_a_change_by_hand_and_logs_it(code: Code) -> None:
    await code.start(spec())
    await code.engine.put_schedule(spec(overlap=Overlap.ALLOW))

    assert await code.start(spec(overlap=Overlap.BUFFER_ONE)) == [
        "schedules of code:shop:app: 1 changed (s)",
        "schedule s: code:shop:app declares it differently now, which replaces a change by hand of"
        " overlap",
    ]


async def test_a_reset_undoes_a_change_by_hand(code: Code) -> None:
    await code.start(spec())
    await code.engine.put_schedule(spec(overlap=Overlap.ALLOW))

    schedule, effect = await code.engine.declarations.reset("s")

    assert (effect, schedule.spec) == (PutEffect.CHANGED, spec())
    assert await code.start(spec()) == ["schedules of code:shop:app: 1 up to date"]


async def test_a_schedule_of_another_declaration_is_taken_over_with_a_warning(code: Code) -> None:
    await declare_schedules(code.engine, "code:old:app", [spec()], is_pruning=False)

    assert await code.start(spec()) == [
        "schedules of code:shop:app: 1 up to date",
        "schedule s: it now belongs to code:shop:app; before, code:old:app declared it",
    ]


async def names(code: Code) -> list[str]:
    return [schedule.name for schedule in (await code.engine.list_schedules(None, 100)).schedules]
