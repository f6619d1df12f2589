"""The old processes of which a server notices the death."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from schedo.engine.workers import Workers
from schedo.server import predecessors
from schedo.server.predecessors import Predecessors
from tests.handover.active import open_descriptors


class Engine:
    """The calls that end attempts; each old process has two."""

    def __init__(self) -> None:
        self.held: dict[str, list[str]] = {}
        self.events: list[str] = []
        self.has_ended = asyncio.Event()

    def held_by(self, name: str) -> list[str]:
        return self.held.get(name, [])

    def lose(self, name: str, message: str) -> None:
        self.events.append(message)
        self.has_ended.set()

    def reap(self) -> None:
        self.events.append("reaped")


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr(predecessors, "SETTLE_S", 0.0)
    return Engine()


@pytest.fixture
async def watching(engine: Engine) -> AsyncIterator[Predecessors]:
    made = Predecessors(cast(Workers, engine), engine.reap)
    yield made
    made.close()


@pytest.fixture
def process() -> Any:
    """An old process, which ends when its input does."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as made:
        yield made
        made.kill()


async def test_the_attempts_of_an_old_process_that_dies_are_lost_after_its_commands(
    engine: Engine, watching: Predecessors, process: subprocess.Popen[bytes]
) -> None:
    engine.held["handover-7"] = ["first", "second"]
    watching.watch(process.pid, "handover-7")
    process.kill()

    async with asyncio.timeout(5):
        await engine.has_ended.wait()

    assert engine.events == ["reaped", "worker handover-7 is lost: its process has died"]


async def test_those_of_a_process_that_is_gone_already_are_lost(
    engine: Engine, watching: Predecessors, process: subprocess.Popen[bytes]
) -> None:
    engine.held["handover-7"] = ["first"]
    process.kill()
    process.wait()

    watching.watch(process.pid, "handover-7")

    async with asyncio.timeout(5):
        await engine.has_ended.wait()
    assert engine.events[-1] == "worker handover-7 is lost: its process has died"


async def test_a_process_is_known_to_the_next_server_until_its_attempts_have_ended(
    engine: Engine, watching: Predecessors, process: subprocess.Popen[bytes]
) -> None:
    engine.held["handover-7"] = ["first"]
    watching.watch(process.pid, "handover-7")
    known = watching.known
    process.kill()

    async with asyncio.timeout(5):
        await engine.has_ended.wait()

    assert known == {"handover-7": process.pid}
    assert watching.known == {}


async def test_an_old_process_that_has_ended_its_attempts_loses_nothing(
    engine: Engine, watching: Predecessors, process: subprocess.Popen[bytes]
) -> None:
    watching.watch(process.pid, "handover-7")
    engine.held["handover-8"] = ["another"]
    watching.watch(process.pid, "handover-8")
    process.kill()

    async with asyncio.timeout(5):
        await engine.has_ended.wait()

    assert engine.events == ["reaped", "worker handover-8 is lost: its process has died"]


async def test_a_process_of_another_container_is_not_watched_and_one_only_once(
    watching: Predecessors, process: subprocess.Popen[bytes]
) -> None:
    before = open_descriptors()
    watching.watch(0, "handover-7")
    assert open_descriptors() == before

    for _ in range(2):
        watching.watch(process.pid, "handover-8")

    assert len(open_descriptors() - before) == 1
    watching.close()
    assert open_descriptors() == before


async def test_a_process_is_watched_once_however_many_names_it_gives(
    watching: Predecessors, process: subprocess.Popen[bytes]
) -> None:
    watching.watch(process.pid, "handover-1")
    before = open_descriptors()

    for number in range(2, 100):
        watching.watch(process.pid, f"handover-{number}")

    assert open_descriptors() == before
