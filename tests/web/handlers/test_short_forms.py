"""The short forms over HTTP: POST /schedule and GET /status."""

from __future__ import annotations

import pytest

from schedo.core.leases import AttemptResult, Failed
from schedo.core.model import Failure
from tests.web.world import SECOND, T0, World


async def test_the_short_forms_run_a_command_and_show_its_state(world: World) -> None:
    world.attach_worker()
    made = await world.post("/schedule", {"command": "echo hi", "delay_seconds": 5})
    task_id = made.json()["task_id"]
    await world.clock.run_until(world.engine, T0 + 5 * SECOND)
    failure = Failure("exit-code", "exit code 2", exit_code=2)
    world.engine.report(AttemptResult(world.worker.leases[0].key, Failed(failure)))
    await world.get(f"/v1/jobs/{task_id}/wait")

    status = (await world.get(f"/status?task_id={task_id}")).json()

    assert made.json() == {
        "task_id": task_id,
        "status": "scheduled",
        "command": "echo hi",
        "scheduled_at": "2026-11-20T11:04:10.000000Z",
    }
    assert world.worker.leases[0].payload == b'{"command":"echo hi"}'
    assert status == {
        "task_id": task_id,
        "status": "failed",
        "command": "echo hi",
        "scheduled_at": "2026-11-20T11:04:10.000000Z",
        "picked_at": status["picked_at"],
        "started_at": status["started_at"],
        "failed_at": status["failed_at"],
        "exit_code": 2,
        "error": "exit code 2",
    }


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"command": ""},
        {"command": 5},
        {"command": "x", "delay_seconds": -1},
        {"command": "x", "delay_seconds": "5"},
        {"command": "x", "delay_seconds": True},
        {"command": "x", "delay_seconds": 1e300},
        {"command": "x", "delay": 5},
        {"task": "x", "Requirements": {}, "Payload": {}},
    ],
)
async def test_a_bad_short_form_is_refused(world: World, body: object) -> None:
    assert (await world.post("/schedule", body)).code == "invalid"


async def test_a_status_needs_a_task_id(world: World) -> None:
    assert (await world.get("/status")).code == "bad-request"
    assert (await world.get("/status?task_id=x")).code == "not-found"
