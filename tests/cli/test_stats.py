"""`schedo stats`: what ended, as a table."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.cli.conftest import Call
from tests.client.server import FakeServer


def ends(**fields: Any) -> dict[str, Any]:
    times = {
        "count": 9,
        "p50_us": 850,
        "p90_us": 12_500,
        "p99_us": 2_410_000,
        "max_us": 7_260_000_000,
    }
    counts = {"completed": 1_200, "failed": 3, "cancelled": 0, "expired": 0, "retried": 4}
    return {**counts, "failed_share": 0.002494, "run": times, "lateness": None, **fields}


FOUND = {
    "by": "task",
    "since": "2026-11-13T11:00:00.000000Z",
    "until": "2026-11-20T11:00:00.000000Z",
    "relative_error": 0.05,
    "total": ends(completed=1_201, failed=5),
    "items": [
        ends(name="mail"),
        ends(name="\x1b[31m", completed=1, failed=0, failed_share=None, run=None),
    ],
    "has_more": False,
}


def test_what_ended_is_printed_with_a_sum(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/stats", 200, FOUND)

    headers, first, second, total = schedo("stats").stdout.splitlines()

    assert headers.split()[:4] == ["NAME", "COMPLETED", "FAILED", "SHARE"]
    assert first.split() == [
        *("mail", "1,200", "3", "0.2%", "0", "0", "4"),
        *("850µs", "12.5ms", "2.41s", "2h1m", "-", "-", "-", "-"),
    ]
    assert second.split()[1:4] == ["1", "0", "-"]
    assert total.split()[:3] == ["(all)", "1,201", "5"]
    assert "\x1b" not in second
    assert server.requests[0].target == "/v1/stats?by=task"


def test_points_are_lines_of_their_own(server: FakeServer, schedo: Call) -> None:
    point = ends(at="2026-11-20T11:00:00.000000Z", completed=7)
    items = [ends(name="a", points=[point]), ends(name="b", points=[point, point])]
    server.on("GET", "/v1/stats", 200, {**FOUND, "per": "hour", "items": items, "has_more": True})

    result = schedo("stats", "--per", "hour", "--by", "queue", "-n", "2", "ai")

    rows = result.stdout.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["a", "b", "b"]
    assert all(row.split()[1:3] == ["2026-11-20", "11:00"] for row in rows)
    assert "there are more" in result.stderr
    query = parse_qs(urlsplit(server.requests[0].target).query)
    assert query == {"by": ["queue"], "per": ["hour"], "name": ["ai"], "limit": ["2"]}


def test_the_begin_may_be_a_distance(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/stats", 200, FOUND)

    assert json.loads(schedo("stats", "--since", "30d", "--json").stdout) == FOUND
    assert "&since=20" in server.requests[0].target
    refused = schedo("stats", "--since", "soon")
    assert refused.exit_code == 2
    assert '"2026-11-20" for its midnight, or how long ago, such as "90m"' in refused.stderr


def test_the_begin_may_be_a_date(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/stats", 200, FOUND)

    schedo("stats", "--since", "2026-11-13", "--until", "2026-11-14")

    assert "since=2026-11-13T00%3A00%3A00" in server.requests[0].target
    assert "until=2026-11-14T00%3A00%3A00" in server.requests[0].target


def test_a_name_that_nothing_has_is_told_with_a_similar_one(
    server: FakeServer, schedo: Call
) -> None:
    server.on("GET", "/v1/stats", 200, {**FOUND, "items": [], "total": ends()})
    server.on("GET", "/v1/stats", 200, FOUND)

    result = schedo("stats", "mial")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "no job whose task has 'mial' in its name has ended from 2026-11-13" in result.stderr
    assert result.stderr.endswith("; did you mean mail?\n")


def test_a_time_in_which_nothing_ended_is_told(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/stats", 200, {**FOUND, "items": []})

    result = schedo("stats")

    assert result.stdout == ""
    assert result.stderr.startswith("schedo: no job has ended from 2026-11-13")
