"""Direct access to a database without the store, and to the files that a crash leaves."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from schedo.core.model import Job
from schedo.store.sqlite.last_commit import SUFFIX
from schedo.store.sqlite.schema import APPLICATION_ID, list_migrations
from schedo.store.sqlite.store import SqliteStore
from tests.passes import one_pass
from tests.store.steps import listed


class Crashed:
    """The files as a crash now would leave them: copies of the database and the files beside it."""

    def __init__(self, path: Path, name: str = "crashed") -> None:
        self.path = path.parent / f"{name}.db"
        shutil.copy(path, self.path)
        for suffix in ("-wal", SUFFIX):
            shutil.copy(f"{path}{suffix}", f"{self.path}{suffix}")

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


def make_old_file(path: Path, version: int, script: str = "") -> None:
    """Make a database as an earlier version of schedo has left it."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    scripts = [file.read_text(encoding="utf-8") for file in list_migrations()[:version]]
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "PRAGMA journal_mode = WAL;"
            + "".join(scripts)
            + f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {version};"
            + script
        )


async def raw(store: SqliteStore, statement: str, *values: object) -> list[Any]:
    """Run a statement after all earlier calls, without a flush."""
    for _ in range(2):  # then the last commit has posted its flush
        await one_pass()
    assert store._writer is not None
    return await store._writer.run(lambda c: c.execute(statement, values).fetchall())


async def in_buffer(store: SqliteStore) -> int:
    return int((await raw(store, "SELECT count(*) FROM write_buffer"))[0][0])


async def in_table(store: SqliteStore) -> dict[int, str]:
    return dict(await raw(store, "SELECT id, state FROM job"))
