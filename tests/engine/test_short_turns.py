"""Turns that decide nothing: of completions alone, unless something may use the free slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schedo.core.leases import Failed
from schedo.core.limits import SECOND
from schedo.core.model import Failure
from schedo.engine import clock_changes
from schedo.engine import loop as engine_loop
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
