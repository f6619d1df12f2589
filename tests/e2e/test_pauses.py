"""A server that is stopped for seconds, as by a suspended machine, blames nobody else for it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.server import serving
from tests.sources import ROOT

pytestmark = pytest.mark.e2e


def test_a_paused_server_does_not_take_its_child_process_for_blocked(tmp_path: Path) -> None:
    with serving(tmp_path, "tests.e2e.small_app:app", PYTHONPATH=str(ROOT)) as server:
        child = server.ended(server.submit(task="pid")["id"])["result"]
        job = server.submit(task="rest", payload={"seconds": 5})["id"]
        os.kill(child, signal.SIGSTOP)
        time.sleep(0.6)  # a sign of life is asked for every quarter of a second
        os.kill(server.pid, signal.SIGSTOP)
        os.kill(child, signal.SIGCONT)  # now it answers, and the server does not hear it
        time.sleep(3.0)
        os.kill(server.pid, signal.SIGCONT)
        ended = server.ended(job)

        assert "has not answered" not in server.log()
        assert (ended["state"], ended["attempt"], ended["result"]) == ("completed", 1, "rested")
