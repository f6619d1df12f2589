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

COMMANDS = 8
ROOT = Path(__file__).parents[2]


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

        for attempt in (1, 2):
            await_all(server, attempt)
            server.kill()
            server.start()

        await_all(server, 3)
        for job in running(server):
            server.ask("POST", f"/v1/jobs/{job['id']}:cancel")
        eventually(lambda: not running(server), "end of all")


def run_app(path: Path, *what: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "tests.e2e.killing_app", str(path / "jobs.db")]
    return subprocess.run([*program, *what], stdout=subprocess.PIPE, text=True, check=False)


def run_until_all_end(path: Path, *tasks: str) -> list[list[object]]:
    """Restart the application until its jobs have ended; return the ends of the jobs."""
    jobs = run_app(path, *tasks).stdout.split()
    assert len(jobs) == len(tasks)
    for _ in range(12):
        again = run_app(path, *jobs)
        if again.returncode == 0:
            return list(json.loads(again.stdout))
        assert again.returncode == 3
    raise AssertionError("it was killed again and again")


def test_a_job_whose_handler_kills_its_program_fails(tmp_path: Path) -> None:
    assert run_until_all_end(tmp_path, "kill") == [["failed", LOSSES_MAX]]


def test_a_job_whose_handler_kills_its_program_only_delays_other_jobs(tmp_path: Path) -> None:
    ended = run_until_all_end(tmp_path, "work", "work", "kill")

    assert [state for state, _ in ended] == ["completed", "completed", "failed"]


def test_a_server_runs_the_suspects_of_a_program_that_was_killed(tmp_path: Path) -> None:
    jobs = run_app(tmp_path, "work", "work", "kill").stdout.split()
    assert run_app(tmp_path, *jobs).returncode == 3  # a kill after a kill: all starts were on disk

    options = ("tests.e2e.killing_app:app", "--store", "jobs.db")
    with serving(tmp_path, *options, PYTHONPATH=str(ROOT)) as server:
        ended = [server.ended(job)["state"] for job in jobs]

    assert ended == ["completed", "completed", "failed"]
