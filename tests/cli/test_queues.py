"""`schedo queues`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.client.server import FakeServer


def queue_record(**fields: Any) -> dict[str, Any]:
    record = {
        "name": "mail",
        "concurrency": None,
        "paused": False,
        "weight": 1,
        "priority_step": "1m",
        "running": 2,
        "waiting": {"queued": 3, "scheduled": 0, "retrying": 1},
    }
    return {**record, **fields}


def test_queues_are_printed_as_a_table(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/queues", 200, {"items": [queue_record(), queue_record(paused=True)]})

    result = schedo("queues", "ls")

    _, first, second = result.stdout.splitlines()
    assert first.split() == [
        *("mail", "open", "2", "unlimited", "3", "queued,", "1", "retrying", "-", "1", "1m", "-")
    ]
    assert second.split()[1] == "paused"


@pytest.mark.parametrize(
    ("args", "body"),
    [
        (["--concurrency", "2"], {"concurrency": 2}),
        (["--concurrency", "unlimited"], {"concurrency": None}),
        (["--weight", "3", "--priority-step", "5m"], {"weight": 3, "priority_step": "5m"}),
        (["--keep", "completed=1h"], {"keep": {"completed": "1h"}}),
        (["--keep", "default"], {"keep": None}),
    ],
    ids=str,
)
def test_limits_of_a_queue_are_set(
    server: FakeServer, schedo: Call, args: list[str], body: dict[str, Any]
) -> None:
    server.on("PATCH", "/v1/queues/mail", 200, queue_record())

    assert schedo("queues", "set", "mail", *args).exit_code == 0
    assert server.requests[0].json == body


@pytest.mark.parametrize(
    "args", [[], ["--concurrency", "many"], ["--weight", "x"], ["--concurrency", "-1"]], ids=str
)
def test_wrong_limits_are_exit_code_2(server: FakeServer, schedo: Call, args: list[str]) -> None:
    assert schedo("queues", "set", "mail", *args).exit_code == 2
    assert server.requests == []


@pytest.mark.parametrize("word", ["none", "0x2", "-1"])
def test_the_refusal_of_a_limit_says_how_a_limit_is_removed(
    server: FakeServer, schedo: Call, word: str
) -> None:
    result = schedo("queues", "set", "mail", "--concurrency", word)

    assert f"{word!r} is not a number of jobs; write unlimited to remove the limit" in result.stderr
    assert "N|unlimited" in schedo("queues", "set", "--help").stdout


@pytest.mark.parametrize("command", [("pause",), ("queues", "pause", "mail")], ids=" ".join)
def test_two_ends_of_a_pause_are_exit_code_2(
    server: FakeServer, schedo: Call, command: tuple[str, ...]
) -> None:
    result = schedo(*command, "--for", "1h", "--until", "2099-11-20T13:00:00Z")

    assert result.exit_code == 2
    assert "give only one of --for and --until" in result.stderr
    assert server.requests == []


def test_queues_are_paused_and_resumed(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/queues/mail:pause", 200, queue_record(paused=True))
    server.on("POST", "/v1/queues/mail:resume", 200, queue_record())
    server.on("GET", "/v1/queues", 200, {"items": [queue_record()]})

    assert json.loads(schedo("queues", "pause", "mail", "--json").stdout)["paused"] is True
    assert "open" in schedo("queues", "resume", "mail").stdout


def test_a_pause_of_a_queue_that_has_never_been_used_says_so(
    server: FakeServer, schedo: Call
) -> None:
    server.on("GET", "/v1/queues", 200, {"items": [queue_record()]})
    for name in ("mail", "mial", "other"):
        server.on("POST", f"/v1/queues/{name}:pause", 200, queue_record(name=name, paused=True))

    assert schedo("queues", "pause", "mail").stderr == ""
    assert schedo("queues", "pause", "mial").stderr == (
        "schedo: warning: queue mial has no active jobs and no limits; did you mean mail?"
        " (schedo queues resume mial undoes it)\n"
    )
    assert schedo("queues", "pause", "other").stderr == (
        "schedo: warning: queue other has no active jobs and no limits"
        " (schedo queues resume other undoes it)\n"
    )


def test_a_queue_is_paused_with_a_note_and_an_end(server: FakeServer, schedo: Call) -> None:
    pause = {
        "since": "2026-11-20T11:00:00.000000Z",
        "note": "moving\x1b",
        "until": "2026-11-20T13:00:00.000000Z",
    }
    server.on("GET", "/v1/queues", 200, {"items": [queue_record()]})
    server.on("POST", "/v1/queues/mail:pause", 200, queue_record(paused=True, pause=pause))

    result = schedo(
        "queues", "pause", "mail", "--note", "moving", "--until", "2099-11-20T13:00:00Z"
    )
    schedo("queues", "pause", "mail", "--for", "2h")

    header, row = result.stdout.splitlines()
    assert header.split()[-2:] == ["UNTIL", "NOTE"]
    assert "2026-11-20 13:00 (" in row
    assert row.endswith("  moving\\x1b")
    sent = [each.json for each in server.requests if each.method == "POST"]
    assert sent == [{"note": "moving", "until": "2099-11-20T13:00:00.000000Z"}, {"duration": "2h"}]


def test_a_wrong_end_of_a_pause_is_refused(server: FakeServer, schedo: Call) -> None:
    result = schedo("queues", "pause", "mail", "--until", "soon")

    assert result.exit_code == 2
    assert "--until" in result.stderr
    assert server.requests == []
