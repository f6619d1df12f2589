"""A server that is paused for seconds does not take other processes for silent."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.server import eventually, serving
from tests.sources import ROOT

pytestmark = pytest.mark.e2e


def test_a_paused_server_does_not_kill_its_child_process_as_blocked(tmp_path: Path) -> None:
    with serving(tmp_path, "tests.e2e.small_app:app", PYTHONPATH=str(ROOT)) as server:
        child = server.ended(server.submit(task="pid")["id"])["result"]
        job = server.submit(task="rest", payload={"seconds": 5})["id"]
        os.kill(child, signal.SIGSTOP)
        time.sleep(0.6)  # the server pings the child every quarter of a second
        os.kill(server.pid, signal.SIGSTOP)
        os.kill(child, signal.SIGCONT)  # now it answers, but the server is paused
        time.sleep(3.0)
        os.kill(server.pid, signal.SIGCONT)
        ended = server.ended(job)

        assert "has not answered" not in server.log()
        assert (ended["state"], ended["attempt"], ended["result"]) == ("completed", 1, "rested")


def test_a_stopped_spawner_is_replaced_and_its_commands_run_again(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        line = "echo $PPID >> starters; test $SCHEDO_ATTEMPT = 2 || exec sleep 60"
        job = server.submit(task="shell", payload={"command": line, "cwd": str(tmp_path)})["id"]
        starters = tmp_path / "starters"
        eventually(starters.exists, "the command has begun")
        eventually(lambda: starters.read_text().endswith("\n"), "it has said who started it")
        first = int(starters.read_text())

        os.kill(first, signal.SIGSTOP)
        eventually(lambda: server.ask("GET", "/readyz")[0] == 503, "the server is not ready")
        _, why = server.ask("GET", "/readyz")
        ended = server.ended(job)

        assert "the spawner of commands has not answered for" in str(why)
        assert (ended["state"], ended["attempt"], ended["losses"]) == ("completed", 2, 1)
        assert server.ask("GET", "/readyz")[0] == 200
        assert "outlives SIGKILL" not in server.log()
        assert not Path(f"/proc/{first}").exists()


def test_a_stop_takes_at_most_the_grace_time_whatever_a_command_does(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell", "--drain-grace", "1s") as server:
        begun = tmp_path / "begun"
        line = f"trap '' TERM; touch {begun}; while :; do sleep 0.1; done"
        server.submit(task="shell", payload={"command": line, "grace": "1h"})
        eventually(begun.exists, "the command has begun")

        began = time.monotonic()
        assert server.terminate() == 0

        assert time.monotonic() - began < 1 + 3 + 4  # with time for a busy machine


def test_a_command_that_kills_the_spawner_counts_no_loss_for_other_commands(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-shell") as server:
        innocent = "sleep 1"
        others = [
            server.submit(task="shell", payload={"command": innocent})["id"] for _ in range(4)
        ]
        culprit = server.submit(task="shell", payload={"command": "kill -9 $PPID; sleep 60"})["id"]

        guilty = server.ended(culprit)
        ended = [server.ended(job) for job in others]

        assert (guilty["state"], guilty["error"]["type"]) == ("failed", "lost")
        assert [(job["state"], job["losses"]) for job in ended] == [("completed", 0)] * 4
