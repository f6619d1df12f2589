"""The search for the records of a commit whose values the store refuses.

A check of every value of every commit would cost more than the commit. So the records are checked
only after SQLite or an encoder has refused one of them: each record by itself, in a transaction
that is rolled back.
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
    """Return the error of each job whose rows the database refuses, by job id."""
    faults: dict[int, str] = {}
    with suppress(sqlite3.Error), undone(connection):  # if the check fails, no job is blamed
        for statement in commit.statements():
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
    """Return the error of each job whose records cannot be encoded, by job id."""
    faults: dict[int, str] = {}
    empty = Changes()
    singles: Iterable[tuple[int, Changes]] = (
        *((job.id, replace(empty, jobs={job.id: job})) for job in changes.jobs.values()),
        *((each.job_id, replace(empty, attempts=[each])) for each in changes.attempts),
        *((each.job_id, replace(empty, outputs=[each])) for each in changes.outputs),
    )
    for job_id, single in singles:
        try:
            writes.encode(single)
        except UNFIT as error:
            faults.setdefault(job_id, str(error))
    return faults
