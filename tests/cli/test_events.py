"""`schedo events`, `schedo names` and `schedo timeseries`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from schedo.client.events import Event
from schedo.client.sync import Client
from tests.cli.conftest import Call
from tests.client.server import FakeServer, Reply

JOB = {"id": "01K0000000001", "state": "running", "task": "t", "queue": "mail", "attempt": 1}
EVENTS: list[tuple[str, Any]] = [
    ("tick", {"running": 1, "slots": 4, "verdict": {"text": "Jobs start on time."}}),
    ("jobs", {"count": 1, "jobs": [{**JOB, "worker": "eu-1"}]}),
    ("jobs", {"count": 1_500, "states": {"queued": 1_000, "running": 500}}),
    ("schedules", {"count": 300, "deleted": 2}),
    ("schedules", {"count": 1, "deleted": 0, "schedules": [
        {"name": "n", "paused": False, "next_fire": "2026-11-20T11:00:00Z"},
        {"name": "p", "paused": True, "next_fire": None},
        {"name": "never", "paused": False, "next_fire": None},
    ]}),
    ("queues", {"count": 300}),
    ("queues", {"count": 1, "queues": [{"name": "mail", "paused": True, "concurrency": 3}]}),
    ("workers", {"workers": [
        {"name": "w", "state": "ready", "slots": 2, "running": 1, "health": "free slots"},
    ], "gone": ["x"]}),
    ("job", JOB),
    ("progress", {"id": JOB["id"], "attempt": 2, "percent": 40.0, "message": "half"}),
    ("progress", {"id": JOB["id"], "attempt": 3}),
    ("schedule", {"name": "nightly", "paused": True, "next_fire": None}),
    ("reset", {}),
]  # fmt: skip
SHOWN = [
    "1 of 4 slots busy  Jobs start on time.",
    "01K0000000001  running    t  mail  on eu-1",
    "1,500 changes: queued 1,000   running 500",
    "2 deleted",
    "300 changed",
    "n  next 2026-11-20",
    "p  paused",
    "never  next never",
    "300 changed",
    "mail  paused  at most 3",
    "w  ready  1 of 2 slots busy  free slots",
    "x  gone",
    "job        01K0000000001  running    t  mail",
    "01K0000000001  attempt 2  40 %  half",
    "01K0000000001  attempt 3",
    "nightly  paused",
    "events are missing",
]


@pytest.fixture
def streaming(server: FakeServer) -> FakeServer:
    """A server with one stream, which then refuses the token of its reader."""
    texts = [f"id: 1-{n}\nevent: {name}\ndata: {json.dumps(data)}\n\n" for n, (name, data) in
             enumerate(EVENTS)]  # fmt: skip
    body = "".join(["retry: 0\n\n", *texts]).encode()
    server.reply("GET", "/v1/events", Reply(200, body, {"Content-Type": "text/event-stream"}))
    server.on("GET", "/v1/events", 401, {"code": "unauthorized", "status": 401, "detail": "no"})
    return server


def test_events_are_printed_as_they_come(streaming: FakeServer, schedo: Call) -> None:
    result = schedo("events", "--topic", "tick", "--topic", "jobs")

    lines = result.stdout.splitlines()
    assert len(lines) == len(SHOWN)
    for line, shown in zip(lines, SHOWN, strict=True):
        assert shown in line
    assert streaming.requests[0].target == "/v1/events?topics=tick%2Cjobs"
    assert result.exit_code == 1


def test_events_are_printed_as_json_lines(streaming: FakeServer, schedo: Call) -> None:
    result = schedo("events", "--json", "--last-id", "1-9")

    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["event"], line["data"]) for line in lines] == EVENTS
    assert lines[0]["id"] == "1-0"
    assert streaming.requests[0].headers["last-event-id"] == "1-9"
    assert "tick" not in streaming.requests[0].target


def test_events_of_one_job_are_asked_for(streaming: FakeServer, schedo: Call) -> None:
    schedo("events", "--job", "01K0000000001")

    assert streaming.requests[0].target == "/v1/events?job=01K0000000001"


def test_ctrl_c_is_the_ordinary_end(schedo: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(client: Client, **_: Any) -> Iterator[Event]:
        yield Event("queues", {"count": 300}, "1-1")
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "events", interrupted)

    result = schedo("events")

    assert result.stdout.endswith("300 changed\n")
    assert (result.exit_code, result.stderr) == (0, "")


NAMES = {"queues": ["mail"], "tasks": ["t"], "schedules": [], "workers": [], "tags": ["a", "b"]}


def test_names_are_listed_by_kind(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/names", 200, NAMES)

    assert schedo("names", "--kind", "tags").stdout == "a\nb\n"
    assert json.loads(schedo("names", "--json").stdout) == NAMES
    assert json.loads(schedo("names", "--kind", "tasks", "--json").stdout) == ["t"]
    assert schedo("names").stdout.splitlines()[1].split() == ["mail", "queue"]


SERIES = {
    "window": "15m",
    "step": 60,
    "start": "2026-11-20T11:00:00.000000Z",
    "now": "2026-11-20T11:02:30.000000Z",
    "figures": {"started": [None, 1_200], "due": [0, 3]},
}


def test_figures_are_printed_by_interval(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/timeseries", 200, SERIES)

    lines = schedo("timeseries", "--names", "started,due", "-n", "2").stdout.splitlines()

    assert lines[0].split() == ["FROM", "STARTED", "DUE"]
    assert [line.split()[-2:] for line in lines[1:]] == [["-", "0"], ["1,200", "3"]]
    query = "window=15m&names=started%2Cdue&points=2"
    assert server.requests[0].target == f"/v1/timeseries?{query}"


def test_figures_are_printed_as_json(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/timeseries", 200, SERIES)

    assert json.loads(schedo("timeseries", "--json").stdout) == SERIES


def test_figures_of_a_queue_need_the_longer_window(server: FakeServer, schedo: Call) -> None:
    result = schedo("timeseries", "--queue", "mail")

    assert result.exit_code == 2
    assert "give --window 24h with --queue" in result.stderr
    assert server.requests == []
