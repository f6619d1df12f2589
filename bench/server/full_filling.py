"""Makes a store file as a busy server has it after some weeks: ended, queued and scheduled jobs.

The store commits one job and one schedule; SQL copies their rows. So the file is the same as after
as many submits, ends and fires, which would take hours.

The ended jobs are older than the waiting ones. Most values occur everywhere; one value of each
column is RARE: it occurs in RARE_JOBS jobs, which are the oldest. That is the worst case of a list.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from schedo.core.changes import Changes
from schedo.core.model import Job, JobSpec, Rule, Schedule, ScheduleSpec
from schedo.core.states import State
from schedo.store.sqlite.store import SqliteStore

RARE, RARE_JOBS = "rare", 10
TASKS, QUEUES, TAGS, RUNS_OF = 10, 3, 20, 100  # how many of each occur; RUNS_OF: schedules
ID_STEP = 256  # an id is the microsecond of creation times this
SPACING_US = 1_000  # between two jobs
CHUNK = 500_000
HOUR_US = 3_600_000_000


class Full(NamedTuple):
    """How many records a full store has."""

    ended: int = 2_000_000
    queued: int = 200_000
    scheduled: int = 200_000
    schedules: int = 100_000


def fill_full(path: Path, full: Full) -> None:
    """Make the file; the waiting jobs are of tasks that no worker of a benchmark runs."""
    now = time.time_ns() // 1000
    created = now - (full.ended + full.queued + full.scheduled + 10) * SPACING_US - HOUR_US
    job = Job(
        id=created * ID_STEP, task="task-0", payload=b'{"n":1}', state=State.COMPLETED, attempt=1,
        created_at=created, due_at=created, rank=created, picked_at=created + 100, epoch=1,
        started_at=created + 200, ended_at=created + 900, worker="local", result=b"null",
        is_new=True,
    )  # fmt: skip
    rule = Rule(cron="H/5 * * * *".replace("H", "3"))
    spec = ScheduleSpec("schedule-0000000", rule, JobSpec("task-0"), cron_source="3/5 * * * *")
    schedule = Schedule(created * ID_STEP - 1, spec, created, created, now, now + HOUR_US)
    asyncio.run(_start_file(path, job, schedule))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # an unfinished file is thrown away
        connection.execute("PRAGMA cache_size = -262144")
        _fill(connection, full, job.id, schedule.id, now)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.sync()  # otherwise the first commits wait until the file is written


async def _start_file(path: Path, job: Job, schedule: Schedule) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.commit(Changes(jobs={job.id: job}, schedules={schedule.id: schedule}))
    await store.close()


def _fill(connection: sqlite3.Connection, full: Full, job: int, schedule: int, now: int) -> None:
    moved = f"n * {SPACING_US}"
    rare = f"n < {RARE_JOBS}"
    times = {
        each: f"{each} + {moved}"
        for each in ("created_at", "due_at", "rank", "picked_at", "started_at", "ended_at")
    }
    common = {
        "id": f"id + {moved} * {ID_STEP}",
        "task": f"CASE WHEN {rare} THEN '{RARE}' ELSE 'task-' || (n % {TASKS}) END",
        "queue": f"CASE WHEN {rare} THEN '{RARE}' WHEN n % 4 THEN 'default'"
        f" ELSE 'queue-' || (n / 4 % {QUEUES}) END",
        "trigger": "CASE WHEN n % 10 THEN 'submit' ELSE 'manual' END",
        "schedule_id": f"CASE WHEN n % 10 THEN NULL ELSE {schedule} + n / 10 % {RUNS_OF} END",
        **times,
    }
    ended = {
        "state": f"CASE WHEN {rare} OR n % 1000 = 0 THEN 'expired' WHEN n % 50 = 1 THEN 'failed'"
        " WHEN n % 200 = 2 THEN 'cancelled' ELSE 'completed' END",
    }
    unstarted = {
        **common,
        **dict.fromkeys(("picked_at", "started_at", "ended_at", "worker", "result"), "NULL"),
        "attempt": "0",
        "epoch": "0",
    }
    queued = {**unstarted, "state": "'queued'"}
    later = {"state": "'scheduled'", "due_at": f"{now + HOUR_US} + {moved}"}
    scheduled = {**unstarted, **later, "rank": later["due_at"]}
    first = 1
    groups = ((full.ended, {**common, **ended}), (full.queued, queued), (full.scheduled, scheduled))
    for count, columns in groups:
        _copy(connection, "job", job, range(first, first + count), columns)
        first += count
    tag = f"CASE WHEN job.id < {job + RARE_JOBS * SPACING_US * ID_STEP} THEN '{RARE}'"
    connection.execute(
        "INSERT INTO job_tag (tag, job_id)"
        f" SELECT {tag} ELSE 'tag-' || (id / {SPACING_US * ID_STEP} % {TAGS}) END, id FROM job"
        f" WHERE id / {SPACING_US * ID_STEP} % 5 = 0 OR task = '{RARE}'"
    )
    named = "'schedule-' || printf('%07d', n)"
    columns = {
        "id": "id + n",
        "name": named,
        "spec": f"json_set(spec, '$.name', {named})",
        "next_fire_at": f"next_fire_at + {moved}",
    }
    _copy(connection, "schedule", schedule, range(1, full.schedules), columns)


def _copy(
    connection: sqlite3.Connection,
    table: str,
    ident: int,
    numbers: range,
    columns: Mapping[str, str],
) -> None:
    """Insert a copy of the row for each number `n`, with these expressions for some columns."""
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(columns.get(name, name) for name in names)
    for start in range(numbers.start, numbers.stop, CHUNK):
        connection.execute(
            f"INSERT INTO {table} ({', '.join(names)}) WITH RECURSIVE number (n) AS"
            f" (SELECT {start} UNION ALL SELECT n + 1 FROM number WHERE n + 1 < ?)"
            f" SELECT {values} FROM {table} CROSS JOIN number WHERE id = ?",
            (min(start + CHUNK, numbers.stop), ident),
        )
