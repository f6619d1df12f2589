"""`schedo top`: what it works out from two readings, and how it shows that."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schedo.cli.figures import Figures, Reading, work_out
from schedo.cli.screen import render_frame
from schedo.client.messages import Record
from schedo.client.metrics import parse_metrics
from tests.cli.conftest import Call
from tests.client.server import FakeServer, Reply, problem, schedule_record

NOW = 1_795_172_645_000_000  # 2026-11-20T11:04:05Z
MAIL: Record = {"name": "mail", "concurrency": 5, "paused": True, "running": 2, "waiting": {}}


def page(*, done: int, fast: int, slow: int, ready: int = 1) -> str:
    """A page of metrics as it could be after so many jobs, some of which started late."""
    return f"""\
schedo_info{{version="1.2.3"}} 1
schedo_ready {ready}
schedo_epoch 4
schedo_attempts_started_total {done}
schedo_attempts_ended_total{{outcome="completed"}} {done}
schedo_attempts_ended_total{{outcome="lost"}} 1
schedo_jobs_ended_total{{state="completed"}} {done}
schedo_jobs_ended_total{{state="failed"}} 3
schedo_start_lateness_seconds_bucket{{le="0.0001"}} {fast}
schedo_start_lateness_seconds_bucket{{le="0.002"}} {fast + slow}
schedo_start_lateness_seconds_bucket{{le="+Inf"}} {fast + slow}
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


def figures(**changes: int) -> Figures:
    """Two seconds in which 100 jobs were done, 90 of which started within 100 µs."""
    before = page(done=100, fast=10, slow=0)
    after = page(**{"done": 200, "fast": 100, "slow": 10, **changes})
    schedules = [
        schedule_record(name="later", next_fires=["2026-11-20T12:00:00.000000Z"]),
        schedule_record(name="soon", next_fires=["2026-11-20T11:04:35.000000Z"]),
        schedule_record(name="stopped", paused=True),
        schedule_record(name="over", next_fires=[]),
    ]
    return work_out(
        Reading(10.0, 0.0, parse_metrics(before.encode()), []),
        Reading(12.0, NOW / 1e6, parse_metrics(after.encode()), ["it is late"]),
        [MAIL],
        schedules,
    )


def test_rates_are_those_between_the_readings() -> None:
    found = figures()

    assert (found.submitted_per_s, found.started_per_s) == (50, 50)
    assert found.ended_per_s == {"completed": 50, "failed": 0, "cancelled": 0, "expired": 0}
    assert found.troubles_per_s == {"failed": 0, "timeout": 0, "lost": 0, "stale": 0}
    assert found.cpu_share == pytest.approx(0.05)
    assert found.commit_jobs == 10


def test_percentiles_are_those_between_the_readings() -> None:
    found = figures()

    assert found.lateness.p50 == pytest.approx(0.000_0556, rel=0.01)
    assert found.lateness.p99 == pytest.approx(0.001_81, rel=0.01)
    assert found.commit.p50 is None
    (mail,) = found.queues
    assert mail.delay.p99 == float("inf")
    assert mail.commit_wait.p50 == pytest.approx(0.000_5)


def test_a_server_that_began_anew_has_no_negative_rates() -> None:
    found = figures(done=30, fast=5, slow=0)

    assert (found.started_per_s, found.lateness.per_s) == (15, 2.5)


def test_queues_and_fires_are_listed() -> None:
    found = figures()

    (mail,) = found.queues
    assert (mail.name, mail.is_paused, mail.running, mail.concurrency) == ("mail", True, 2, 5)
    assert (mail.waiting["queued"], mail.waiting["scheduled"]) == (12_345, 7)
    assert [fire["schedule"] for fire in found.fires] == ["soon", "later"]


def test_a_frame_shows_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")

    lines = render_frame(figures(), "http://host:1", NOW)

    assert lines[0] == "schedo 1.2.3 at http://host:1"
    assert lines[1] == "ready"
    text = re.sub(" +", " ", "\n".join(lines))
    for part in (
        "epoch 4 up 1m40s memory 46.0 MB cpu 5%",
        "submitted 50 completed 50 failed 0",
        "lateness p50 56µs p99 1.8ms of 50/s",
        "worst 1.2ms",
        "jobs each 10.0",
        "slots 16 busy 2",
        "mail paused 2 5 12,345 7 50 56µs >10s 500µs 990µs",
        "soon 11:04:35 (in 30s) 0 3 * * * shell",
    ):
        assert part in text, text


def test_a_frame_says_why_a_server_is_not_ready() -> None:
    lines = render_frame(figures(ready=0), "http://host:1", NOW, is_coloured=True)

    assert lines[1] == "\x1b[31m\x1b[1mnot ready: it is late\x1b[0m"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = render_frame(figures(), "http://host:1", NOW, width=width)

    assert max(map(len, lines[:12])) <= width


def test_a_name_cannot_touch_the_terminal() -> None:
    found = figures()
    found.fires[0]["schedule"] = "\x1b[2Jevil"
    found.reasons.append("\x1b]0;evil\x07")

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


def test_once_prints_one_frame(server: FakeServer, schedo: Call) -> None:
    serve_pages(server)

    result = schedo("top", "--once", "--interval", "0")

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"schedo 1.2.3 at {server.url}\nready\n")
    assert "\x1b" not in result.stdout
    assert "nightly" in result.stdout


def test_what_is_no_terminal_gets_one_frame(server: FakeServer, schedo: Call) -> None:
    serve_pages(server)

    result = schedo("top", "--interval", "0")

    assert (result.exit_code, result.stdout.count("schedo 1.2.3")) == (0, 1)


def test_json_has_the_figures(server: FakeServer, schedo: Call) -> None:
    serve_pages(server)

    found = json.loads(schedo("top", "--once", "--json", "--interval", "0").stdout)

    assert (found["is_ready"], found["epoch"], found["slots"]) == (True, 4, 16)
    assert found["queues"][0]["delay"]["p50"] == pytest.approx(0.000_0556, rel=0.01)
    assert found["queues"][0]["delay"]["p99"] is None  # behind the last bucket


def test_the_reasons_of_a_server_that_is_not_ready_are_asked_for(
    server: FakeServer, schedo: Call
) -> None:
    serve_pages(server, ready=0)

    assert "not ready: a commit hangs\n" in schedo("top", "--once", "--interval", "0").stdout


def test_a_server_that_refuses_is_exit_code_1(server: FakeServer, schedo: Call) -> None:
    server.on("GET", "/metrics", 401, problem(401, "unauthorized", "send the token"))

    result = schedo("top", "--once")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "send the token" in result.stderr


@pytest.mark.parametrize("interval", ["-1", "x", "1e9"])
def test_a_wrong_interval_is_exit_code_2(schedo: Call, interval: str) -> None:
    assert schedo("top", "--interval", interval).exit_code == 2


@pytest.mark.parametrize("ending", ["q", "interrupt"])
def test_on_a_terminal_it_draws_until_it_is_ended_and_gives_the_screen_back(
    server: FakeServer, ending: str, tmp_path: Path
) -> None:
    serve_pages(server)
    main, terminal = pty.openpty()
    environment = {**os.environ, "SCHEDO_URL": server.url, "NO_COLOR": "1", "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-m", "schedo", "top", "--interval", "0.1"],
        stdin=terminal,
        stdout=terminal,
        env=environment,
        cwd=tmp_path,
    ) as process:
        os.close(terminal)
        shown = read_until(main, b"mail")
        if ending == "q":
            os.write(main, b"q")
        else:
            process.send_signal(signal.SIGINT)
        shown += read_until(main, b"\x1b[?1049l")
        assert process.wait(20) == 0
    os.close(main)

    assert shown.startswith(b"\x1b[?1049h\x1b[?25l")
    assert shown.endswith(b"\x1b[?25h\x1b[?1049l")
    assert b"\x1b[3" not in shown  # no colour


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """Return what a terminal shows, up to what is waited for, at most half a minute."""
    shown = b""
    while wanted not in shown and select.select([descriptor], [], [], 30)[0]:
        shown += os.read(descriptor, 65_536)
    return shown
