"""`schedo clock advance`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Call
from tests.client.server import FakeServer


@pytest.mark.parametrize(
    ("args", "body"),
    [
        (("3d",), {"by": "3d"}),
        (
            ("--to", "2027-01-01T00:00:00Z", "--settle", "1s"),
            {"to": "2027-01-01T00:00:00Z", "settle": "1s"},
        ),
    ],
)
def test_a_move_is_requested_and_its_end_printed(
    server: FakeServer, schedo: Call, args: tuple[str, ...], body: object
) -> None:
    server.on("POST", "/v1/clock:advance", 200, {"now": "2027-01-01T00:00:00Z", "running": 2})

    result = schedo("clock", "advance", *args)

    assert server.requests[0].json == body
    assert result.stdout == "2027-01-01T00:00:00Z, 2 jobs still run\n"


def test_a_move_is_printed_as_json(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/clock:advance", 200, {"now": "2027-01-01T00:00:00Z", "running": 0})

    assert '"running": 0' in schedo("clock", "advance", "1h", "--json").stdout


def test_a_move_without_a_goal_or_with_two_is_refused(schedo: Call) -> None:
    assert schedo("clock", "advance").exit_code == 2
    assert schedo("clock", "advance", "1h", "--to", "2027-01-01T00:00:00Z").exit_code == 2
