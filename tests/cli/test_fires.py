"""`schedo schedules fires`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedo.protocol.times import parse_instant
from tests.cli.conftest import Call
from tests.client.server import FakeServer

FOUND = {
    "items": [
        {"at": "2027-03-28T01:00:00.000000Z", "clock_change": "clocks go forward: moved"},
        {"at": "2027-03-29T00:30:00.000000Z", "jitter": "90s"},
    ],
    "count": 3,
    "tz": "Europe/Berlin",
    "paused": True,
}


def test_fires_are_printed_in_the_zone_of_the_schedule(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/schedules/nightly/fires", 200, FOUND)

    result = schedo("schedules", "fires", "nightly", "--from", "2027-03-28T00:00:00Z")

    _, first, second = result.stdout.splitlines()
    assert "03:00" in first
    assert "clocks go forward: moved" in first
    assert "02:30" in second
    assert "90s" in second
    assert "the first 2 of 3" in result.stderr
    assert "is paused" in result.stderr
    [request] = server.requests
    assert request.target.startswith("/v1/schedules/nightly/fires?from=2027-03-28T00%3A00%3A00")


def test_fires_are_printed_as_json(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/schedules/nightly/fires", 200, FOUND)

    assert json.loads(schedo("schedules", "fires", "nightly", "--json").stdout) == FOUND


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_wrong_time_is_named(server: FakeServer, schedo: Call, option: str) -> None:
    result = schedo("schedules", "fires", "nightly", option, "someday")

    assert result.exit_code == 2
    assert option in result.stderr


ALL: dict[str, Any] = {
    "from": "2027-03-28T00:00:00.000000Z",
    "to": "2027-03-29T00:00:00.000000Z",
    "bucket": "12h",
    "computed_at": "2027-03-28T00:00:00.000000Z",
    "schedules": 24,
    "complete": False,
    "together": [24, 2],
    "together_at": [3_600, 43_200],
    "busiest": [{"at": "2027-03-28T01:00:00.000000Z", "schedules": 24, "names": ["a", "b"]}],
    "items": [
        {
            "names": ["a", "b", "c", "d"],
            "schedules": 23,
            "rule": "At 02:30",
            "tz": "Europe/Berlin",
            "count": 1,
            "seconds": [3_600.5],
            "clock_changes": [{"at": "2027-03-28T01:00:00.000000Z", "clock_change": "moved"}],
        },
        {
            "names": ["often"],
            "schedules": 1,
            "rule": "Every 5s",
            "tz": "UTC",
            "count": 8_640,
            "counts": [0, 8_640],
        },
    ],
    "has_more": True,
}


def test_the_fires_of_all_schedules_are_printed_by_rule(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/fires", 200, ALL)

    result = schedo("schedules", "fires", "--hours", "24")

    _, first, second, *rest = result.stdout.splitlines()
    assert first.startswith("a, b, c and 20 more")
    assert "moved" in first
    assert "8,640" in second
    assert any("24" in line and "a, b and 22 more" in line for line in rest)
    assert "the first 2 rules" in result.stderr
    assert "only the first 24 schedules" in result.stderr
    assert server.requests[0].target == "/v1/fires?hours=24"


@pytest.mark.parametrize(
    ("options", "first"),
    [((), "12:05:00"), (("--from", "2027-03-28T12:06:00Z"), "12:10:00")],
    ids=["now", "from"],
)
def test_the_first_fire_is_none_that_has_passed(
    server: FakeServer,
    schedo: Call,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    first: str,
) -> None:
    now = parse_instant("2027-03-28T12:03:14Z")
    monkeypatch.setattr("schedo.cli.fires.read_now", lambda: now)
    item = {**ALL["items"][0], "count": 3, "seconds": [0, 300, 600]}
    found = {**ALL, "from": "2027-03-28T12:00:00.000000Z", "items": [item], "busiest": []}
    server.on("GET", "/v1/fires", 200, found)

    result = schedo("schedules", "fires", *options)

    assert first in result.stdout.splitlines()[1]


def test_the_fires_of_all_schedules_are_printed_as_json(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/fires", 200, ALL)

    assert json.loads(schedo("schedules", "fires", "--json").stdout) == ALL


def test_options_of_one_schedule_and_of_all_are_not_mixed(server: FakeServer, schedo: Call) -> None:
    assert "--hours" in schedo("schedules", "fires", "--to", "18:00").stderr
    assert "--to" in schedo("schedules", "fires", "nightly", "--hours", "2").stderr
    assert server.requests == []
