"""`schedo export`: the file it writes, which declares what the server has."""

from __future__ import annotations

import json
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from schedo.cli.declaration_files import export_expectation, export_schedule
from schedo.core.retry import PRESETS
from schedo.protocol.decode import decode_checked
from schedo.protocol.masking import reuse_payload
from schedo.protocol.schedules import ScheduleRequest
from tests.cli.conftest import Call
from tests.client.server import FakeServer, schedule_record
from tests.job_requests import EXAMPLES, SCHEDULE_FIELDS
from tests.web.world import World

QUEUE = {
    "name": "mail",
    "concurrency": 4,
    "paused": False,
    "weight": 1,
    "priority_step": "1m",
    "running": 0,
    "waiting": {},
}

LAPTOP = {
    "name": "laptop",
    "cron": "@daily",
    "tz": "UTC",
    "within": "2h",
    "on_miss": {"task": "t"},
    "owner": "api",
    "state": "ok",
    "since": "2026-11-20T11:04:05.000000Z",
    "missed": 0,
    "created_at": "2026-11-20T11:04:05.000000Z",
    "updated_at": "2026-11-20T11:04:05.000000Z",
}


def serve(server: FakeServer, *schedules: Any, queues: Any = (), expectations: Any = ()) -> None:
    server.on("GET", "/v1/schedules", 200, {"items": schedules})
    server.on("GET", "/v1/expectations", 200, {"items": expectations})
    server.on("GET", "/v1/queues", 200, {"items": queues})


def test_an_export_has_what_differs_from_the_defaults(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    serve(
        server,
        schedule_record(overlap="allow", catchup="latest"),
        schedule_record(name="a.b", paused=True, owner="crontab:web1/etc/crontab"),
        queues=[QUEUE, {**QUEUE, "name": "plain", "concurrency": None}],
        expectations=[LAPTOP],
    )
    path = tmp_path / "jobs.toml"

    result = schedo("export", str(path))

    assert tomllib.loads(path.read_text()) == {
        "owner": "file:jobs.toml",
        "schedules": {
            "nightly": {
                "cron": "0 3 * * *",
                "task": "shell",
                "payload": {"command": "true"},
                "overlap": "allow",
            },
            "a.b": {
                "cron": "0 3 * * *",
                "task": "shell",
                "payload": {"command": "true"},
                "paused": True,
            },
        },
        "queues": {"mail": {"concurrency": 4}},
        "expectations": {"laptop": {"cron": "@daily", "within": "2h", "on_miss": {"task": "t"}}},
    }
    assert result.stderr == f"{path}: 2 schedules, 1 queue, 1 expectation\n"


def test_what_code_declares_is_left_out_and_named(server: FakeServer, schedo: Call) -> None:
    serve(server, schedule_record(owner="code:shop:app"))

    result = schedo("export", "--json")

    assert json.loads(result.stdout)["schedules"] == {}
    assert result.stderr == (
        "schedo: left out, because code declares them: nightly (code:shop:app)\n"
    )


def test_an_export_keeps_the_owner_of_a_single_file(server: FakeServer, schedo: Call) -> None:
    serve(server, schedule_record(owner="file:billing"), schedule_record(name="b"))

    assert tomllib.loads(schedo("export").stdout)["owner"] == "file:billing"


def test_a_file_is_replaced_on_request_only(
    server: FakeServer, schedo: Call, tmp_path: Path
) -> None:
    serve(server)
    path = tmp_path / "jobs.json"
    path.write_text("mine")

    refused = schedo("export", str(path))
    assert (refused.exit_code, path.read_text()) == (1, "mine")

    assert schedo("export", str(path), "--force").exit_code == 0
    assert json.loads(path.read_text())["schedules"] == {}


def test_a_hyphen_is_stdout_as_it_is_stdin_for_apply(
    server: FakeServer, schedo: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, schedule_record())
    monkeypatch.chdir(tmp_path)

    assert schedo("export", "-").stdout == schedo("export").stdout != ""
    assert list(tmp_path.iterdir()) == []


def test_null_needs_json(server: FakeServer, schedo: Call) -> None:
    serve(server, schedule_record(task="t", payload={"a": None}))

    result = schedo("export")

    assert result.exit_code == 1
    assert "schedules.nightly.payload.a is null" in result.stderr
    assert "export to a file whose name ends in .json" in result.stderr


VARIANTS: list[dict[str, Any]] = [
    *({"cron": "@daily", name: EXAMPLES[name]} for name in sorted(SCHEDULE_FIELDS)),
    *({"cron": "@daily", "retry": preset} for preset in PRESETS),
    {"cron": "TZ=Asia/Tokyo H 3 * * *"},
    {"cron": "@every 90s"},
    {"cron": "H H * * *", "tz": "Europe/Paris", "dst": {"gap": "skip", "fold": "both"}},
    {"every": "90s", "jitter": "5s", "start_at": "2030-01-01T00:00:00+02:00"},
    {"at": "2030-01-01T00:00:00Z", "end_at": "2031-01-01T00:00:00Z"},
    {"every": 1, "overlap": "buffer_one", "catchup": "all", "catchup_window": 1, "catchup_max": 2},
    {"every": 1, "payload": [1, 2.5, {"a": "ü"}], "paused": True},
]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World() as made:
        yield made


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
async def test_an_export_declares_the_same_schedule(world: World, fields: dict[str, Any]) -> None:
    request = {"task": "t", **fields}
    reply = await world.put("/v1/schedules/s", request)
    assert reply.status == 201, reply.body

    exported = export_schedule(reply.json())

    spec = decode_checked(json.dumps(exported).encode(), ScheduleRequest).to_spec("s")
    stored = (await world.engine.get_schedule("s")).spec
    assert replace(spec, job=reuse_payload(spec.job, stored.job)) == stored
    assert len(exported) <= len(request)


@pytest.mark.parametrize(
    "fields",
    [
        {"every": "1d", "within": "2h"},
        {"cron": "@daily", "within": "2h", "on_back": "t"},
        {"cron": "TZ=Asia/Tokyo H 3 * * *", "within": "1h"},
        {
            "cron": "H 3 * * *",
            "tz": "Europe/Paris",
            "within": "1h",
            "on_miss": {"task": "t", "retry": 3, "payload": {"a": 1}, "queue": "q", "priority": 2},
        },
    ],
    ids=str,
)
async def test_an_export_declares_the_same_expectation(
    world: World, fields: dict[str, Any]
) -> None:
    reply = await world.put("/v1/expectations/e", fields)
    assert reply.status == 201, reply.body

    exported = export_expectation(reply.json())

    put = await world.put("/v1/expectations/e", exported)
    assert put.json()["effect"] == "unchanged"
    assert len(exported) <= len(fields)
