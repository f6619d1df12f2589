"""Schema migrations: numbered SQL files that run in order.

Each file runs in one transaction together with the update of the version, so a crash leaves either
the old version or the new one. Its first line says what it means for other versions of schedo:

    -- schedo: reads_from=15 time=constant

reads_from: the oldest schema whose schedo may still open the file. time: `constant`, or `grows`
with the size of the file. See docs/adr/0036.
"""

from __future__ import annotations

import re
import sqlite3
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from schedo.errors import StoreDamaged, StoreUnsuitable
from schedo.store.sqlite.path_checks import size_bytes

DIRECTORY = Path(__file__).parent / "migrations"
# "SCDO" in the header of the file, so that a database of another program is never migrated.
APPLICATION_ID = 0x5343444F
# The first version with STRICT tables.
_SQLITE_VERSION_MIN = (3, 37, 0)
_MARK = re.compile(r"-- schedo: reads_from=(\d+) time=(constant|grows)\n")
_MIGRATED_BYTES_PER_S = 50_000_000  # of a table that is written anew, on a slow machine
# The schema is a part of the name: a later migration without a mark must not inherit this one's.
_WRITE_READS_FROM = "INSERT INTO meta (name, value) VALUES ('reads_from_{}', {});\n"
_READS_FROM = "SELECT value FROM meta WHERE name = 'reads_from_' || ?"


class MigrationMark(NamedTuple):
    """What a migration means for other versions of schedo, and how long it takes."""

    reads_from: int
    is_constant: bool


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
    newest = newest_schema()
    if version > newest:
        oldest = _read_reads_from(connection, version)
        if oldest > newest:
            raise StoreUnsuitable(
                f"{path} was written by a newer schedo (schema {version}, this one knows {newest});"
                f" versions with schema {oldest} and later can open it; nothing was changed,"
                " install the newer version"
            )


def check_handover(connection: sqlite3.Connection, path: str, directory: Path = DIRECTORY) -> None:
    """Raise StoreUnsuitable unless a server may take the file over while another one serves it.

    Its migrations must be quick, and the other server must be able to go on if this one fails.
    """
    version = _pragma(connection, "user_version")
    pending = list_migrations(directory)[version:] if version else []
    marks = {file.stem: read_mark(file) for file in pending}
    slow = [name for name, mark in marks.items() if mark is None or not mark.is_constant]
    one_way = [name for name, mark in marks.items() if mark is None or mark.reads_from > version]
    if not slow and not one_way:
        return
    how_long = (
        f"this takes about {max(1, round(size_bytes(path) / _MIGRATED_BYTES_PER_S))} s"
        if slow
        else "the version that serves the file now could not open it after that"
    )
    raise StoreUnsuitable(
        f"{path} must be migrated ({', '.join(slow or one_way)}), and {how_long}: stop the server"
        " and start the new version; nothing was changed"
    )


def read_mark(file: Path) -> MigrationMark | None:
    """Return the mark of a migration; one without may take long, and has no way back."""
    with file.open(encoding="utf-8") as lines:
        found = _MARK.fullmatch(lines.readline())
    return found and MigrationMark(int(found[1]), found[2] == "constant")


def _read_reads_from(connection: sqlite3.Connection, version: int) -> int:
    """Return the oldest schema whose schedo may open the file; by default only its own."""
    found = connection.execute(_READS_FROM, (version,)).fetchone()
    return version if found is None else int(found[0])


def is_old(connection: sqlite3.Connection) -> bool:
    """Return whether the file lacks migrations that this process knows; a new file lacks all."""
    return _pragma(connection, "user_version") < newest_schema()


def migrate(connection: sqlite3.Connection, directory: Path = DIRECTORY) -> None:
    """Run the migrations that the file does not have yet."""
    version = _pragma(connection, "user_version")
    for number, file in enumerate(list_migrations(directory)[version:], start=version + 1):
        mark = read_mark(file)
        note = "" if mark is None else _WRITE_READS_FROM.format(number, mark.reads_from)
        # executescript commits before it starts, so the transaction is part of the script.
        script = (
            f"BEGIN IMMEDIATE;\n{file.read_text(encoding='utf-8')}\n{note}"
            f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {number};\nCOMMIT;"
        )
        try:
            connection.executescript(script)
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def newest_schema() -> int:
    """Return the newest version of the schema that this process knows."""
    return len(list_migrations())


def oldest_reader() -> int:
    """Return the oldest schema whose schedo may open a file that this process has opened."""
    newest = list_migrations()[-1]
    mark = read_mark(newest)
    return newest_schema() if mark is None else mark.reads_from


def list_migrations(directory: Path = DIRECTORY) -> list[Path]:
    """Return the migrations in the order of their numbers, which start at 1 without gaps.

    Those of schedo are listed once: later the disk may have the files of another version, which
    this process, a standby for example, does not know.
    """
    return _list_own() if directory is DIRECTORY else _list(directory)


@lru_cache(maxsize=1)
def _list_own() -> list[Path]:
    return _list(DIRECTORY)


def _list(directory: Path) -> list[Path]:
    files = sorted(directory.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    numbers = [int(file.name[:4]) for file in files]
    assert numbers == list(range(1, len(files) + 1)), f"migrations are numbered {numbers}"
    return files


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
