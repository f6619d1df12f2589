"""The replay of the write buffer: the entries that a server has left go to the job table.

A server that takes over does this before its first turn, so the rows are written in bulk. Only if
something is wrong with one of them, each is written by itself.
"""

from __future__ import annotations

import logging
import sqlite3

from schedo.core.keep import NOT_KEPT
from schedo.errors import StoreRefused
from schedo.store.columns import Row
from schedo.store.sqlite import unkept, writes
from schedo.store.sqlite.buffer_entries import LAYOUT, LeftJobs, read_left
from schedo.store.sqlite.writes import Statement

log = logging.getLogger("schedo.store")

# The errors of SQLite and its binding for values that a column refuses.
_UNFIT = (
    *(sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.DataError),
    *(OverflowError, ValueError),
)


def replay(connection: sqlite3.Connection) -> None:
    """Write the entries to the job table, in a file of any version; needs a transaction.

    An entry that cannot be read or written is logged and skipped, so that it cannot keep the file
    from opening.
    """
    left = read_left(connection)
    if left is None:
        return
    _drop_unkept(connection, left)
    known, new = [*left.known.values()], [*left.new.values()]
    if left.layout == LAYOUT:
        statements = writes.update_jobs(known), writes.insert_jobs(new)
    else:
        statements = _describe_old(left, known, new)
    for statement, job_ids in zip(statements, (left.known, left.new), strict=True):
        _write(connection, statement, job_ids)
    connection.execute(f"DELETE FROM {left.table}")


def _describe_old(left: LeftJobs, known: list[Row], new: list[Row]) -> tuple[Statement, Statement]:
    """Return the statements for the columns of another version."""
    names, changed = left.layout.new, left.layout.known[:-1]
    insert = f"INSERT INTO job ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    update = f"UPDATE job SET {', '.join(f'{name} = ?' for name in changed)} WHERE id = ?"
    return Statement(update, known, must_match=True), Statement(insert, new)


def _drop_unkept(connection: sqlite3.Connection, left: LeftJobs) -> None:
    """Drop the jobs that are not kept: see unkept.py."""
    if "kept_until" not in left.layout.new:
        return
    for jobs, names in ((left.new, left.layout.new), (left.known, left.layout.known)):
        at = names.index("kept_until")
        dropped = [job_id for job_id, row in jobs.items() if row[at] == NOT_KEPT]
        for job_id in dropped:
            del jobs[job_id]
        if dropped:
            writes.run(connection, [Statement(*each) for each in unkept.drop(dropped)])


def _write(connection: sqlite3.Connection, statement: Statement, by_id: dict[int, Row]) -> None:
    connection.execute("SAVEPOINT replay")
    try:
        writes.run(connection, [statement])
    except (StoreRefused, *_UNFIT):
        connection.execute("ROLLBACK TO replay")
        _write_singly(connection, statement.sql, by_id)
    connection.execute("RELEASE replay")


def _write_singly(connection: sqlite3.Connection, sql: str, by_id: dict[int, Row]) -> None:
    for job_id, row in by_id.items():
        try:
            is_written = connection.execute(sql, row).rowcount == 1
            reason = None if is_written else "it is not in the store"
        except _UNFIT as error:
            reason = str(error)
        if reason is not None:
            log.error("a change of job %d in the write buffer is skipped: %s", job_id, reason)
