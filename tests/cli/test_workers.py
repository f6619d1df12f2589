"""`schedo workers`: listing, showing, cordoning and draining workers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.client.server import FakeServer, problem


def worker_record(**fields: Any) -> dict[str, Any]:
    record = {
        "name": "gpu-1",
        "kind": "remote",
        "state": "active",
        "slots": 4,
        "running": 1,
        "free": 3,
        "tasks": ["http", "resize"],
        "labels": {"region": "eu"},
        "resources": {"cpu": 4, "disk": 10},
        "resources_used": {"cpu": 3},
        "last_seen_at": "2026-11-20T11:00:00.000000Z",
    }
    return {**record, **fields}


def test_workers_are_printed_as_a_table(server: FakeServer, schedo: Call) -> None:
    local = {"name": "local", "state": "active", "slots": 16, "running": 0, "labels": {}}
    server.on("GET", "/v1/workers", 200, {"items": [worker_record(), local]})

    result = schedo("workers", "ls")

    headers, first, second = result.stdout.splitlines()
    assert "SERVER" not in headers
    assert first.split()[:8] == [
        *("gpu-1", "active", "1/4", "http,resize", "any", "region=eu", "cpu=3/4", "disk=0/10")
    ]
    assert second.split() == ["local", "active", "0/16", "any", "any", "-", "-", "-"]


def test_in_a_cluster_the_table_has_the_server_of_each_worker(
    server: FakeServer, schedo: Call
) -> None:
    items = [worker_record(name="local", server=name) for name in ("a", "b")]
    server.on("GET", "/v1/workers", 200, {"items": items})

    headers, *rows = schedo("workers", "ls").stdout.splitlines()

    assert headers.endswith("  SERVER")
    assert [row.split()[-1] for row in rows] == ["a", "b"]


def test_show_prints_all_fields_of_a_worker(server: FakeServer, schedo: Call) -> None:
    health = "it has free slots, but has not polled for 31 s"
    server.on("GET", "/v1/workers/gpu-1", 200, worker_record(health=health))

    lines = schedo("workers", "show", "gpu-1").stdout.splitlines()

    facts = dict(line.split(maxsplit=1) for line in lines)
    assert facts["labels"] == "region=eu"
    assert facts["queues"] == "any"
    assert facts["health"] == health


@pytest.mark.parametrize(
    ("verb", "state"),
    [("cordon", "cordoned"), ("uncordon", "active"), ("drain", "draining")],
)
def test_a_worker_can_be_cordoned_uncordoned_and_drained(
    server: FakeServer, schedo: Call, verb: str, state: str
) -> None:
    server.on("POST", f"/v1/workers/gpu-1:{verb}", 200, worker_record(state=state))

    assert json.loads(schedo("workers", verb, "gpu-1", "--json").stdout)["state"] == state
    assert schedo("workers", verb, "gpu-1").stdout.splitlines()[1].split()[1] == state


def test_an_unknown_worker_is_exit_code_1(server: FakeServer, schedo: Call) -> None:
    detail = "there is no worker 'x'"
    server.on("GET", "/v1/workers/x", 404, problem(404, "not-found", detail))

    result = schedo("workers", "show", "x")

    assert (result.exit_code, result.stderr) == (1, f"schedo: {detail}\n")


@pytest.mark.parametrize("verb", ["ls", "show"])
def test_with_json_the_record_of_the_server_is_printed(
    server: FakeServer, schedo: Call, verb: str
) -> None:
    server.on("GET", "/v1/workers", 200, {"items": [worker_record()]})
    server.on("GET", "/v1/workers/gpu-1", 200, worker_record())

    result = schedo("workers", verb, *(["gpu-1"] if verb == "show" else []), "--json")

    found = json.loads(result.stdout)
    assert (found if verb == "show" else found[0]) == worker_record()
