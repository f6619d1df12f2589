"""The pauses of a real server outlive a SIGKILL, and end by --resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.server import Server, serving

pytestmark = pytest.mark.e2e

WORK = {"task": "shell", "payload": {"command": "true"}}


def test_a_pause_outlives_a_kill_until_a_start_resumes(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        assert server.ask("POST", "/v1/server:pause", {"note": "moving"})[0] == 200
        job = server.submit(**WORK)
        server.kill()

    with serving(tmp_path, "--allow-shell") as server:
        _, info = server.ask("GET", "/v1/info")
        assert [each["scope"] for each in info["pauses"]] == ["starts", "schedules"]
        assert server.ask("GET", f"/v1/jobs/{job['id']}")[1]["state"] == "queued"
        assert "the server is paused: starts, schedules (moving);" in server.log()
        server.kill()

    with serving(tmp_path, "--allow-shell", "--resume") as server:
        assert server.ended(job["id"])["state"] == "completed"
        assert server.ask("GET", "/v1/info")[1]["pauses"] == []


def test_a_resume_starts_what_has_waited(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        server.ask("POST", "/v1/server:pause", {"scopes": ["starts"]})
        job = server.submit(**WORK)
        assert _state(server, job["id"]) == "queued"

        server.ask("POST", "/v1/server:resume", {})

        assert server.ended(job["id"])["state"] == "completed"


def _state(server: Server, job_id: str) -> str:
    return str(server.ask("GET", f"/v1/jobs/{job_id}")[1]["state"])
