"""The marks in a database file by which a server notices that it opens a copy.

While a server uses a store, the newest commits are in the log. A copy of the database file alone
misses them, and SQLite opens it without an error. So a server marks the file itself: from soon
after the open to the close, `meta` has the number of the file's schema under `open_schema`. A copy
that SQLite makes is complete, log included, and has another number of its schema, because SQLite
changes that number in each copy. So only a copy made by another program has the same number twice.

A backup has its instant under `backed_up_at`. Its original may still live, so the server that opens
it begins paused, as another store, and with epochs far from those of the original: no lease of the
one names an attempt of the other.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from urllib.parse import quote

from schedo.core.model import Pause, PauseScope
from schedo.store import rows
from schedo.store.sqlite.writes import UPSERT_PAUSE

_EPOCHS_SKIPPED = 1_000_000

_NEW_STORE = "UPDATE meta SET value = random() WHERE name = 'store'"
_SKIP_EPOCHS = "UPDATE meta SET value = value + ? WHERE name = 'epoch'"
_NOTE_BACKUP = "INSERT OR REPLACE INTO meta (name, value) VALUES ('backed_up_at', ?)"
# Overwritten first, because a deleted row leaves its bytes in the file.
_FORGET_SECRETS = (
    "UPDATE secret SET value = zeroblob(length(value))",
    "DELETE FROM secret",
)
_TAKE_BACKUP = "DELETE FROM meta WHERE name = 'backed_up_at' RETURNING value"
_READ = "SELECT value FROM meta WHERE name = 'open_schema'"
_WRITE = "INSERT OR REPLACE INTO meta (name, value) VALUES ('open_schema', ?)"


def mark_open(connection: sqlite3.Connection) -> bool:
    """Mark the store as open, and return whether it was marked before; needs a transaction."""
    schema = _read_schema(connection)
    was_open: bool = connection.execute(_READ).fetchone() == (schema,)
    if not was_open:
        connection.execute(_WRITE, (schema,))
    return was_open


def mark_closed(connection: sqlite3.Connection) -> None:
    """Mark the store as complete without a log; needs a transaction."""
    connection.execute(_WRITE, (0,))


def mark_backup(connection: sqlite3.Connection, instant: int) -> None:
    """Mark the file as a backup that shows the store at this instant; needs a transaction."""
    mark_closed(connection)
    for statement in _FORGET_SECRETS:
        connection.execute(statement)
    connection.execute(_NOTE_BACKUP, (instant,))


def begin_anew(connection: sqlite3.Connection) -> None:
    """Pause the store and give it another identity if the file is a backup; needs a transaction."""
    found = connection.execute(_TAKE_BACKUP).fetchall()
    if not found:
        return
    ((instant,),) = found
    renew_identity(connection)
    at = datetime.fromtimestamp(instant // 1_000_000, UTC).isoformat(sep=" ")
    for scope in PauseScope:
        pause = Pause(scope, instant, f"restored from the backup of {at}")
        connection.execute(UPSERT_PAUSE, rows.pause_row(pause))


def renew_identity(connection: sqlite3.Connection, epochs: int | None = None) -> None:
    """Make it another store, whose epochs follow after this many others; needs a transaction.

    None: how many there can have been is not known.
    """
    connection.execute(_NEW_STORE)
    connection.execute(_SKIP_EPOCHS, (_EPOCHS_SKIPPED if epochs is None else epochs,))


def is_plain_copy(path: str) -> bool:
    """Return whether the database file, read without its log, was that of an open store."""
    uri = f"file:{quote(path)}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        try:
            found = connection.execute(_READ).fetchone()
            return found is not None and found[0] == _read_schema(connection)
        except sqlite3.DatabaseError:  # not a store, or damaged: the open reports it
            return False


def _read_schema(connection: sqlite3.Connection) -> int:
    number: int = connection.execute("PRAGMA schema_version").fetchone()[0]
    return number
