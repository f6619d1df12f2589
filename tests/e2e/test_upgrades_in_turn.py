"""A server is replaced twice while the first process still runs something."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.e2e.server import eventually
from tests.e2e.test_upgrade import APP, all_run, upgradable


def test_what_the_first_process_runs_begins_again_at_once_if_it_dies_during_the_second_upgrade(
    tmp_path: Path,
) -> None:
    end = tmp_path / "end"
    with upgradable(tmp_path, APP) as upgraded:
        server = upgraded.server
        job = server.submit(task="linger", payload={"until": str(end)}, retry=3)
        eventually(lambda: all_run(server, job), "a running job")
        upgraded.upgraded()
        os.kill(server.pid, signal.SIGSTOP)  # so that the third process hears nothing from it
        new = upgraded.upgraded()["pid"]

        server.kill()

        eventually(lambda: all_run(server, job, attempt=2), "a second attempt")
        end.touch()
        assert server.ended(job["id"])["result"] == new
