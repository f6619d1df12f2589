"""A poll that ends because another server has a job for its worker waits for no further pass."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from schedo.engine import command_queue
from schedo.engine.turn_end import FEW_STARTS
from tests.core.remote_site import make_poll
from tests.engine.world import World, running
from tests.passes import one_pass


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let no two turns be a burst, and note what happens."""
    monkeypatch.setattr(command_queue, "BURST_S", 0.0)
    return []


def begin_polls(world: World, count: int, done: list[str]) -> list[asyncio.Task[Any]]:
    async def poll(name: str) -> None:
        await world.engine.sessions.work(make_poll(name, wait_s=60.0, max_leases=1))
        done.append(name)

    return [asyncio.create_task(poll(f"w{number}")) for number in range(count)]


async def test_a_poll_that_is_ended_at_once_has_its_response_in_the_next_pass(
    tmp_path: Path, turns: list[str]
) -> None:
    async with running(tmp_path / "s.db") as world:
        (polling,) = begin_polls(world, 1, turns)
        await world.engine.flush()

        world.engine.sessions.end_poll_at_once("w0")
        await one_pass()

        assert polling.done()


async def test_polls_that_end_in_a_burst_share_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_queue, "BURST_S", 60.0)
    done: list[str] = []
    async with running(tmp_path / "s.db") as world:
        begin_polls(world, 3, done)
        await world.engine.flush()
        loop, taken = world.engine._loop, 0
        turn = loop._turn

        def count() -> None:
            nonlocal taken
            taken += 1
            turn()

        monkeypatch.setattr(loop, "_turn", count)
        for number in range(3):
            world.engine.sessions.end_poll_at_once(f"w{number}")
        assert taken == 1
        await world.engine.flush()

        assert done == ["w0", "w1", "w2"]
        assert taken == 2


@pytest.mark.parametrize(
    ("count", "first"), [(1, "w0"), (FEW_STARTS, "w0"), (FEW_STARTS + 1, "notes")]
)
async def test_the_responses_to_few_polls_come_before_the_rest_of_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, first: str
) -> None:
    order: list[str] = []
    async with running(tmp_path / "s.db") as world:
        begin_polls(world, count, order)
        await world.engine.flush()
        monkeypatch.setattr(world.engine._loop.notes, "take", lambda *_: order.append("notes"))

        world.engine.sessions.end_poll(None)
        await world.engine.flush()

        assert order[0] == first
        assert len(order) > count
