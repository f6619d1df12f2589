"""Direct access to a database without the store, and to the files that a crash leaves."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from schedo.core.model import Job
from schedo.store.sqlite.store import SqliteStore
from tests.store.steps import listed


class Crashed:
    """The files as a crash now would leave them: a copy of the database and its log."""

    def __init__(self, path: Path, name: str = "crashed") -> None:
        self.path = path.parent / f"{name}.db"
        shutil.copy(path, self.path)
        shutil.copy(f"{path}-wal", f"{self.path}-wal")

    def run(self, statement: str, *values: object) -> list[Any]:
        """Run a statement as no schedo would."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(statement, values).fetchall()

    async def jobs(self) -> dict[int, Job]:
        """Return every job as the next server finds it."""
        store = SqliteStore(self.path)
        await store.open()
        found = [await store.get_job(job_id) for job_id in await listed(store, limit=10_000)]
        await store.close()
        return {job.id: job for job in found if job is not None}


async def raw(store: SqliteStore, statement: str, *values: object) -> list[Any]:
    """Run a statement after all earlier calls, without a flush."""
    assert store._writer is not None
    return await store._writer.run(lambda c: c.execute(statement, values).fetchall())


async def in_journal(store: SqliteStore) -> int:
    return int((await raw(store, "SELECT count(*) FROM journal"))[0][0])


async def in_table(store: SqliteStore) -> dict[int, str]:
    return dict(await raw(store, "SELECT id, state FROM job"))
