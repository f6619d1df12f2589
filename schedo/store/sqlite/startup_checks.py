"""The checks of a store's files before SQLite opens them for writing.

They find out whether the files are those that the previous server left. SQLite would delete the log
beside a new or missing database, and would copy the whole part of a damaged log. So all checks run
before a file is opened for writing.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from typing import NamedTuple
from urllib.parse import quote

from schedo.errors import StoreDamaged
from schedo.store.sqlite import last_commit
from schedo.store.sqlite.copy_marks import is_plain_copy
from schedo.store.sqlite.last_commit import CommitMark
from schedo.store.sqlite.log_frames import INDEX_BYTES, count_frames, has_pages

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_REMEDY = (
    "nothing was changed. Restore the missing files, or start once with --accept-loss to continue"
    " without them"
)
_OTHER_FILE = (
    "nothing was changed. Give the path of a store, or of a file that does not exist yet;"
    " --accept-loss would put this file aside and begin with an empty store"
)


# Returns the first bytes of a file, at most this many; None if the file is missing.
ReadStart = Callable[[str, int], bytes | None]


class Damage(NamedTuple):
    """A damage of the files; missing: the number of lost commits, if it is known."""

    what: str
    missing: int | None = None
    is_unusable: bool = False  # the database file itself cannot be used
    is_other: bool = False  # nothing says that the file has ever been a store


class _Extent(NamedTuple):
    """The identity and the last commit in a database's own tables; None if they are missing."""

    store: int | None
    commits: int | None


def read_start(path: str, size: int) -> bytes | None:
    """The ReadStart of a process that has no connection to the file."""
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except FileNotFoundError:
        return None


def find_damage(path: str, mark: CommitMark | None, read: ReadStart = read_start) -> Damage | None:
    """Return the damage of the store at the path, or None; this changes no file."""
    log_bytes = size_of(path + "-wal")
    header = read(path, _HEADER_BYTES)
    if header is None or len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        return _find_missing(path, header, log_bytes, mark)
    truncated = _find_truncated(path, header, log_bytes, mark, read)
    if truncated is not None:
        return truncated
    if mark is None:
        return _find_plain_copy(path)
    try:
        whole = _read_extent(path) if log_bytes else _read_extent(path, "immutable=1")
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return Damage(f"{path} is damaged ({error})", mark.commits, is_unusable=True)
        raise
    return _find_lost(path, mark, whole, log_bytes, read) or _find_older(path, mark, log_bytes)


def refuse(path: str, damage: Damage) -> StoreDamaged:
    """Return the error with the damage and the remedy."""
    remedy = _OTHER_FILE if damage.is_other else _REMEDY
    return StoreDamaged(f"{damage.what}{_describe_extent(path, damage)}; {remedy}")


def set_aside(path: str, damage: Damage) -> list[str]:
    """Keep the files of a damaged store under other names; return these names."""
    number = 1
    while any(os.path.lexists(f"{path}{suffix}.lost-{number}") for suffix in ("", "-wal")):
        number += 1
    kept = []
    for suffix in ("", "-wal"):
        name, aside = path + suffix, f"{path}{suffix}.lost-{number}"
        if not size_of(name):
            continue
        if damage.is_unusable:
            os.rename(name, aside)
        elif suffix:
            import shutil  # it takes half a megabyte with what it imports

            shutil.copyfile(name, aside)
            os.chmod(aside, 0o600)
        else:
            continue
        kept.append(aside)
    if damage.is_unusable:
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.remove(path + suffix)
    return kept


def describe_loss(path: str, damage: Damage) -> str:
    """Return a sentence about the accepted loss."""
    return f"{damage.what}{_describe_extent(path, damage)}"


def is_damage(error: BaseException | None) -> bool:
    """Return whether SQLite reports with this error that the file is damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def size_of(path: str) -> int:
    """Return the size of a file, 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _describe_extent(path: str, damage: Damage) -> str:
    if damage.missing is None:
        return ""
    last = last_commit.last_written(path)
    return f"; up to {damage.missing} commits are missing, the last of them made at {last}"


def _find_plain_copy(path: str) -> Damage | None:
    """Return the damage of a copy of the database file of a store that a server had open."""
    if os.path.lexists(path + "-wal") or not is_plain_copy(path):
        return None
    return Damage(
        f"{path} is a plain copy of the file of a store that was open, and the log beside the"
        " original is missing here; `schedo backup` makes a complete copy"
    )


def _find_missing(
    path: str, header: bytes | None, log_bytes: int, mark: CommitMark | None
) -> Damage | None:
    if header is None:
        what = f"the database {path} is missing"
    elif not header:
        what = f"the database {path} is empty"
    elif not _may_be_database(header):
        what = f"{path} is not a SQLite database"
    else:
        what = f"the database {path} is truncated to {len(header)} bytes"
    missing = None if mark is None else mark.commits
    if log_bytes:
        what += f", and the log beside it holds {log_bytes} bytes of its commits"
    elif mark is not None:
        what += f", and {path}{last_commit.SUFFIX} says that there was one"
    elif not header:
        return None  # a new store
    is_other = header is not None and not (log_bytes or mark or _may_be_database(header))
    return Damage(what, missing, is_unusable=True, is_other=is_other)


def _may_be_database(header: bytes) -> bool:
    return header.startswith(_MAGIC[: len(header)])


def _find_truncated(
    path: str, header: bytes, log_bytes: int, mark: CommitMark | None, read: ReadStart
) -> Damage | None:
    """Compare the size of the database to its header; the log may have the pages that it lacks.

    A kill in the middle of a checkpoint leaves that: the page with the size is copied first.
    """
    (page_bytes,) = struct.unpack_from(">H", header, 16)
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    (pages,) = struct.unpack_from(">I", header, 28)
    whole, size = pages * page_bytes, size_of(path)
    if size >= whole or header[24:28] != header[92:96]:  # a header of an old SQLite has no size
        return None
    absent = range(size // page_bytes + 1, pages + 1)
    if log_bytes and has_pages(path + "-wal", read(path + "-shm", INDEX_BYTES), absent, page_bytes):
        return None
    # The index of the log may be missing, too. This reads the whole file.
    with suppress(sqlite3.DatabaseError):
        if _check_integrity(path, "" if log_bytes else "immutable=1") == "ok":
            return None
    what = f"the database {path} is truncated to {size} of {whole} bytes"
    return Damage(what, None if mark is None else mark.commits, is_unusable=True)


def _find_lost(
    path: str, mark: CommitMark, whole: _Extent, log_bytes: int, read: ReadStart
) -> Damage | None:
    """Compare the database with its log to the last-commit file."""
    if whole.store not in (None, mark.store):
        return Damage(f"{path} is not the store that was here last")
    reached = whole.commits or 0
    if reached < mark.commits:
        missing = mark.commits - reached
        if log_bytes:
            what = f"the log {path}-wal is damaged, truncated or an older copy"
        else:
            what = f"the log of {path} is missing, or the database is an older copy"
        return Damage(what, missing)
    if mark.is_copying and not _has_frames(path, log_bytes, read):
        return _check_pages(path)
    return None


def _find_older(path: str, mark: CommitMark, log_bytes: int) -> Damage | None:
    """Compare the database without its log to the last-commit file."""
    if not log_bytes:
        return None  # _find_lost has compared that
    try:
        alone = _read_extent(path, "immutable=1")
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return None  # a copy of the log was under way; an older copy would be readable
        raise
    copied = alone.commits or 0
    if copied >= mark.copied:
        return None
    what = f"the database {path} is an older copy, and its log does not go back as far"
    return Damage(what, mark.copied - copied)


def _check_pages(path: str) -> Damage | None:
    """Check a database whose log disappeared while it was being copied: it may be half copied.

    It is whole if another program has finished the copy and deleted the log, as the shell of SQLite
    does when it closes the file.
    """
    found = _check_integrity(path, "immutable=1")
    if found == "ok":
        return None
    return Damage(f"the log of {path} is missing, and a part of it was not copied yet ({found})")


def _check_integrity(path: str, how: str) -> str:
    with closing(_connect(path, how)) as connection:
        found: str = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    return found


def _connect(path: str, how: str = "") -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(path)}?mode=ro&{how}", uri=True, isolation_level=None)


def _read_extent(path: str, how: str = "") -> _Extent:
    """Return the extent of a database; how: "immutable=1" reads it without its log."""
    with closing(_connect(path, how)) as connection:
        try:
            found = dict(
                connection.execute(
                    "SELECT name, value FROM meta WHERE name IN ('store', 'commits')"
                ).fetchall()
            )
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            found = {}  # the table does not exist: its creation is still in the log
    return _Extent(found.get("store"), found.get("commits"))


def _has_frames(path: str, log_bytes: int, read: ReadStart) -> bool:
    """Return whether SQLite found a whole transaction in the log at the last open."""
    return bool(log_bytes) and count_frames(read(path + "-shm", INDEX_BYTES)) > 0
