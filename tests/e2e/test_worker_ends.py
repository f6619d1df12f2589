"""A worker process ends after its grace time, whatever the handlers of its application do."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.remote import worker
from tests.e2e.server import eventually, serving

pytestmark = pytest.mark.e2e

APPLICATION = """
import asyncio
from pathlib import Path

from schedo import Schedo, report_progress

app = Schedo()

@app.task
async def read(pipe: str) -> str:
    report_progress(1)
    return await asyncio.to_thread(Path(pipe).read_text)

@app.task
async def resist() -> None:
    report_progress(1)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

@app.task
async def leave() -> None:
    async def exit() -> None:
        raise SystemExit(4)

    ended = asyncio.create_task(exit())
    await asyncio.wait([ended])
"""


@pytest.mark.parametrize(("task", "payload"), [("resist", {}), ("read", {"pipe": "pipe"})])
def test_a_worker_ends_although_a_handler_ignores_its_stop(
    tmp_path: Path, task: str, payload: dict[str, str]
) -> None:
    (tmp_path / "stubborn.py").write_text(APPLICATION)
    os.mkfifo(tmp_path / "pipe")
    with (
        serving(tmp_path) as server,
        worker(server, "w1", "stubborn:app", "--drain-grace", "0s") as first,
    ):
        job = server.submit(task=task, payload=payload)
        path = f"/v1/jobs/{job['id']}"
        eventually(lambda: server.ask("GET", f"{path}/progress")[1]["items"], "begun handler")
        first.signal(signal.SIGTERM)

        assert first.wait() == 0
        assert "although a handler has ignored its stop" in first.log()
        assert server.ask("GET", path)[1]["state"] == "queued"


def test_a_worker_ends_if_a_task_of_a_handler_exits(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(APPLICATION)
    with serving(tmp_path) as server, worker(server, "w1", "stubborn:app") as first:
        job = server.submit(task="resist")
        path = f"/v1/jobs/{job['id']}/progress"
        eventually(lambda: server.ask("GET", path)[1]["items"], "begun handler")
        server.submit(task="leave")

        assert first.wait() == 4
