"""`schedo failures`: the groups of failed attempts."""

from __future__ import annotations

import json

from tests.cli.conftest import Call
from tests.client.server import FakeServer

FOUND = {
    "since": "2026-11-20T11:00:00.000000Z",
    "items": [
        {
            "task": "charge",
            "type": "TimeoutError",
            "exit_code": 3,
            "message": "order # \x1b[31m",
            "count": 1_234,
            "recent": [0, 7, 3],
            "failed_jobs": 5,
            "last_at": "2026-11-20T11:00:00.000000Z",
            "last_job": "0CR6HNYEM0YGF",
        },
        {
            "task": "mail",
            "type": "lost",
            "exit_code": None,
            "message": "",
            "count": 1,
            "recent": [0, 0, 0],
            "failed_jobs": 0,
            "last_at": "2026-11-20T11:00:00.000000Z",
            "last_job": "0CR6HNYEM0YGG",
        },
    ],
}


def test_failures_are_printed_as_a_table(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/failures", 200, FOUND)

    out = schedo("failures").stdout

    _, first, second = out.splitlines()
    assert first.split()[:6] == ["1,234", "10", "5", "charge", "TimeoutError", "3:"]
    assert second.split()[:5] == ["1", "0", "0", "mail", "lost"]
    assert "\x1b" not in out


def test_failures_are_printed_as_json(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/failures", 200, FOUND)

    assert json.loads(schedo("failures", "--json").stdout) == FOUND
