"""A real server with a test clock: a job and a schedule of the distant future happen at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.server import serving

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
