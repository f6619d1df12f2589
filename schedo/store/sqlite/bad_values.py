"""The search for the records of a commit whose values the store refuses.

A check of every value of every commit would cost more than the commit. So the records are checked
only after SQLite has refused one of them: each record by itself, in a transaction that is rolled
back. What no encoder takes is found by store/unencodable.py.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from schedo.store.sqlite import writes
from schedo.store.sqlite.connection import is_refusal, undone
from schedo.store.sqlite.writes import Commit
from schedo.store.unencodable import UNFIT


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
