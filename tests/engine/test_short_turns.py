"""Turns that decide nothing: of completions alone, unless something may use the free slots."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from schedo.core.leases import Failed, Lease
from schedo.core.limits import SECOND
from schedo.core.model import Failure
from schedo.engine import clock_changes, turn_end
from schedo.engine import loop as engine_loop
from schedo.engine.turn_end import FEW_STARTS
from tests.engine.world import THRICE, World, running, spec


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The instants at which the engine looked for what is due."""
    instants: list[int] = []

    def tick(scheduler: Any, now: int, step_us: int) -> None:
        instants.append(now)
        original(scheduler, now, step_us)

    original = clock_changes.tick
    monkeypatch.setattr(engine_loop, "tick", tick)
    return instants


def end_one(world: World, outcome: Failed | None = None) -> None:
    """End the oldest attempt and let the turn run that applies it."""
    world.worker.end(outcome)
    world.engine._loop._turn()


async def test_a_completion_that_no_job_waits_for_ends_its_turn(
    tmp_path: Path, ticks: list[int]
) -> None:
    async with running(tmp_path / "s.db") as world:
        job = await world.submit()
        ticks.clear()

        end_one(world)

        assert ticks == []
        found = world.engine._loop.scheduler.find_job(job.id)
        assert found is not None
        assert found.state == "completed"


async def test_a_completion_starts_the_job_that_waits_for_its_slot(
    tmp_path: Path, ticks: list[int]
) -> None:
    async with running(tmp_path / "s.db") as world:
        for _ in range(11):
            await world.submit()
        assert len(world.worker.leases) == 10
        ticks.clear()

        end_one(world)

        assert ticks
        assert len(world.worker.leases) == 10


async def test_a_failure_arms_the_retry(tmp_path: Path, ticks: list[int]) -> None:
    async with running(tmp_path / "s.db") as world:
        job = await world.submit(retry=THRICE)
        ticks.clear()

        end_one(world, Failed(Failure("Error", "no")))

        assert ticks
        found = world.engine._loop.scheduler.find_job(job.id)
        assert found is not None
        assert world.clock.armed_at == found.due_at


async def test_a_completion_hides_no_instant_that_has_come(
    tmp_path: Path, ticks: list[int]
) -> None:
    async with running(tmp_path / "s.db") as world:
        await world.submit()
        await world.submit(run_at=world.clock.now() + SECOND)
        await world.engine.flush()
        world.clock._now += SECOND  # the alarm has not fired yet

        end_one(world)

        assert len(world.worker.leases) == 1


@pytest.mark.parametrize(
    ("count", "first"), [(1, "handler"), (FEW_STARTS, "handler"), (FEW_STARTS + 1, "alarm")]
)
async def test_the_handlers_of_few_jobs_come_before_the_rest_of_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, first: str
) -> None:
    order: list[str] = []
    loop = asyncio.get_running_loop()
    async with running(tmp_path / "s.db") as world:
        for _ in range(count):
            await world.submit(run_at=world.clock.now() + SECOND)
        await world.engine.flush()
        monkeypatch.setattr(
            world.worker, "start", lambda _: loop.call_soon(order.append, "handler")
        )
        monkeypatch.setattr(world.clock, "arm", lambda at: order.append("alarm"))

        world.clock.stall(SECOND)
        await world.engine.flush()

        assert order[0] == first
        assert order.count("handler") == count


async def test_a_handler_that_ends_at_once_ends_in_the_turn_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    taken: list[int] = []
    has_taken = asyncio.Event()
    async with running(tmp_path / "s.db") as world:
        job = await world.submit(run_at=world.clock.now() + SECOND)
        await world.engine.flush()
        worker, notes = world.worker, world.engine._loop.notes

        def start(lease: Lease) -> None:
            worker.leases.append(lease)
            loop.call_soon(worker.end)

        monkeypatch.setattr(worker, "start", start)
        take = notes.take

        def note(scheduler: Any, now: int) -> None:
            taken.append(job.id)
            has_taken.set()
            take(scheduler, now)

        monkeypatch.setattr(notes, "take", note)

        world.clock.stall(SECOND)
        await has_taken.wait()

        assert taken == [job.id]
        found = world.engine._loop.scheduler.find_job(job.id)
        assert found is not None
        assert found.state == "completed"
        assert world.clock.armed_at is None, "the alarm is set for the next instant: there is none"


async def test_the_response_of_a_job_that_cannot_start_yet_waits_for_no_turn(
    tmp_path: Path, ticks: list[int]
) -> None:
    async with running(tmp_path / "s.db") as world:
        ticks.clear()

        await world.engine.submit([spec(run_at=world.clock.now() + SECOND)])

        assert ticks == []
        await world.run_until(world.clock.now() + SECOND)
        assert len(world.worker.leases) == 1


async def test_a_job_that_can_start_does_so_before_its_response(tmp_path: Path) -> None:
    async with running(tmp_path / "s.db") as world:
        await world.engine.submit([spec()])

        assert len(world.worker.leases) == 1


async def test_a_commit_that_comes_before_the_rest_of_a_turn_ends_the_turn(tmp_path: Path) -> None:
    async with running(tmp_path / "s.db") as world:
        loop = world.engine._loop
        job = await world.submit(run_at=world.clock.now() + SECOND)
        await world.engine.flush()

        world.clock.stall(SECOND)  # the turn has started the job; its rest waits for the next pass
        batch = loop._take_batch()

        assert [*batch.changes.jobs] == [job.id]
        assert world.clock.armed_at is None
        loop._release(batch)


async def test_a_bug_in_the_rest_of_a_turn_ends_in_a_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "s.db") as world:
        job = await world.submit(run_at=world.clock.now() + SECOND)
        await world.engine.flush()
        broken, goes_on = [RuntimeError("a bug")], asyncio.Event()
        original = clock_changes.next_wake_at

        def next_wake_at(*args: Any) -> int | None:
            if broken:
                raise broken.pop()
            goes_on.set()
            return original(*args)

        monkeypatch.setattr(turn_end, "next_wake_at", next_wake_at)

        world.clock.stall(SECOND)
        await goes_on.wait()

        assert [lease.key.job_id for lease in world.worker.leases] == [job.id]
