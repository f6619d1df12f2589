"""The workers of a child process, and slots that follow how fast it starts its leases."""

from __future__ import annotations

import os
from pathlib import Path

from schedo.core.model import PLAIN, Options, Retry
from schedo.core.worker_pool import WorkerSpec
from schedo.protocol.frames import Attach
from schedo.worker.process.child_slots import ChildSlots
from tests.worker.site import read_from, serving, write_to


def make_slots(slots: int, async_slots: int, tasks: str = "mail report") -> ChildSlots:
    """Return the slots of a child whose task `mail` is async."""
    made = ChildSlots(WorkerSpec("process-7", slots, frozenset()), async_slots)
    async_tasks = frozenset({"mail"} & set(tasks.split()))
    made.set_tasks(Attach(7, dict.fromkeys(tasks.split(), PLAIN), [], async_tasks))
    return made


def workers(slots: ChildSlots) -> dict[str, tuple[int, set[str]]]:
    return {spec.id: (spec.slots, set(spec.tasks or ())) for spec in slots.workers}


def test_async_tasks_and_plain_functions_have_slots_of_their_own() -> None:
    assert workers(make_slots(8, 500)) == {
        "process-7": (32, {"mail"}),
        "process-7-threads": (8, {"report"}),
    }


def test_tasks_of_one_kind_make_one_worker() -> None:
    assert workers(make_slots(8, 500, "mail")) == {"process-7": (32, {"mail"})}
    assert workers(make_slots(8, 500, "report")) == {"process-7": (8, {"report"})}


def test_without_async_slots_all_tasks_share_the_slots() -> None:
    slots = make_slots(8, 0)

    assert workers(slots) == {"process-7": (8, {"mail", "report"})}
    assert not slots.adapt(100, 0)
    assert not slots.adapt(100, 0)
    assert not slots.grow(100, 100)


def test_a_child_that_starts_its_leases_late_gets_fewer_async_slots() -> None:
    slots = make_slots(8, 100)

    changes = [slots.adapt(32, started) for started in (0, 10, 20, 30)]

    # At the first call the leases may have been sent just now.
    assert changes == [False, True, True, False]
    assert workers(slots) == {
        "process-7": (8, {"mail"}),
        "process-7-threads": (8, {"report"}),
    }


def test_a_child_that_starts_its_leases_gets_more_async_slots() -> None:
    slots = make_slots(8, 100)

    changes = [slots.adapt(32, 32), slots.adapt(96, 80), slots.adapt(196, 196)]

    assert changes == [True, True, False]
    assert workers(slots)["process-7"] == (100, {"mail"})


def test_a_child_that_has_started_most_leases_gets_more_async_slots_with_a_frame() -> None:
    slots = make_slots(8, 100)

    assert not slots.grow(0, 0)  # nothing is known of it yet
    assert not slots.grow(32, 16)
    assert slots.grow(32, 17)
    assert slots.grow(64, 64)
    assert not slots.grow(100, 100)
    assert workers(slots)["process-7"] == (100, {"mail"})


def test_a_late_child_keeps_async_slots_that_are_fewer_than_the_others() -> None:
    slots = make_slots(8, 4)

    assert not any(slots.adapt(10, 1) for _ in range(3))
    assert workers(slots)["process-7"] == (4, {"mail"})


async def test_async_tasks_take_no_slots_of_plain_functions(tmp_path: Path, pipe: Path) -> None:
    other = tmp_path / "other"
    os.mkfifo(other)
    async with serving(tmp_path, slots=1, async_slots=2) as site:
        waiting = [await site.submit("wait_for", pipe=str(way)) for way in (pipe, other)]
        pid = (await site.run("where_plainly"))["result"]
        statuses = {each.name: each for each in site.engine.sessions.list()}
        for way in (pipe, other):
            await write_to(way, "fine")
        ended = [(await site.end(job))["result"] for job in waiting]

    assert ended == ["fine", "fine"]
    assert statuses[f"process-{pid}"].running == 2
    assert statuses[f"process-{pid}-threads"].slots == 1


async def test_plain_functions_run_only_in_their_own_slots(tmp_path: Path, pipe: Path) -> None:
    async with serving(tmp_path, slots=1, async_slots=2) as site:
        busy = await site.submit("watchful", pipe=str(pipe))
        await read_from(pipe)
        job = await site.submit("where_plainly")
        assert (await site.run("add", a=1, b=2))["result"] == 3

        assert (await site.backend.get(job))["state"] == "queued"
        await site.backend.cancel(busy)
        await read_from(pipe)
        assert (await site.end(job))["state"] == "completed"


async def test_a_suspect_runs_alone_in_its_process_whatever_its_kind(
    tmp_path: Path, pipe: Path
) -> None:
    async with serving(tmp_path, slots=2, async_slots=2) as site:
        neighbour = await site.submit("watchful", pipe=str(pipe))
        await read_from(pipe)
        culprit = await site.submit("die_always", options=Options(retry=Retry()))
        await read_from(pipe)  # the neighbour runs again, in a process of its own
        isolated = [each for each in site.engine.sessions.list() if each.slots == 1]
        await site.backend.cancel(neighbour)
        await read_from(pipe)
        losses = {job: (await site.end(job))["losses"] for job in (neighbour, culprit)}

    assert losses == {neighbour: 0, culprit: 3}
    assert [each.running for each in isolated] == [1]
