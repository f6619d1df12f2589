"""Schema migrations: numbered SQL files that run in order.

Each file runs in one transaction together with the update of the version, so a crash leaves either
the old version or the new one.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from schedo.errors import StoreDamaged, StoreUnsuitable

DIRECTORY = Path(__file__).parent / "migrations"
# "SCDO" in the header of the file, so that a database of another program is never migrated.
APPLICATION_ID = 0x5343444F
# The first version with STRICT tables.
_SQLITE_VERSION_MIN = (3, 37, 0)


def check_file(connection: sqlite3.Connection, path: str) -> None:
    """Raise StoreUnsuitable or StoreDamaged unless the file is new or a store; change nothing."""
    if sqlite3.sqlite_version_info < _SQLITE_VERSION_MIN:
        raise StoreUnsuitable(
            f"schedo needs SQLite 3.37 or newer; this Python has {sqlite3.sqlite_version}"
        )
    try:
        application = _pragma(connection, "application_id")
        version = _pragma(connection, "user_version")
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise StoreDamaged(f"{path} is not a SQLite database; nothing was changed") from error
        raise
    if application != APPLICATION_ID and (tables or version or application):
        raise StoreDamaged(f"{path} belongs to another program; nothing was changed")
    newest = len(list_migrations())
    if version > newest:
        raise StoreUnsuitable(
            f"{path} was written by a newer schedo (schema {version}, this one knows {newest});"
            " nothing was changed, install the newer version"
        )


def migrate(connection: sqlite3.Connection, directory: Path = DIRECTORY) -> None:
    """Run the migrations that the file does not have yet."""
    version = _pragma(connection, "user_version")
    for number, file in enumerate(list_migrations(directory)[version:], start=version + 1):
        # executescript commits before it starts, so the transaction is part of the script.
        script = (
            f"BEGIN IMMEDIATE;\n{file.read_text(encoding='utf-8')}\n"
            f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {number};\nCOMMIT;"
        )
        try:
            connection.executescript(script)
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def list_migrations(directory: Path = DIRECTORY) -> list[Path]:
    """Return the migrations in the order of their numbers, which start at 1 without gaps."""
    files = sorted(directory.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    numbers = [int(file.name[:4]) for file in files]
    assert numbers == list(range(1, len(files) + 1)), f"migrations are numbered {numbers}"
    return files


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
