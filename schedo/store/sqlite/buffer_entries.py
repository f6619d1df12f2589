"""The entries of the write buffer: one row of its table for each commit of bufferable jobs.

An entry has the rows of the commit's new jobs and of its known jobs. Which columns they have is
noted in the file when it is opened. So the next version of schedo, with other columns, can replay
what a crash left: before it migrates the tables, as rows of the old columns.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from schedo.store import rows
from schedo.store.columns import Row

log = logging.getLogger("schedo.store")


class BufferableJobs(NamedTuple):
    """The rows of the jobs of a commit."""

    new: list[Row]
    known: list[Row]


class Entry(NamedTuple):
    """One row of the table; new and known: the number of jobs it added to the buffer."""

    id: int
    new: int
    known: int
    size: int
    waiting: int  # new jobs that wait for an instant


class Layout(NamedTuple):
    """The columns of an entry's rows: the first one of new is the id, and the last one of known."""

    new: tuple[str, ...]
    known: tuple[str, ...]

    def merger(self) -> Callable[[Row], Row]:
        """Return a function that merges a new row and a known row, given as one tuple."""
        changed = {name: len(self.new) + at for at, name in enumerate(self.known)}
        return itemgetter(*(changed.get(name, at) for at, name in enumerate(self.new)))


LAYOUT = Layout(rows.JOB.inserted, (*rows.JOB.mutable, "id"))

_new_id = itemgetter(0)
_new_end, _known_end = (itemgetter(names.index("ended_at")) for names in LAYOUT)
_new_expiry, _known_expiry = (itemgetter(names.index("expires_at")) for names in LAYOUT)

# Before the file noted the columns, an entry began with the number of its layout.
_NEW_3 = (
    *("id", "task", "queue", "payload", "priority", "options", "state", "created_at", "due_at"),
    *("rank", "picked_at", "started_at", "ended_at", "attempt", "failures", "losses", "epoch"),
    *("worker", "schedule_id", "scheduled_for", "trigger", "missed_count", "unique_key"),
    *("expires_at", "cancel_requested_at", "result", "failure", "due_elapsed", "expires_elapsed"),
    *("offset_us", "route"),
)
_KNOWN_3 = (
    *("priority", "state", "due_at", "rank", "picked_at", "started_at", "ended_at", "attempt"),
    *("failures", "losses", "epoch", "worker", "missed_count", "unique_key", "expires_at"),
    *("cancel_requested_at", "result", "failure", "due_elapsed", "expires_elapsed", "id"),
)
_NUMBERED = {
    1: Layout(_NEW_3[:-4], (*_KNOWN_3[:-3], "id")),
    2: Layout((*_NEW_3[:-4], "route"), (*_KNOWN_3[:-3], "id")),
    3: Layout(_NEW_3, _KNOWN_3),
}

_TABLES = "SELECT name FROM sqlite_schema WHERE name IN ('journal', 'write_buffer')"
_ENTRIES = "SELECT id, body FROM {} ORDER BY id"
_READ_LAYOUT = "SELECT kind, columns FROM write_buffer_layout"
_WRITE_LAYOUT = "INSERT OR REPLACE INTO write_buffer_layout (kind, columns) VALUES (?, ?)"

_encode = msgspec.msgpack.Encoder().encode
_Rows = list[tuple[Any, ...]]
_decode = msgspec.msgpack.Decoder(tuple[_Rows, _Rows]).decode
_decode_numbered = msgspec.msgpack.Decoder(tuple[int, _Rows, _Rows]).decode


def encode(jobs: BufferableJobs) -> bytes:
    """Return the body of an entry."""
    return _encode(jobs)


def merge_entry(
    new: dict[int, Row],
    known: dict[int, Row],
    jobs: BufferableJobs,
    merge: Callable[[Row], Row],
) -> None:
    """Merge the rows of one entry into the rows of earlier ones, which are by job id."""
    for row in jobs.known:
        job_id = row[-1]
        before = new.get(job_id)
        if before is None:
            known[job_id] = row
        else:
            new[job_id] = merge(before + row)
    new.update(zip(map(_new_id, jobs.new), jobs.new, strict=True))


def have_ended(entry: Entry, new: Iterator[Row], known: Iterator[Row]) -> bool:
    """Whether the jobs of the entry have ended; this takes its rows from the iterators."""
    ended = [*map(_new_end, islice(new, entry.new)), *map(_known_end, islice(known, entry.known))]
    return None not in ended


def may_expire(new: Iterable[Row], known: Iterable[Row], now: int) -> bool:
    """Whether one of the rows has an expiry up to now."""
    expiries = chain(map(_new_expiry, new), map(_known_expiry, known))
    return any(at is not None and at <= now for at in expiries)


def write_layout(connection: sqlite3.Connection) -> None:
    """Note the columns of the entries that follow; needs a transaction, and an empty buffer."""
    for kind, names in LAYOUT._asdict().items():
        connection.execute(_WRITE_LAYOUT, (kind, msgspec.json.encode(names).decode()))


class LeftJobs(NamedTuple):
    """The rows of all entries of a file, by job id; table: the one that has the entries."""

    table: str
    layout: Layout
    new: dict[int, Row]
    known: dict[int, Row]


def has_entries(connection: sqlite3.Connection) -> bool:
    """Return whether there is something to replay, in a file of any version."""
    found = connection.execute(_TABLES).fetchall()
    return bool(found) and connection.execute(f"SELECT 1 FROM {found[0][0]}").fetchone() is not None


def read_left(connection: sqlite3.Connection) -> LeftJobs | None:
    """Return what the entries hold, in a file of any version; None if there are no entries.

    An entry that cannot be read is logged and skipped.
    """
    ((table,),) = connection.execute(_TABLES).fetchall()
    bodies = connection.execute(_ENTRIES.format(table)).fetchall()
    if not bodies:
        return None
    layout = _find_layout(connection, table, bodies)
    left = LeftJobs(table, layout, {}, {})
    merge = layout.merger()
    for entry, body in bodies:
        try:
            jobs = _read(body, layout, is_numbered=table == "journal")
            merge_entry(left.new, left.known, jobs, merge)
        except ValueError as error:  # msgspec's errors are ValueErrors too
            log.error("entry %d of the write buffer is unreadable and skipped: %s", entry, error)
    return left


def find_unreadable(connection: sqlite3.Connection) -> tuple[int, list[int]]:
    """Return the number of entries, and those that a replay would skip."""
    bodies = connection.execute(_ENTRIES.format("write_buffer")).fetchall()
    layout = _find_layout(connection, "write_buffer", bodies)
    unreadable = []
    for entry, body in bodies:
        try:
            _read(body, layout, is_numbered=False)
        except ValueError:
            unreadable.append(entry)
    return len(bodies), unreadable


def _find_layout(
    connection: sqlite3.Connection, table: str, bodies: list[tuple[int, bytes]]
) -> Layout:
    if table == "write_buffer":
        found = dict(connection.execute(_READ_LAYOUT).fetchall())
        decoded = {kind: tuple(msgspec.json.decode(text)) for kind, text in found.items()}
        return Layout(**decoded) if decoded else LAYOUT
    for _, body in bodies:
        try:
            return _NUMBERED[_decode_numbered(body)[0]]
        except (KeyError, ValueError):
            continue
    return _NUMBERED[3]


def _read(body: bytes, layout: Layout, *, is_numbered: bool) -> BufferableJobs:
    if is_numbered:
        number, new, known = _decode_numbered(body)
        if _NUMBERED.get(number) != layout:
            raise ValueError(f"its layout is {number}")
    else:
        new, known = _decode(body)
    if {*map(len, new)} - {len(layout.new)} or {*map(len, known)} - {len(layout.known)}:
        raise ValueError("a row has too many values, or too few")
    if not all(type(job_id) is int for job_id in (*(r[0] for r in new), *(r[-1] for r in known))):
        raise ValueError("a row has no job id")
    return BufferableJobs(new, known)
