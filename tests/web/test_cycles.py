"""A refused request leaves no reference cycle: its body would wait for the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from schedo.core.spec_parts import SPECS_BYTES_MAX
from schedo.errors import SchedoError
from tests.web.world import World

TASK = {"task": "nothing"}
TASKS = [f"{number}".ljust(100, "x") for number in range(1_000)]


@pytest.fixture
def garbage() -> Iterator[list[Any]]:
    """The objects that only the garbage collector finds, from here on."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.garbage.clear()
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/jobs/0000000000001:cancel", None, 404),
        ("/v1/jobs", TASK | {"priority": 100}, 422),
        ("/v1/jobs:batch", [TASK | {"priority": 100}], 200),
        ("/v1/schedules/none:trigger", None, 404),
        ("/v1/invoke", TASK, 503),
        ("/v1/reservations", TASK, 503),
    ],
)
async def test_a_refused_request_leaves_no_error_in_a_cycle(
    world: World, garbage: list[Any], path: str, body: Any, status: int
) -> None:
    for _ in range(5):  # the engine may still hold the last one
        assert (await world.post(path, body)).status == status

    gc.collect()
    assert [found for found in garbage if isinstance(found, SchedoError)] == []


async def test_a_worker_that_is_refused_leaves_no_error_in_a_cycle(
    world: World, garbage: list[Any]
) -> None:
    statuses = []
    for number in range(SPECS_BYTES_MAX // 1_000 // 200 + 1):
        tasks = [f"{number}-{name}" for name in TASKS]
        poll = {"worker": f"w{number}", "session": "s", "tasks": tasks, "wait": 0}
        statuses.append((await world.post("/v1/work", poll)).status)

    gc.collect()
    assert statuses[-1] == 429
    assert [found for found in garbage if isinstance(found, SchedoError)] == []
