"""`schedo top`: its figures, computed from two readings, and its frames."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import click
import pytest

from schedo.cli.escapes import measure
from schedo.cli.screen import fit_height, mark_stale, render_frame
from schedo.cli.top_figures import Figures, Lists, Reading, compute_figures, reading_at_start
from schedo.client.messages import Record
from schedo.client.metrics import parse_metrics
from tests.cli.conftest import Call
from tests.client.server import FakeServer, Reply, problem, schedule_record

NOW = 1_795_172_645_000_000  # 2026-11-20T11:04:05Z
MAIL: Record = {"name": "mail", "concurrency": 5, "paused": True, "running": 2, "waiting": {}}


def page(*, done: int, fast: int, slow: int, ready: int = 1) -> str:
    """Return a page of /metrics after this number of jobs, some of which started late."""
    return f"""\
schedo_info{{version="1.2.3"}} 1
schedo_ready {ready}
schedo_epoch 4
schedo_attempts_started_total {done}
schedo_attempts_ended_total{{outcome="completed"}} {done}
schedo_attempts_ended_total{{outcome="lost"}} 1
schedo_jobs_ended_total{{state="completed"}} {done}
schedo_jobs_ended_total{{state="failed"}} 3
schedo_start_lateness_seconds_bucket{{kind="timer",le="0.0001"}} {fast}
schedo_start_lateness_seconds_bucket{{kind="timer",le="0.002"}} {fast + slow}
schedo_start_lateness_seconds_bucket{{kind="timer",le="+Inf"}} {fast + slow}
schedo_start_delay_seconds_bucket{{queue="mail",le="0.0001"}} {fast}
schedo_start_delay_seconds_bucket{{queue="mail",le="+Inf"}} {fast + slow}
schedo_start_delay_seconds_count{{queue="mail"}} {fast + slow}
schedo_commit_wait_seconds_bucket{{queue="mail",le="0.001"}} {done}
schedo_commit_wait_seconds_bucket{{queue="mail",le="+Inf"}} {done}
schedo_commit_wait_seconds_count{{queue="mail"}} {done}
schedo_commit_seconds_bucket{{le="0.002"}} 0
schedo_commit_seconds_bucket{{le="+Inf"}} 0
schedo_commit_jobs_bucket{{le="+Inf"}} {done // 10}
schedo_commit_jobs_sum {done}
schedo_loop_lag_recent_seconds 0.00125
schedo_queue_waiting_jobs{{queue="mail",state="queued"}} 12345
schedo_queue_waiting_jobs{{queue="mail",state="scheduled"}} 7
schedo_queue_running_jobs{{queue="mail"}} 2
schedo_queue_paused{{queue="mail"}} 1
schedo_workers 1
schedo_worker_slots 16
schedo_worker_slots_busy 2
schedo_store_bytes 5242880
process_resident_memory_bytes 48234496
process_cpu_seconds_total {done / 1000}
process_start_time_seconds 1795172545
"""


def reading(at_s: float, text: str, *reasons: str) -> Reading:
    return Reading(at_s, NOW / 1e6, parse_metrics(text.encode()), list(reasons))


def clock(second: int) -> str:
    """Return a second of 11:04 in the API's notation; now is 11:04:05."""
    return f"2026-11-20T11:04:{second:02}.000000Z"


SCHEDULES = [
    schedule_record(name="later", next_fires=["2026-11-20T12:00:00.000000Z"]),
    schedule_record(name="soon", next_fires=[clock(35)]),
    schedule_record(name="stopped", paused=True),
    schedule_record(name="over", next_fires=[]),
]


def figures(
    *reasons: str, schedules: list[Record] = SCHEDULES, has_more: bool = False, **changes: int
) -> Figures:
    """Return the figures of two seconds with 100 jobs, 90 of which started within 100 µs."""
    before = page(done=100, fast=10, slow=0)
    after = page(**{"done": 200, "fast": 100, "slow": 10, **changes})
    lists = Lists([MAIL], schedules, has_more)
    return compute_figures(reading(10.0, before), reading(12.0, after, *reasons), lists)


def test_rates_cover_the_interval_between_two_readings() -> None:
    found = figures()

    assert (found.submitted_per_s, found.started_per_s) == (50, 50)
    assert found.ended_per_s == {"completed": 50, "failed": 0, "cancelled": 0, "expired": 0}
    assert found.unsuccessful_per_s == {"failed": 0, "timeout": 0, "lost": 0, "stale": 0}
    assert found.cpu_share == pytest.approx(0.05)
    assert found.commit_jobs == 10


def test_percentiles_cover_the_interval_between_two_readings() -> None:
    found = figures()

    assert found.lateness["timer"].p50 == pytest.approx(0.000_0556, rel=0.01)
    assert found.lateness["timer"].p99 == pytest.approx(0.001_81, rel=0.01)
    assert found.commit.p50 is None
    (mail,) = found.queues
    assert mail.delay.p99 == float("inf")
    assert mail.commit_wait.p50 == pytest.approx(0.000_5)


def test_a_restarted_server_has_no_negative_rates() -> None:
    found = figures(done=30, fast=5, slow=0)

    assert (found.started_per_s, found.lateness["timer"].per_s) == (15, 2.5)


def test_the_first_rates_cover_the_time_since_the_servers_start() -> None:
    first = reading(10.0, page(done=200, fast=100, slow=10))

    found = compute_figures(reading_at_start(first), first, Lists([], []))

    assert (found.interval_s, found.uptime_s) == (100, 100)
    assert (found.started_per_s, found.lateness["timer"].per_s) == (2, 1.1)


def test_queues_and_fires_are_listed() -> None:
    found = figures()

    (mail,) = found.queues
    assert (mail.name, mail.is_paused, mail.running, mail.concurrency) == ("mail", True, 2, 5)
    assert (mail.waiting["queued"], mail.waiting["scheduled"]) == (12_345, 7)
    assert [fire["schedule"] for fire in found.fires] == ["soon", "later"]


@pytest.mark.parametrize(
    ("known", "next_fires"),
    [
        ([3, 4, 5, 6, 7], [clock(5)]),
        ([0, 1, 2, 3, 4], [clock(5)]),  # every second
        ([50 - 60, 53 - 60, 56 - 60, 59 - 60, 2], [clock(5)]),  # every three
        ([1, 2, 3], []),  # the list is not full, so the schedule does not fire again
    ],
    ids=["some have passed", "all have passed", "it keeps its pace", "it has ended"],
)
def test_a_fire_that_has_passed_is_not_the_next_one(
    known: list[int], next_fires: list[str]
) -> None:
    texts = [clock(at) if at >= 0 else f"2026-11-20T11:03:{60 + at}.000000Z" for at in known]

    found = figures(schedules=[schedule_record(next_fires=texts)])

    assert [fire["at"] for fire in found.fires] == next_fires


def test_a_frame_notes_that_not_all_schedules_were_read() -> None:
    note = "of the first 5,000 schedules by name"

    assert render_frame(figures(has_more=True), "http://host:1", NOW)[-1] == note
    assert note not in render_frame(figures(), "http://host:1", NOW)


def test_a_frame_shows_all_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")

    lines = render_frame(figures(), "http://host:1", NOW)

    assert lines[0] == "schedo 1.2.3 at http://host:1   rates over 2s"
    assert lines[1] == "ready"
    text = re.sub(" +", " ", "\n".join(lines))
    for part in (
        "epoch 4 up 1m40s memory 46.0 MB cpu 5%",
        "submitted 50 completed 50 failed 0",
        "lateness timers p50 56µs p99 1.8ms of 50/s",
        "at once p50 - p99 - of 0/s",
        "worst 1.2ms",
        "jobs each 10.0",
        "slots 16 busy 2",
        "mail paused 2 5 12,345 7 50 56µs >10s 500µs 990µs",
        "soon 11:04:35 (in 30s) 0 3 * * * shell",
    ):
        assert part in text, text


def test_a_frame_shows_why_a_server_is_not_ready() -> None:
    found = figures("it is late", ready=0)

    lines = render_frame(found, "http://host:1", NOW, is_coloured=True)

    assert lines[1] == "\x1b[31m\x1b[1mnot ready: it is late\x1b[0m"


def test_a_ready_server_whose_lists_fail_is_shown_in_red() -> None:
    found = figures("queues cannot be listed")

    lines = render_frame(found, "http://host:1", NOW, is_coloured=True)

    assert lines[1] == "\x1b[31m\x1b[1mready: queues cannot be listed\x1b[0m"


@pytest.mark.parametrize("width", [1, 7, 40, 60, 80, 120])
@pytest.mark.parametrize("name", ["mail", "m" * 255, "漢" * 255])
def test_no_line_is_wider_than_the_terminal(width: int, name: str) -> None:
    found = figures(schedules=[schedule_record(name=name, next_fires=[clock(35)])], has_more=True)
    found.queues[0] = replace(found.queues[0], name=name)

    lines = render_frame(found, "http://host:1", NOW, width=width, is_coloured=True)

    assert max(measure(click.unstyle(line)) for line in lines) <= width
    assert ("\x1b[33mpaused\x1b[0m" in "".join(lines)) == (width >= 40)


@pytest.mark.parametrize(
    ("height", "kept"), [(9, 7), (7, 7), (6, 6), (5, 3), (4, 3), (3, 3), (2, 2)]
)
def test_a_low_terminal_shows_no_headers_without_rows(height: int, kept: int) -> None:
    lines = ["a", "b", "c", "", "NEXT FIRE", "nightly", "weekly"]

    assert fit_height(lines, height) == lines[:kept]


def test_stale_figures_are_marked_with_their_age() -> None:
    lines = render_frame(figures(), "http://host:1", NOW, width=40)

    shown = mark_stale(lines, "cannot reach schedo: \x07", 12.9, width=40)
    narrow = mark_stale(lines, "cannot reach schedo", 12.9, width=10, is_coloured=True)

    assert shown[:2] == ["cannot reach schedo: \\x07", "the figures below are 12s old"]
    assert shown[2:] == lines[2:]
    assert narrow[1] == "\x1b[31m\x1b[1mthe figur…\x1b[0m"


def test_control_characters_in_a_frame_are_escaped() -> None:
    found = figures("\x1b]0;evil\x07")
    found.fires[0]["schedule"] = "\x1b[2Jevil"

    assert "\x1b" not in "".join(render_frame(found, "http://host:1", NOW, width=200))


# The command.


def serve_pages(server: FakeServer, *, ready: int = 1) -> None:
    for text in (
        page(done=100, fast=10, slow=0, ready=ready),
        page(done=200, fast=100, slow=10, ready=ready),
    ):
        server.reply("GET", "/metrics", Reply(200, text.encode(), {"Content-Type": "text/plain"}))
    server.on("GET", "/v1/queues", 200, {"items": [MAIL]})
    server.on("GET", "/v1/schedules", 200, {"items": [schedule_record()]})
    server.on("GET", "/readyz", 503, {"ready": False, "reasons": ["a commit hangs"]})


def test_the_option_once_prints_one_frame(server: FakeServer, schedo: Call) -> None:
    serve_pages(server)

    result = schedo("top", "--once", "--interval", "0")

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"schedo 1.2.3 at {server.url}   rates over ")
    assert result.stdout.splitlines()[1] == "ready"
    assert "\x1b" not in result.stdout
    assert "nightly" in result.stdout


def test_without_a_terminal_one_frame_is_printed(server: FakeServer, schedo: Call) -> None:
    serve_pages(server)

    result = schedo("top", "--interval", "0")

    assert (result.exit_code, result.stdout.count("schedo 1.2.3")) == (0, 1)


def test_json_output_has_all_figures(server: FakeServer, schedo: Call) -> None:
    serve_pages(server)

    found = json.loads(schedo("top", "--once", "--json", "--interval", "0").stdout)

    assert (found["is_ready"], found["epoch"], found["slots"]) == (True, 4, 16)
    assert found["queues"][0]["delay"]["p50"] == pytest.approx(0.000_0556, rel=0.01)
    assert found["queues"][0]["delay"]["p99"] is None  # above the bound of the last bucket


def test_the_reasons_of_a_server_that_is_not_ready_are_requested(
    server: FakeServer, schedo: Call
) -> None:
    serve_pages(server, ready=0)

    assert "not ready: a commit hangs\n" in schedo("top", "--once", "--interval", "0").stdout


def test_a_server_whose_lists_fail_is_still_shown(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/queues", 507, problem(507, "store-full", "there is no room left"))
    serve_pages(server, ready=0)

    result = schedo("top", "--once", "--interval", "0")

    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1] == (
        "not ready: a commit hangs; queues and schedules cannot be listed: there is no room left"
    )
    assert re.search("^mail +paused +2 +- +12,345 ", result.stdout, re.MULTILINE)


def test_the_next_fires_come_from_all_pages(server: FakeServer, schedo: Call) -> None:
    first = {"items": [schedule_record(name="a")], "next_cursor": "after-a"}
    server.on("GET", "/v1/schedules", 200, first)
    soonest = schedule_record(name="z", next_fires=["2099-01-01T00:00:00.000000Z"])
    server.on("GET", "/v1/schedules", 200, {"items": [soonest]})
    serve_pages(server)

    found = json.loads(schedo("top", "--json", "--interval", "0").stdout)

    targets = [each.target for each in server.requests if "/schedules?" in each.target]
    assert targets[:2] == ["/v1/schedules?limit=100", "/v1/schedules?limit=100&cursor=after-a"]
    assert [fire["schedule"] for fire in found["fires"]] == ["z", "a"]
    assert not found["has_more_schedules"]


def test_at_most_5000_schedules_are_read(server: FakeServer, schedo: Call) -> None:
    hundred = {"items": [schedule_record()] * 100, "next_cursor": "more"}
    for _ in range(50):
        server.on("GET", "/v1/schedules", 200, hundred)
    serve_pages(server)

    found = json.loads(schedo("top", "--json", "--interval", "0").stdout)

    assert sum("/schedules?limit" in each.target for each in server.requests) == 50
    assert found["has_more_schedules"]


def test_failing_schedules_are_named(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/v1/schedules", 200, {"items": [schedule_record(name="a")]})
    broken = schedule_record(name="nightly", runs={"failed_in_row": 3, "last": []})
    server.on("GET", "/v1/schedules", 200, {"items": [broken]})
    serve_pages(server)

    found = schedo("top", "--once")

    assert "\nfailing     nightly (3 in a row)\n" in found.stdout
    assert "/v1/schedules?failing=true&limit=5" in [each.target for each in server.requests]


def test_a_server_that_refuses_is_exit_code_1(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/metrics", 401, problem(401, "unauthorized", "send the token"))

    result = schedo("top", "--once")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "send the token" in result.stderr


@pytest.mark.parametrize("interval", ["-1", "x", "1e9", "nan", "inf"])
def test_a_wrong_interval_is_exit_code_2(schedo: Call, interval: str) -> None:
    assert schedo("top", "--interval", interval).exit_code == 2
