"""A real server with a test clock: a job and a schedule of the distant future happen at once."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server, serving

pytestmark = pytest.mark.e2e

COMMAND = {"task": "shell", "payload": {"command": "true"}}


def test_delays_and_schedules_follow_the_clock(tmp_path: Path) -> None:
    with serving(tmp_path, "--test-clock", "--allow-shell") as server:
        job = server.submit(**COMMAND, delay="30d")
        server.ask("PUT", "/v1/schedules/nightly", {**COMMAND, "cron": "0 3 * * *"})

        status, moved = server.ask("POST", "/v1/clock:advance", {"by": "30d"})

        jobs = server.ask("GET", "/v1/jobs?limit=100")[1]["items"]
        assert (status, moved["running"]) == (200, 0)
        assert server.ask("GET", "/v1/info")[1]["test_clock"] == moved["now"]
        assert server.ask("GET", f"/v1/jobs/{job['id']}")[1]["state"] == "completed"
        assert sum("schedule" in each for each in jobs) == 30
        assert {each["state"] for each in jobs} == {"completed"}
        assert "its clock stands still until POST /v1/clock:advance moves it" in server.log()
    assert not list(tmp_path.glob("**/*.db"))


NIGHT_S = 86_400
ALERT_S = 26 * 3_600


def schedo(server: Server, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "schedo", *args, "--url", server.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)


def completion_age_s(server: Server, schedule: str) -> float:
    """Return the value of the alert rule in docs/operations.md."""
    now = server.ask("GET", "/v1/info")[1]["test_clock"]
    with urllib.request.urlopen(f"{server.url}/metrics") as response:
        lines = response.read().decode().splitlines()
    series = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    names = (f"schedo_schedule_{name}_timestamp_seconds" for name in ("last_completion", "created"))
    keys = (f'{name}{{schedule="{schedule}"}}' for name in names)
    at = next(float(series[key]) for key in keys if key in series)
    return datetime.fromisoformat(now).timestamp() - at


def test_a_job_that_fails_three_nights_is_found_by_one_command_and_by_an_alert(
    tmp_path: Path,
) -> None:
    nightly = {"task": "shell", "cron": "0 3 * * *"}
    with serving(tmp_path, "--test-clock", "--allow-shell") as server:
        for name, command in (("backup", "echo disk full >&2; exit 3"), ("report", "true")):
            payload = {"command": command}
            server.ask("PUT", f"/v1/schedules/{name}", {**nightly, "payload": payload})
        for _ in range(3):
            server.ask("POST", "/v1/clock:advance", {"by": "1d"})

        found = schedo(server, "schedules", "ls")
        shown = schedo(server, "schedules", "show", "backup")
        ages = {name: completion_age_s(server, name) for name in ("backup", "report")}

    assert "1 schedule fails: backup (the last 3 runs failed)" in found.stderr
    assert "disk full" in shown.stdout
    assert ages["report"] < NIGHT_S < ALERT_S < ages["backup"]


HOURLY = {"every": "1h", "overlap": "skip"}
RUN = {"task": "shell", "payload": {"command": "true"}}


def alerts(server: Server) -> list[tuple[str, str]]:
    """Return the event and the schedule of each event job, sorted."""
    jobs = server.ask("GET", "/v1/jobs?task=alert&limit=500")[1]["items"]
    facts = [server.ask("GET", f"/v1/jobs/{job['id']}")[1]["payload"] for job in jobs]
    return sorted((each["expectation"]["event"], each["expectation"]["schedule"]) for each in facts)


def test_each_reason_for_a_missing_run_is_noticed_at_its_limit_once_and_its_return_once(
    tmp_path: Path,
) -> None:
    mended = tmp_path / "mended"
    broken: dict[str, Any] = {
        "failed": {"task": "shell", "payload": {"command": f"test -e {mended}"}},
        "no-worker": {"task": "nobody-has-it"},
        "overlapped": {"task": "shell", "payload": {"command": f"test -e {mended} || sleep 600"}},
        "paused": {**RUN, "paused": True},
    }
    expect = {"within": "10m", "on_miss": "alert", "on_back": "alert"}
    with serving(tmp_path, "--test-clock", "--allow-shell") as server:

        def advance(**move: str) -> None:
            request = {**move, "settle": "500ms"}  # one of the runs does not end
            assert server.ask("POST", "/v1/clock:advance", request)[0] == 200

        for name, fields in {**broken, "kept": RUN}.items():
            server.ask("PUT", f"/v1/schedules/{name}", {**HOURLY, **fields, "expect": expect})
        first = server.ask("GET", "/v1/schedules/kept")[1]["next_fires"][0]
        advance(to=first)
        advance(by="9m59s")
        assert alerts(server) == []
        advance(by="1s")
        missed = [("missed", name) for name in sorted(broken)]
        assert alerts(server) == missed
        advance(by="1h")
        assert alerts(server) == missed

        mended.touch()
        for state in ("running", "queued"):
            for job in server.ask("GET", f"/v1/jobs?state={state}")[1]["items"]:
                if job["task"] != "alert":
                    server.ask("POST", f"/v1/jobs/{job['id']}:cancel", {})
                    server.ask("GET", f"/v1/jobs/{job['id']}/wait")
        for name in broken:
            server.ask("PUT", f"/v1/schedules/{name}", {**HOURLY, **RUN, "expect": expect})
        advance(by="4h")

        back = [("back", name) for name in sorted(broken)]
        assert alerts(server) == back + missed
