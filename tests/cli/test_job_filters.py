"""The options that select jobs."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from schedo.cli.job_filters import FILTERS
from schedo.client.operations import JobFilters
from schedo.core.limits import HOUR, MINUTE
from schedo.protocol.times import parse_instant
from tests.cli.conftest import Call
from tests.client.server import FakeServer


def sent(server: FakeServer) -> dict[str, str]:
    query = parse_qs(urlsplit(server.requests[-1].target).query)
    return {name: value for name, [value] in query.items() if name != "limit"}


def test_the_command_line_has_an_option_for_every_filter_of_a_list() -> None:
    assert {*FILTERS, "order"} == set(JobFilters.__annotations__)  # --order is of `jobs ls` only


def test_each_filter_is_sent_to_the_server(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/jobs", 200, {"items": []})
    texts = {name: "a" for name in FILTERS if not name.endswith(("after", "before"))}
    texts |= {
        "state": "failed,expired",
        "error": "no route",
        "late_over": "10ms",
        "payload": "order.id=97=8",
    }
    times = {name: "2026-11-20T11:00:00Z" for name in FILTERS if name not in texts}
    wanted = texts | times
    options = [part for name, text in wanted.items() for part in (f"--{name}", text)]

    result = schedo("jobs", "ls", *(part.replace("_", "-") for part in options))

    assert result.exit_code == 0, result.output
    times = dict.fromkeys(times, "2026-11-20T11:00:00.000000Z")
    del texts["payload"]
    assert sent(server) == {**texts, **times, "payload.order.id": "97=8"}


@pytest.mark.parametrize(
    ("option", "text"), [("--payload", "9781"), ("--state", "failed,dead"), ("--late-over", "soon")]
)
def test_a_wrong_filter_is_refused_with_its_option(
    server: FakeServer, schedo: Call, option: str, text: str
) -> None:
    result = schedo("jobs", "ls", option, text)

    assert result.exit_code == 2
    assert option in result.stderr
    assert server.requests == []


def test_a_distance_is_that_long_ago(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/jobs", 200, {"items": []})

    schedo("jobs", "ls", "--ended-after", "2h", "--ended-before", "1h30m")

    filters = sent(server)
    ago = parse_instant(filters["ended_before"]) - parse_instant(filters["ended_after"])
    assert abs(ago - HOUR // 2) < MINUTE


def test_a_time_of_day_is_the_latest_one_that_has_passed(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/jobs", 200, {"items": []})

    schedo("jobs", "ls", "--created-after", "00:00", "--created-before", "0s")

    filters = sent(server)
    age = parse_instant(filters["created_before"]) - parse_instant(filters["created_after"])
    assert -MINUTE < age < 25 * HOUR


@pytest.mark.parametrize("text", ["yesterday", "", "-5m", "2026-13-01T00:00:00Z"])
def test_a_wrong_time_is_refused_with_its_option(
    server: FakeServer, schedo: Call, text: str
) -> None:
    result = schedo("jobs", "ls", "--ended-after", text)

    assert result.exit_code == 2
    assert "--ended-after" in result.stderr
    assert server.requests == []
