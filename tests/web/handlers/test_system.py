"""Health, readiness, versions, documents."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import orjson
import pytest

from schedo.protocol.operations import OPERATIONS
from schedo.store.base import Waiting
from schedo.store.sqlite import waiting_count
from schedo.store.sqlite.connection import Connection
from schedo.store.sqlite.store import SqliteStore
from tests.web.world import World


async def test_the_health_check_returns_ok(world: World) -> None:
    assert (await world.get("/healthz")).body == b'{"status":"ok"}'
    assert (await world.send("GET", "/healthz", host="10.1.2.3")).status == 200


async def test_a_server_is_ready_while_its_engine_works(world: World) -> None:
    assert (await world.get("/readyz")).json() == {
        "ready": True,
        "code": "ready",
        "role": "active",
        "epoch": 1,
        "reasons": [],
    }


async def test_a_server_whose_timers_were_late_is_not_ready_until_they_keep_time(
    world: World,
) -> None:
    await world.submit(delay="1m")
    await world.engine.flush()

    world.clock.stall(62_000_000)
    late = await world.get("/readyz")
    world.clock.stall(5_000_000)
    again = await world.get("/readyz")

    reasons = ["the timer loop was 2.0 s late just now"]
    assert (late.status, late.json()["code"], late.json()["reasons"]) == (503, "late", reasons)
    assert (again.status, again.json()["reasons"]) == (200, [])


async def test_the_info_has_versions_and_limits(world: World) -> None:
    info = (await world.get("/v1/info")).json()

    assert (info["role"], info["epoch"]) == ("active", 1)
    assert (info["shell"], info["limits"]["batch_jobs"]) == (True, 1_000)
    assert re.fullmatch(r"3\.\d+\.\d+.*", info["python"])


async def test_the_url_of_each_problem_type_shows_its_explanation(world: World) -> None:
    problem = (await world.get("/v1/jobs/none")).json()

    kind = (await world.get(problem["type"])).json()

    assert kind["code"] == problem["code"]
    assert (kind["status"], kind["title"]) == (404, problem["title"])
    assert (await world.get("/problems/none")).status == 404


async def test_the_openapi_document_lists_every_operation(world: World) -> None:
    document = orjson.loads((await world.get("/openapi.json")).body)

    found = {(path, method.upper()) for path, item in document["paths"].items() for method in item}
    assert found == {(operation.path, operation.method) for operation in OPERATIONS}


async def test_a_head_request_is_handled_like_get(world: World) -> None:
    assert (await world.send("HEAD", "/healthz")).status == 200


async def test_a_read_that_the_store_fails_has_no_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(connection: Connection) -> Waiting:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(waiting_count, "_count", fail)
    async with World(store=SqliteStore(tmp_path / "s.db")) as world:
        reply = await world.get("/v1/queues")

    assert (reply.status, reply.code) == (503, "unavailable")
    assert "disk I/O error; this request changes nothing" in reply.json()["detail"]
