"""Checks in the store, after a restart of the server, that the work was done."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

LIVE = "'scheduled', 'blocked', 'queued', 'running', 'retrying'"
STATES = "SELECT state, count(*) FROM job WHERE task = ? GROUP BY state"


class NotDone(Exception):
    """The server did not do the work that was measured."""


def query_store(path: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the store's file; a server may be running on it."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(sql, values).fetchall()


def check_completed(path: Path, task: str, count: int) -> str:
    """Return a sentence if all jobs of the task completed at once, else raise NotDone."""
    states = dict(query_store(path, STATES, task))
    ((tries, losses, failures, odd),) = query_store(
        path,
        "SELECT sum(attempt), sum(losses), sum(failures),"
        " (SELECT count(*) FROM attempt JOIN job ON job.id = job_id WHERE task = ?)"
        " FROM job WHERE task = ?",
        task,
        task,
    )
    if states != {"completed": count} or (tries, losses, failures, odd) != (count, 0, 0, 0):
        raise NotDone(
            f"of {count} jobs the store has {states}: {tries} tries, {losses} losses,"
            f" {failures} failures, {odd} attempts that did not complete"
        )
    return f"{count:,} jobs in the store after a restart, each completed at its first attempt"


def check_waiting(path: Path, task: str, count: int) -> str:
    """Return a sentence if all jobs of the task are scheduled, else raise NotDone."""
    states = dict(query_store(path, STATES, task))
    if states != {"scheduled": count}:
        raise NotDone(f"of {count} jobs the store has {states}")
    return f"{count:,} jobs in the store after a restart, as many as were acknowledged"


def check_acknowledged(path: Path, count: int) -> str:
    """Return a sentence if the jobs 0 to count - 1 are there once and all jobs have completed."""
    payload = "json_extract(CAST(payload AS TEXT), '$.n')"
    rows = query_store(path, f"SELECT {payload}, state FROM job")
    missing = count - len({number for number, _ in rows if number < count})
    waiting = sum(state != "completed" for _, state in rows)
    if missing or waiting or len(rows) != len({number for number, _ in rows}):
        raise NotDone(
            f"of {count} acknowledged jobs {missing} are missing; {waiting} not completed"
        )
    return f"{count:,} acknowledged jobs in the store, all completed"


def check_all_completed(path: Path, count: int) -> str:
    """Return a sentence if the store has that many jobs, all completed, else raise NotDone."""
    states = dict(query_store(path, "SELECT state, count(*) FROM job GROUP BY state"))
    if states != {"completed": count}:
        raise NotDone(f"of {count} jobs the store has {states}")
    return f"{count:,} jobs in the store, all completed"


def check_once(ran: Iterable[int], count: int) -> str:
    """Return a sentence if each of the jobs 0 to count - 1 ran once, else raise NotDone."""
    runs = Counter(ran)
    missing = [n for n in range(count) if not runs[n]]
    twice = [n for n, times in runs.items() if times > 1]
    if missing or twice or len(runs) != count:
        raise NotDone(f"{len(missing)} of {count} jobs never ran, {len(twice)} ran more than once")
    return f"{count:,} handler calls, one for each job"
