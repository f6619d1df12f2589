"""`schedo cluster`: the servers that share the store."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Call
from tests.client.server import FakeServer


def member(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "number": number,
        "name": f"db{number} 77",
        "url": f"http://10.0.0.{number}:8080",
        "epoch": 40 + number,
        "version": "0.1.0",
        "state": "open",
        "shards": [*range(15)],
        "silent_us": 45_000,
        "clock_ahead_us": -2_500 * (number == 1),
        "reachable": True,
        **fields,
    }


LOST = member(3, url=None, silent_us=None, reachable=False, problem="the server db3 is away")
FOUND = {
    "me": 2,
    "members": [member(1), member(2), LOST],
    "unowned": [15, 31],
    "now": "2026-11-23T17:00:00Z",
}


def test_the_help_explains_each_column_whose_name_says_too_little(schedo: Call) -> None:
    printed = schedo("cluster", "--help").stdout

    for column in ("HEARTBEAT", "CLOCK", "REACHABLE", "EPOCH"):
        assert column in printed


def test_the_servers_are_listed_with_their_shards(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/cluster", 200, FOUND)

    printed = schedo("cluster")

    headers, first, second, third = printed.stdout.splitlines()
    assert headers.split()[:5] == ["NO", "NAME", "STATE", "SHARDS", "HEARTBEAT"]
    assert first.split()[:6] == ["1", "db1", "77", "open", "15", "45ms"]
    assert first.split()[6:8] == ["-2.5ms", "yes"]
    assert second.startswith("2*")
    assert third.split()[5:8] == ["gone", "-", "no"]
    assert printed.stderr.splitlines() == [
        "schedo: the server db3 is away",
        "schedo: 2 shards have no owner now",
    ]


def test_a_server_with_a_file_is_alone(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/cluster", 200, {"me": None, "members": [], "unowned": []})

    printed = schedo("cluster")

    assert printed.stdout == ""
    assert "the store is a file, so this server is alone" in printed.stderr


def test_the_list_as_json_is_that_of_the_server(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/cluster", 200, FOUND)

    assert json.loads(schedo("cluster", "--json").stdout) == FOUND
