"""`schedo log`: who changed what by hand."""

from __future__ import annotations

import json

from tests.cli.conftest import Call
from tests.client.server import FakeServer

ENTRY = {
    "at": "2026-11-20T11:04:05.000000Z",
    "who": "ada",
    "via": "page",
    "action": "declare",
    "target": "declarations",
    "answer": "changed",
    "count": 1_234,
    "address": "10.1.2.3",
}


def test_the_log_is_a_table(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/log", 200, {"items": [ENTRY, {**ENTRY, "who": "\x1b[31m"}]})

    header, first, second = schedo("log", "--who", "ada", "--limit", "7").stdout.splitlines()

    names = "WHEN WHO VIA ACTION TARGET ANSWER COUNT ADDRESS"
    assert " ".join(header.split()) == names
    assert " ".join(first.split()).endswith("ada page declare declarations changed 1,234 10.1.2.3")
    assert "\x1b" not in second
    assert server.requests[0].target == "/v1/log?who=ada&limit=7"
    assert server.requests[0].headers["user-agent"] == "schedo-cli"


def test_the_log_is_printed_as_json(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/log", 200, {"items": [ENTRY]})

    assert json.loads(schedo("log", "--json").stdout) == [ENTRY]
