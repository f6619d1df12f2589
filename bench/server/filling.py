"""Makes a store file with many jobs that are due in the far future, without a server.

The store commits one job; SQL copies its row for the others, because ten million submits would take
minutes. The file is the same as after submits.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from schedo.core.changes import Changes
from schedo.core.model import Job
from schedo.core.states import State
from schedo.store.sqlite.store import SqliteStore

STEP_US = 1_000  # between two due instants
CHUNK = 1_000_000
ID_STEP = 256  # an id is the microsecond of creation times this
BEHIND_US = 600_000_000  # the age of the jobs


async def _start_file(path: Path, job: Job) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.commit(Changes(jobs={job.id: job}))
    await store.close()


def fill(path: Path, count: int, distance_s: float, task: str = "far") -> None:
    """Make a file with `count` jobs of the task; the first is due in `distance_s` seconds."""
    now = time.time_ns() // 1000
    created, due = now - BEHIND_US, now + int(distance_s * 1_000_000)
    first = Job(
        id=created * ID_STEP,
        task=task,
        payload=b'{"n":1}',
        state=State.SCHEDULED,
        created_at=created,
        due_at=due,
        rank=due,
        is_new=True,
    )
    asyncio.run(_start_file(path, first))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # an unfinished file is thrown away
        names = [row[1] for row in connection.execute("PRAGMA table_info(job)")]
        moved = {name: f"{name} + n * {STEP_US}" for name in ("due_at", "rank")} | {"id": "id + n"}
        columns = ", ".join(moved.get(name, name) for name in names)
        for start in range(1, count, CHUNK):
            connection.execute(
                f"INSERT INTO job ({', '.join(names)})"
                f" WITH RECURSIVE number (n) AS"
                f" (SELECT {start} UNION ALL SELECT n + 1 FROM number WHERE n + 1 < ?)"
                f" SELECT {columns} FROM job CROSS JOIN number WHERE id = ?",
                (min(start + CHUNK, count), first.id),
            )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
