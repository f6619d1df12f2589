"""Which record of a commit holds a value that the store cannot take.

Looking at every value of every commit would cost more than writing it. So the records are looked at
only when SQLite, or what encodes them, has refused one: each by itself, in a transaction that is
undone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from schedo.core.changes import Changes
from schedo.store.sqlite import writes
from schedo.store.sqlite.connection import UNFIT, is_refusal, undone
from schedo.store.sqlite.writes import Commit


def find_unwritable(connection: sqlite3.Connection, commit: Commit) -> dict[int, str]:
    """Return what the database says of each job whose rows it refuses, by job id."""
    faults: dict[int, str] = {}
    with suppress(sqlite3.Error), undone(connection):  # if it fails, nobody can be blamed
        for statement in commit.statements:
            for row in statement.rows:
                try:
                    connection.execute(statement.sql, row)
                except (sqlite3.Error, *UNFIT) as error:
                    if not is_refusal(error):
                        raise
                    job_id = writes.job_of(statement.sql, row)
                    if job_id is not None:
                        faults.setdefault(job_id, str(error))
    return faults


def find_unencodable(changes: Changes) -> dict[int, str]:
    """Return what is wrong with each job whose records cannot be encoded, by job id."""
    faults: dict[int, str] = {}
    nothing = Changes()
    singles: Iterable[tuple[int, Changes]] = (
        *((job.id, replace(nothing, jobs={job.id: job})) for job in changes.jobs.values()),
        *((each.job_id, replace(nothing, attempts=[each])) for each in changes.attempts),
        *((each.job_id, replace(nothing, outputs=[each])) for each in changes.outputs),
    )
    for job_id, single in singles:
        try:
            writes.encode(single)
        except UNFIT as error:
            faults.setdefault(job_id, str(error))
    return faults


def describe(faults: dict[int, str], error: Exception) -> str:
    """Return the refusal in a sentence."""
    whose = f", which {len(faults)} of its jobs brought" if faults else ""
    return f"the store refuses a value of this commit{whose} ({error}); nothing was written"
