"""A backlog of overdue jobs does not delay other jobs, and a kill during it loses none."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from schedo.core.changes import Changes
from schedo.core.model import Queue
from schedo.core.states import State
from schedo.store.sqlite.store import SqliteStore
from tests.e2e.server import Server, eventually, serving
from tests.factories import PER_MICROSECOND, make_job

pytestmark = pytest.mark.e2e

COUNT = 60_000  # writing each of them separately would take seconds
TOGETHER = 10_000
LATE_US_MAX = 250_000
HOUR_US = 3_600_000_000


def overdue(path: Path) -> None:
    """Make a store with jobs of a paused queue that became due within the last hour."""

    async def fill() -> None:
        store = SqliteStore(path)
        await store.open()
        first = time.time_ns() // 1000 - HOUR_US
        for start in range(0, COUNT, TOGETHER):
            jobs = [
                make_job(
                    id=(first + n) * PER_MICROSECOND,
                    queue="old",
                    state=State.SCHEDULED,
                    due_at=first + n * 50_000,
                )
                for n in range(start, start + TOGETHER)
            ]
            queues = {"old": Queue("old", paused=True)}
            await store.commit(Changes(jobs={job.id: job for job in jobs}, queues=queues))
        await store.close()

    asyncio.run(fill())


def count(path: Path, state: State) -> int:
    """Return the number of old jobs in the state."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        found: int = connection.execute(
            "SELECT count(*) FROM job WHERE queue = 'old' AND state = ?", (str(state.value),)
        ).fetchone()[0]
    return found


def lateness_us(server: Server) -> int:
    """Return the lateness of a job of another queue that becomes due in half a second."""
    job = server.submit(task="shell", payload={"command": ["true"]}, delay="500ms")
    ended = server.ended(job["id"])
    assert ended["state"] == "completed"
    due_at, started_at = (datetime.fromisoformat(ended[n]) for n in ("scheduled_at", "started_at"))
    return (started_at - due_at) // timedelta(microseconds=1)


def test_a_job_due_beside_a_backlog_is_on_time_and_a_kill_loses_none(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"
    overdue(path)

    with serving(tmp_path, "--allow-shell", "--store", str(path)) as server:
        assert lateness_us(server) < LATE_US_MAX
        server.kill()
        server.start()
        assert lateness_us(server) < LATE_US_MAX
        eventually(lambda: count(path, State.QUEUED) == COUNT, "end of the backlog")
        status, ready = server.ask("GET", "/readyz")

    assert (status, ready["ready"]) == (200, True)
