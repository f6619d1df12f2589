"""A store file with many jobs that wait for a far instant, made without a server.

One job goes in by the store's own commit; the others are copies of its row by SQL, because ten
million through the API would take minutes. What a server finds in the file is the same.
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
BEHIND_US = 600_000_000  # so long ago the jobs were made


async def _start_file(path: Path, job: Job) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.commit(Changes(jobs={job.id: job}))
    await store.close()


def fill(path: Path, count: int, distance_s: float, task: str = "far") -> None:
    """Make the file with count jobs of the task, the first due after distance_s seconds."""
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
        connection.execute("PRAGMA synchronous = OFF")  # nothing is promised of a file being made
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
