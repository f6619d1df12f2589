"""`schedo summary`: the verdict and the main figures."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Call
from tests.client.server import FakeServer, schedule_record

BUDGET = {"starts": 1_000, "within": 1_000, "share": 1.0, "budget_left": 0.75}


def arrange(server: FakeServer, found: dict[str, Any], *failing: dict[str, Any]) -> None:
    server.on("GET", "/v1/summary", 200, found)
    server.on("GET", "/v1/schedules", 200, {"items": failing})


def summary(**fields: Any) -> dict[str, Any]:
    counts = {"submitted": 1_234, "started": 1_200, "completed": 1_190, "failed": 5}
    lateness = {"p50_us": 230, "p99_us": None, "recent": BUDGET, "day": BUDGET}
    found = {
        "verdict": {"level": "warning", "text": "5 jobs failed.", "others": ["Jobs\x1b start."]},
        "lateness": {"timer": lateness, "submit": lateness},
        "recent": counts,
        "day": {name: 10 * count for name, count in counts.items()},
        "states": {"queued": 2, "running": 4},
        "running": 4,
        "slots": 20,
    }
    return {**found, **fields}


def test_the_verdict_comes_first(server: FakeServer, schedo: Call) -> None:
    arrange(server, summary())

    lines = schedo("summary").stdout.splitlines()

    assert lines[0] == "5 jobs failed."
    assert "\x1b" not in lines[1]
    text = " ".join(" ".join(lines).split())
    assert "timed jobs p50 230µs p99 - error budget of the day left 75%" in text
    assert "5 minutes submitted 1,234 started 1,200 completed 1,190 failed 5" in text
    assert "24 hours submitted 12,340" in text
    assert "jobs queued 2 running 4" in text
    assert "slots 4 of 20 busy" in text


def test_a_budget_that_is_used_up_says_what_was_in_time(server: FakeServer, schedo: Call) -> None:
    found = summary()
    found["lateness"]["timer"]["day"] = BUDGET | {"share": 0.5, "budget_left": -499.0}
    arrange(server, found)

    assert "error budget of the day used up, 50.00% in time" in schedo("summary").stdout


def test_jobs_that_wait_long_are_listed_with_the_reason(server: FakeServer, schedo: Call) -> None:
    due_at = "2026-11-20T11:00:00.000000Z"
    wait = {"job": "0CR6", "task": "train", "queue": "ml", "due_at": due_at, "why": "no worker"}
    arrange(server, summary(long_waits=[wait]))

    *_, headers, row = schedo("summary").stdout.splitlines()

    assert headers.split() == ["WAITS", "TASK", "QUEUE", "DUE", "WHY"]
    assert row.split()[:3] == ["0CR6", "train", "ml"]
    assert row.endswith("no worker")


def test_jobs_that_are_still_counted_are_no_number(server: FakeServer, schedo: Call) -> None:
    arrange(server, summary(states=None))

    assert "still counted" in schedo("summary").stdout


def test_the_summary_is_printed_as_json(server: FakeServer, schedo: Call) -> None:
    arrange(server, summary())

    assert json.loads(schedo("summary", "--json").stdout) == summary()


def test_schedules_that_fail_are_named(server: FakeServer, schedo: Call) -> None:
    runs = {"failed_in_row": 3, "last": []}
    arrange(server, summary(), schedule_record(name="ledger", runs=runs))

    result = schedo("summary")

    assert result.stderr == (
        "schedo: 1 schedule fails: ledger (the last 3 runs failed);"
        " why: schedo schedules show NAME\n"
    )
    assert "failing=true" in server.requests[-1].target
