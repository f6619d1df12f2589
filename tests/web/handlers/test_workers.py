"""Listing workers, cordon and drain, and the progress of jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from schedo.core.ids import parse_id, render_id
from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.core.worker_messages import Progress, ProgressLine, Run
from schedo.protocol import workers
from schedo.protocol.work import parse_response
from schedo.web.settings import WebSettings
from tests.web.placing import PlacingWorld, make_lease
from tests.web.world import T0, World


@pytest.fixture
async def world() -> AsyncIterator[PlacingWorld]:
    async with PlacingWorld() as made:
        yield made


async def test_workers_are_listed_by_name(world: PlacingWorld) -> None:
    world.sessions.add_worker("w2")
    world.sessions.add_worker("w1")

    page = (await world.get("/v1/workers")).json()

    assert [item["name"] for item in page["items"]] == ["w1", "w2"]
    msgspec.convert(page, workers.WorkerPage)


async def test_a_worker_is_shown_with_its_spec_and_its_load(world: PlacingWorld) -> None:
    world.sessions.add_worker(
        "w1",
        tasks=frozenset({"b", "a"}),
        queues=frozenset({"q"}),
        labels={"region": "eu"},
        resources={"cpu": 4_000, "share": 500},
        resources_used={"cpu": 3_000},
        version="1.2",
        runs=[Run(1, "b", T0)],
        health="it has free slots, but has not polled for 42 s",
    )

    answer = (await world.get("/v1/workers/w1")).json()

    assert answer == {
        "name": "w1",
        "kind": "remote",
        "state": "active",
        "slots": 4,
        "running": 1,
        "free": 3,
        "tasks": ["a", "b"],
        "queues": ["q"],
        "labels": {"region": "eu"},
        "resources": {"cpu": 4, "share": 0.5},
        "resources_used": {"cpu": 3},
        "version": "1.2",
        "connected_at": "2026-11-20T11:04:05.000000Z",
        "last_seen_at": "2026-11-20T11:04:06.000000Z",
        "session_timeout": "30s",
        "health": "it has free slots, but has not polled for 42 s",
        "runs": [
            {"job": "0000000000001", "task": "b", "started_at": "2026-11-20T11:04:05.000000Z"}
        ],
    }


async def test_absent_fields_of_a_worker_are_left_out(world: PlacingWorld) -> None:
    world.sessions.add_worker("w1", connected_at=None, last_seen_at=None, session_timeout_s=None)

    answer = (await world.get("/v1/workers/w1")).json()

    assert {"tasks", "queues", "version", "health", "connected_at", "session_timeout"} & set(
        answer
    ) == set()


async def test_a_worker_is_cordoned_uncordoned_and_drained(world: PlacingWorld) -> None:
    world.sessions.add_worker("w1")

    states = [
        (await world.post(f"/v1/workers/w1:{verb}")).json()["state"]
        for verb in ("cordon", "uncordon", "drain")
    ]

    assert states == ["cordoned", "active", "draining"]


@pytest.mark.parametrize("path", ["", ":cordon", ":uncordon", ":drain"])
async def test_an_unknown_worker_is_not_found(world: PlacingWorld, path: str) -> None:
    send = world.post if path else world.get

    assert (await send(f"/v1/workers/nobody{path}")).status == 404
    assert (await send(f"/v1/workers/{'x' * 200}{path}")).status == 422


async def test_progress_is_read_while_the_job_runs(world: PlacingWorld) -> None:
    job = await world.submit()
    key = LeaseKey(parse_id(job["id"]), 2, 1)
    world.sessions.lines = [
        ProgressLine(T0, Progress(key, ProgressUpdate(40.0, "half", "line", "out", None, 9))),
        ProgressLine(T0 + 1, Progress(key, ProgressUpdate(message="more"))),
        ProgressLine(T0, Progress(LeaseKey(9, 1, 1), ProgressUpdate(message="of another job"))),
    ]

    page = (await world.get(f"/v1/jobs/{job['id']}/progress")).json()

    assert page["items"] == [
        {
            "at": "2026-11-20T11:04:05.000000Z",
            "attempt": 2,
            "percent": 40.0,
            "message": "half",
            "log": "line",
            "stdout": "out",
            "stdout_bytes": 9,
        },
        {"at": "2026-11-20T11:04:05.000001Z", "attempt": 2, "message": "more"},
    ]
    msgspec.convert(page, workers.ProgressPage)
    assert (await world.get(f"/v1/jobs/{render_id(7)}/progress")).status == 404


async def test_a_worker_can_decode_the_response_to_its_poll(world: PlacingWorld) -> None:
    world.sessions.given = world.sessions.given._replace(leases=[make_lease()])

    parse_response(msgspec.json.encode(await world.work()))


async def test_commands_are_accepted_if_a_worker_runs_them_and_the_server_does_not() -> None:
    async with World(WebSettings()) as world:
        job = {"task": "shell", "payload": {"command": "true"}}
        await world.post("/v1/work", {"worker": "any", "wait": 0})

        refused = await world.post("/v1/jobs", job)
        await world.post("/v1/work", {"worker": "w1", "tasks": ["shell"], "wait": 0})
        taken = await world.post("/v1/jobs", job)

    assert (refused.code, taken.status) == ("shell-disabled", 201)


async def broadcast(world: PlacingWorld, **fields: Any) -> Any:
    return await world.post("/v1/jobs", {"task": "warm", "broadcast": True, **fields})


async def test_a_broadcast_makes_one_job_for_each_worker_that_matches(world: PlacingWorld) -> None:
    world.sessions.add_worker("w2", labels={"region": "eu"})
    world.sessions.add_worker("w1", labels={"region": "eu"}, running=4)
    world.sessions.add_worker("us", labels={"region": "us"})
    world.sessions.add_worker("other", labels={"region": "eu"}, tasks=frozenset({"resize"}))
    world.sessions.add_worker("cold", labels={"region": "eu"}, queues=frozenset({"mail"}))
    world.sessions.add_worker("shut", labels={"region": "eu"}, state="cordoned")

    reply = await broadcast(world, requires={"labels": {"region": "eu"}})

    items = reply.json()["items"]
    assert reply.status == 207
    assert [item["status"] for item in items] == [201, 201]
    assert [item["job"]["requires"] for item in items] == [
        {"labels": {"region": "eu"}, "worker": "w1"},
        {"labels": {"region": "eu"}, "worker": "w2"},
    ]
    assert len((await world.get("/v1/jobs")).json()["items"]) == 2


async def test_a_broadcast_makes_one_job_for_each_place_of_child_processes(
    world: PlacingWorld,
) -> None:
    world.sessions.add_worker("process-7", labels={"process:place": "1"})
    world.sessions.add_worker("process-9", labels={"process:place": "1"})
    world.sessions.add_worker("process-8", labels={"process:place": "2"})
    world.sessions.add_worker("process-6", labels={"process:place": "2"}, isolated=True)
    world.sessions.add_worker("embedded-alone", isolated=True)

    reply = await broadcast(world)

    assert [item["job"]["requires"] for item in reply.json()["items"]] == [
        {"labels": {"process:place": "1"}},
        {"labels": {"process:place": "2"}},
    ]


async def test_a_broadcast_without_a_match_is_refused(world: PlacingWorld) -> None:
    world.sessions.add_worker("us", labels={"region": "us"})

    reply = await broadcast(world, requires={"labels": {"region": "eu"}})

    assert (reply.status, reply.code) == (422, "unsatisfiable")
    assert (await world.get("/v1/jobs")).json()["items"] == []


async def test_a_broadcast_that_is_repeated_with_its_key_gets_the_same_response(
    world: PlacingWorld,
) -> None:
    world.sessions.add_worker("w1")
    key = [("idempotency-key", "k")]
    body = {"task": "warm", "broadcast": True}

    first = await world.post("/v1/jobs", body, key)
    world.sessions.seen.clear()
    again = await world.post("/v1/jobs", body, key)

    assert first.body == again.body
    assert again.headers["idempotency-replayed"] == "true"


async def test_a_broadcast_has_no_unique_key_no_wait_and_no_place_in_a_batch(
    world: PlacingWorld,
) -> None:
    world.sessions.add_worker("w1")

    unique = await broadcast(world, unique="k")
    waiting = await world.post("/v1/jobs?wait=1s", {"task": "warm", "broadcast": True})
    batch = await world.post("/v1/jobs:batch", [{"task": "warm", "broadcast": True}])

    assert unique.json()["errors"][0]["pointer"] == "/unique"
    assert waiting.json()["errors"][0]["parameter"] == "wait"
    assert batch.json()["items"][0]["problem"]["errors"][0]["pointer"] == "/broadcast"
    assert (await world.get("/v1/jobs")).json()["items"] == []
