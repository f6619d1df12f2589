"""How long jobs are kept, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.core.leases import AttemptResult, CapturedOutput, Completed
from schedo.engine.dropped_jobs import HELD_S
from tests.web.world import World


@pytest.mark.parametrize(
    ("keep", "pointer"),
    [
        ({}, "/keep"),
        ({"completed": "soon"}, "/keep/completed"),
        ({"failed": -1}, "/keep/failed"),
        ({"cancelled": "300y"}, "/keep/cancelled"),
        ({"done": "1h"}, "/keep/done"),
        ("1h", "/keep"),
    ],
)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs", {"task": "t"}),
        ("PUT", "/v1/schedules/s", {"task": "t", "cron": "@daily"}),
        ("POST", "/v1/invoke", {"task": "t"}),
        ("PATCH", "/v1/queues/q", {}),
    ],
)
async def test_a_keep_that_is_wrong_is_refused_with_its_field(
    world: World, method: str, path: str, body: dict[str, Any], keep: object, pointer: str
) -> None:
    send = {"POST": world.post, "PUT": world.put, "PATCH": world.patch}[method]

    reply = await send(path, {**body, "keep": keep})

    assert reply.status == 422
    assert reply.json()["errors"][0]["pointer"] == pointer


async def test_a_request_that_waits_gets_the_result_of_a_job_that_is_not_kept(
    world: World,
) -> None:
    world.attach_worker()
    fields = {"task": "demo", "keep": {"completed": "0s"}, "payload": "x" * 5_000}

    waiting = asyncio.create_task(world.post("/v1/jobs?wait=30s", fields))
    lease = await world.worker.first()
    world.engine.report(AttemptResult(lease.key, Completed(b"7")))
    reply = await waiting

    assert (reply.status, reply.json()["state"], reply.json()["result"]) == (200, "completed", 7)
    world.engine.dropped.evict(asyncio.get_running_loop().time() + HELD_S)
    for path in ("", "/attempts", "/output", "/why"):
        gone = await world.get(f"/v1/jobs/{reply.json()['id']}{path}")
        assert gone.status == 404
        assert '"keep" is 0s' in gone.json()["detail"]
    assert (await world.post(f"/v1/jobs/{reply.json()['id']}:retry", {})).status == 404


async def test_a_queue_says_how_long_its_jobs_are_kept(world: World) -> None:
    world.attach_worker()
    keep = {"completed": "0s", "failed": "30d"}

    changed = await world.patch("/v1/queues/mail", {"keep": keep})
    await world.submit(queue="mail")
    lease = await world.worker.first()
    world.engine.report(AttemptResult(lease.key, Completed()))
    await world.engine.flush()

    assert changed.json()["keep"] == keep
    assert (await world.get("/v1/jobs")).json()["items"] == []
    assert "keep" not in (await world.patch("/v1/queues/mail", {"keep": None})).json()


async def test_a_client_that_waits_after_the_end_gets_the_result_and_the_output(
    world: World,
) -> None:
    world.attach_worker()
    fields = {"task": "demo", "keep": {"completed": "0s"}}
    job = (await world.post("/v1/jobs", fields)).json()["id"]
    lease = await world.worker.first()
    output = CapturedOutput("stdout", b"hello ", b"world", 11)
    world.engine.report(AttemptResult(lease.key, Completed(b"7"), (output,)))
    await world.engine.flush()

    waited = await world.get(f"/v1/jobs/{job}/wait?timeout=30s")

    assert (waited.status, waited.json()["result"]) == (200, 7)
    (item,) = (await world.get(f"/v1/jobs/{job}/output")).json()["items"]
    assert (item["stream"], item["text"], item["total_bytes"]) == ("stdout", "hello world", 11)
    assert (await world.get(f"/v1/jobs/{job}/output?stream=stdout")).body == b"hello world"
    assert (await world.get(f"/v1/jobs/{job}/output?stream=stderr")).status == 404
    assert (await world.get(f"/v1/jobs/{job}/attempts")).json() == {"items": []}
