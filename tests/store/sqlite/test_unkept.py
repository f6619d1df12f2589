"""Jobs that are not kept: the job table never gets those that end in the write buffer."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from schedo.core.keep import NOT_KEPT
from schedo.core.model import Job
from schedo.core.states import State
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.crashes import copy
from tests.store.steps import listed, of_jobs, put


def end(job: Job) -> Job:
    """Let the job end so that it is not kept."""
    job.state, job.ended_at, job.kept_until = State.COMPLETED, 9, NOT_KEPT
    return job


async def test_the_job_table_never_gets_a_job_that_ends_in_the_buffer(
    store: SqliteStore, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as watch:
        watch.execute("CREATE TABLE got (id)")
        watch.execute(
            "CREATE TRIGGER watch AFTER INSERT ON job BEGIN INSERT INTO got VALUES (new.id); END"
        )
    jobs = [make_job(id=number) for number in range(1, 4)]
    await put(store, *jobs)
    await store.commit(of_jobs(*map(end, jobs[:2])))

    assert await listed(store) == [3]
    with closing(sqlite3.connect(path)) as watch:
        assert watch.execute("SELECT id FROM got").fetchall() == [(3,)]


async def test_after_a_crash_a_job_that_was_not_kept_is_not_there(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    stored, buffered = make_job(id=1), make_job(id=2)
    await put(store, stored)
    await listed(store)  # writes it to the table
    await put(store, buffered, make_job(id=3))
    await store.commit(of_jobs(end(stored), end(buffered)))

    left = SqliteStore(copy(path, tmp_path / "crashed"))
    await left.open()
    found = await listed(left)
    await left.close()

    assert found == [3]
