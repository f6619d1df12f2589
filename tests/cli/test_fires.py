"""`schedo schedules fires`."""

from __future__ import annotations

import json

import pytest

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
