"""The rows of the tallies: hours next to the present, and days before them.

An hour that has no room any more is added to its day, and of the days those go that are furthest
from the present. So the table stays bounded whatever the clock does, and a clock that was wrong for
a while does not drive the true hours out.
"""

from __future__ import annotations

import sqlite3

from schedo.core.limits import DAY
from schedo.core.tallies import (
    DAYS_KEPT,
    HOURS_KEPT,
    Dimension,
    HourTallies,
    Period,
    Tallies,
    decode_row,
    extend_row,
)
from schedo.store.sqlite.connection import transaction, unsynced

_READ = "SELECT figures FROM tally WHERE dimension = ? AND period = ? AND at = ?"
_WRITE = "INSERT OR REPLACE INTO tally (dimension, period, at, figures) VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM tally WHERE dimension = ? AND period = ? AND at = ?"
_BEYOND = """
SELECT at FROM tally WHERE dimension = ? AND period = ?
ORDER BY abs(at - ?), at LIMIT -1 OFFSET ?"""


def add(connection: sqlite3.Connection, tallies: HourTallies, now: int) -> None:
    """Add the tallies of hours; see Store.add_tallies. The next transaction syncs it."""
    with unsynced(connection), transaction(connection):
        for (dimension, at), by_name in tallies.items():
            if _add_row(connection, dimension, Period.HOUR, at, by_name):
                _move_to_days(connection, dimension, now)


def _add_row(
    connection: sqlite3.Connection,
    dimension: Dimension,
    period: Period,
    at: int,
    tallies: Tallies,
) -> bool:
    """Add tallies to a row; return whether it is new."""
    (stored,) = connection.execute(_READ, (dimension, period, at)).fetchone() or (None,)
    connection.execute(_WRITE, (dimension, period, at, extend_row(stored, tallies)))
    return stored is None


def _move_to_days(connection: sqlite3.Connection, dimension: Dimension, now: int) -> None:
    hours = (dimension, Period.HOUR)
    for (at,) in connection.execute(_BEYOND, (*hours, now, HOURS_KEPT)).fetchall():
        (text,) = connection.execute(_READ, (*hours, at)).fetchone()
        _add_row(connection, dimension, Period.DAY, at - at % DAY, decode_row(text))
        connection.execute(_DELETE, (*hours, at))
    days = (dimension, Period.DAY)
    for (at,) in connection.execute(_BEYOND, (*days, now, DAYS_KEPT)).fetchall():
        connection.execute(_DELETE, (*days, at))
