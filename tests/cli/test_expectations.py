"""`schedo expectations`, and the expectation of `schedo schedules put`."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Call
from tests.client.server import FakeServer

RECORD = {
    "name": "laptop",
    "every": "1d",
    "within": "2h",
    "state": "missed",
    "missed": 3,
    "since": "2026-01-02T03:04:05Z",
    "limit_at": "2999-01-02T03:04:05Z",
    "effect": "created",
}


def test_an_expectation_is_put_with_its_event_jobs(server: FakeServer, schedo: Call) -> None:
    server.on("PUT", "/v1/expectations/laptop", 201, RECORD)
    hook = {"task": "http", "payload": {"url": "https://hooks.test/"}}

    result = schedo(
        *("expectations", "put", "laptop", "--every", "1d", "--within", "2h"),
        *("--on-miss", json.dumps(hook), "--on-back", "all-clear"),
    )

    assert result.exit_code == 0, result.stderr
    assert server.requests[0].json == {
        "every": "1d",
        "within": "2h",
        "on_miss": hook,
        "on_back": "all-clear",
    }
    assert result.stdout.startswith("expectation laptop created; the next beat by 2999-01-02")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--every", "1d"), "give --within"),
        (("--within", "1d"), "give exactly one of --cron and --every"),
        (("--within", "1d", "--every", "1d", "--cron", "@daily"), "give exactly one of --cron"),
    ],
)
def test_an_incomplete_expectation_is_refused(
    schedo: Call, args: tuple[str, ...], message: str
) -> None:
    result = schedo("expectations", "put", "laptop", *args)

    assert result.exit_code == 2
    assert message in result.stderr


def test_expectations_are_listed_with_their_states(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/expectations", 200, {"items": [RECORD]})

    lines = schedo("expectations", "ls").stdout.splitlines()

    assert lines[0].split()[:3] == ["NAME", "STATE", "MISSED"]
    assert lines[1].split()[:6] == ["laptop", "missed", "3", "every", "1d", "2h"]
    assert json.loads(schedo("expectations", "ls", "--json").stdout) == [RECORD]


def test_an_expectation_is_shown_beaten_and_removed(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/expectations/laptop", 200, RECORD)
    server.on("POST", "/v1/expectations/laptop/beat", 200, RECORD)
    server.on("DELETE", "/v1/expectations/laptop", 204, None)

    assert "missed" in schedo("expectations", "show", "laptop").stdout
    assert json.loads(schedo("expectations", "show", "laptop", "--json").stdout) == RECORD
    beat = schedo("expectations", "beat", "laptop")
    assert beat.stdout.startswith("expectation laptop has its beat; the next beat by 2999")
    assert json.loads(schedo("expectations", "beat", "laptop", "--json").stdout) == RECORD
    assert schedo("expectations", "rm", "laptop").stdout == "expectation laptop deleted\n"
    removed = json.loads(schedo("expectations", "rm", "laptop", "--json").stdout)
    assert removed == {"name": "laptop", "deleted": True}


def test_an_expectation_without_a_limit_says_so(server: FakeServer, schedo: Call) -> None:
    record = {name: value for name, value in RECORD.items() if name != "limit_at"}
    server.on("PUT", "/v1/expectations/laptop", 200, {**record, "effect": "unchanged"})

    result = schedo("expectations", "put", "laptop", "--every", "1d", "--within", "2h")

    assert result.stdout == "expectation laptop up to date; no beat is expected\n"


def test_a_schedule_is_put_with_what_is_expected_of_it(server: FakeServer, schedo: Call) -> None:
    server.on("PUT", "/v1/schedules/s", 201, {"name": "s", "next_fires": [], "warnings": []})

    schedo(
        *("schedules", "put", "s", "--cron", "@daily", "--task", "t", "--within", "30m"),
        *("--max-duration", "1h", "--on-miss", "alert"),
    )

    assert server.requests[0].json["expect"] == {
        "within": "30m",
        "max_duration": "1h",
        "on_miss": "alert",
    }
