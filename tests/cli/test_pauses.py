"""`schedo pause` and `schedo resume`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Call
from tests.client.server import FakeServer

PAUSE = {"scope": "starts", "since": "2026-01-02T03:04:05Z", "note": "a\x1bb", "until": None}


@pytest.mark.parametrize(
    ("args", "body"),
    [
        ((), {"scopes": ["starts", "schedules"]}),
        (
            ("starts", "--note", "moving", "--for", "2h"),
            {"scopes": ["starts"], "note": "moving", "duration": "2h"},
        ),
        (
            ("schedules", "--until", "2099-01-01T00:00:00Z"),
            {"scopes": ["schedules"], "until": "2099-01-01T00:00:00.000000Z"},
        ),
    ],
)
def test_a_pause_is_requested(
    server: FakeServer, schedo: Call, args: tuple[str, ...], body: object
) -> None:
    server.on("POST", "/v1/server:pause", 200, {"pauses": [PAUSE]})

    result = schedo("pause", *args)

    assert result.exit_code == 0, result.stderr
    assert server.requests[0].json == body
    scope, day, *_, until, note = result.stdout.splitlines()[1].split()
    assert (scope, day, until, note) == ("starts", "2026-01-02", "-", "a\\x1bb")


def test_a_resume_says_that_nothing_is_paused(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/server:resume", 200, {"pauses": []})

    result = schedo("resume", "starts")

    assert server.requests[0].json == {"scopes": ["starts"]}
    assert result.stdout == "nothing is paused\n"


def test_the_pauses_are_printed_as_json(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/server:resume", 200, {"pauses": [PAUSE]})

    assert '"since"' in schedo("resume", "--json").stdout
