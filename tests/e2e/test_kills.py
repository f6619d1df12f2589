"""Repeated kills of the server do not fail the running jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from schedo.core.limits import LOSSES_MAX
from tests.e2e.server import Server, eventually, serving

COMMANDS = 20


def running(server: Server) -> list[dict[str, Any]]:
    _, page = server.ask("GET", "/v1/jobs?state=running&limit=100")
    return list(page["items"])


def await_all(server: Server, attempt: int) -> None:
    """Return once all jobs run, in this attempt and without a loss."""
    expected = Counter({(attempt, 0): COMMANDS})

    def counts_match() -> bool:
        return expected == Counter((job["attempt"], job["losses"]) for job in running(server))

    eventually(counts_match, f"attempt {attempt} of all without a loss")


def test_kills_of_the_server_count_no_losses_on_its_commands(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell", "--concurrency", str(COMMANDS)) as server:
        for _ in range(COMMANDS):
            server.submit(task="shell", payload={"command": "sleep 60"})

        for attempt in (1, 2, 3):
            await_all(server, attempt)
            server.kill()
            server.start()

        await_all(server, 4)
        for job in running(server):
            server.ask("POST", f"/v1/jobs/{job['id']}:cancel")
        eventually(lambda: not running(server), "end of all")


def run_until_all_end(path: Path, *tasks: str) -> list[list[object]]:
    """Restart the application until its jobs have ended; return the ends of the jobs."""
    program = [sys.executable, "-m", "tests.e2e.killing_app", str(path / "jobs.db")]
    first = subprocess.run([*program, *tasks], stdout=subprocess.PIPE, text=True, check=False)
    jobs = first.stdout.split()
    assert len(jobs) == len(tasks)
    for _ in range(12):
        again = subprocess.run([*program, *jobs], stdout=subprocess.PIPE, text=True, check=False)
        if again.returncode == 0:
            return list(json.loads(again.stdout))
        assert again.returncode == 3
    raise AssertionError("it was killed again and again")


def test_a_job_whose_handler_kills_its_program_fails(tmp_path: Path) -> None:
    assert run_until_all_end(tmp_path, "kill") == [["failed", LOSSES_MAX]]


def test_a_job_whose_handler_kills_its_program_only_delays_other_jobs(tmp_path: Path) -> None:
    ended = run_until_all_end(tmp_path, "work", "work", "kill")

    assert [state for state, _ in ended] == ["completed", "completed", "failed"]
