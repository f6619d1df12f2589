"""The rows of the log of changes: written, listed, and bounded.

Changes of single jobs have a bound of their own, so that a program that cancels its jobs cannot
push out who deleted a schedule.
"""

from __future__ import annotations

import sqlite3

from schedo.core.action_log import LogEntry, LogFilter, NumberedEntry
from schedo.store.retention import LOG_ENTRIES_KEPT, LOG_KEPT_US

_COLUMNS = ", ".join(LogEntry._fields)
INSERT_LOG_ENTRY = (
    f"INSERT INTO action_log ({_COLUMNS}) VALUES ({', '.join('?' * len(LogEntry._fields))})"
)
_CONDITIONS = (
    ("who", "who = ?"),
    ("action", "action = ?"),
    ("target", "target = ?"),
    ("before", "at < ?"),
)
_CUT = "SELECT number FROM action_log WHERE is_job = ? ORDER BY number DESC LIMIT 1 OFFSET ?"
_DELETE = """
DELETE FROM action_log WHERE number IN (
    SELECT number FROM action_log WHERE is_job = ? AND (number <= ? OR at < ?)
    ORDER BY number LIMIT ?
)
"""


def list_entries(
    connection: sqlite3.Connection, which: LogFilter, before: int | None, limit: int
) -> list[NumberedEntry]:
    """Return entries that match, newest first, those with a number below `before`."""
    found = [(sql, getattr(which, name)) for name, sql in _CONDITIONS]
    found.append(("number < ?", before))
    given = [(sql, value) for sql, value in found if value is not None]
    where = f" WHERE {' AND '.join(sql for sql, _ in given)}" if given else ""
    rows = connection.execute(
        f"SELECT number, {_COLUMNS} FROM action_log{where} ORDER BY number DESC LIMIT ?",
        (*(value for _, value in given), limit),
    )
    return [
        NumberedEntry(number, LogEntry(*values)._replace(is_job=bool(values[-1])))
        for number, *values in rows
    ]


def prune_log(connection: sqlite3.Connection, now: int, limit: int) -> int:
    """Delete up to `limit` entries of each kind beyond their bound; needs a transaction."""
    deleted = 0
    for is_job in (0, 1):
        cut = connection.execute(_CUT, (is_job, LOG_ENTRIES_KEPT)).fetchone()
        number = cut[0] if cut is not None else 0
        parameters = (is_job, number, now - LOG_KEPT_US, limit)
        deleted += connection.execute(_DELETE, parameters).rowcount
    return deleted
