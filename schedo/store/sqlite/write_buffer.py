"""Jobs that are durable in the journal and not yet in the job table.

To insert a job and update it costs ten times what it costs to append it to a table without an
index, and most jobs end within milliseconds of their first commit. So a commit that holds nothing
but plain jobs is one row of the journal table, as durable as any; memory folds what the journal
says of each job into one row; and the rows are written to the job table together, later.

- The tables alone tell the truth only while nothing is pending: who reads or writes them folds
  first.
- The journal repeats values, never differences, so replaying it in order over tables that have a
  part of it already gives the truth.
- After a failed transaction memory is not trusted: the next call starts from the journal table.

Everything here runs in the writer's thread; any thread may ask whether something is pending.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from operator import itemgetter
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import msgspec

from schedo.core.states import State
from schedo.store.sqlite import rows, writes
from schedo.store.sqlite.connection import (
    count_statement,
    sync_commits,
    transaction,
    undone,
    unsynced,
)
from schedo.store.sqlite.rows import Row
from schedo.store.sqlite.writes import INSERT_JOB, UPDATE_JOB, BufferableJobs, Commit, Statement

log = logging.getLogger("schedo.store")

P = ParamSpec("P")
T = TypeVar("T")

# Enough that a job of a fast stream has ended before it is folded; a row takes about 700 bytes and
# its payload and result. Twice as much may be pending for a moment. Jobs that wait for an instant
# will not end soon, so few of them are kept.
PENDING_ROWS_MAX = 8_192
WAITING_ROWS_MAX = 1_024
PENDING_BYTES_MAX = 4_194_304
# What is folded at a time: a few milliseconds in which no commit can be made.
FLUSH_ROWS = 250
# A commit of more is written to the tables at once: writing its payloads twice would cost more than
# the second write of the rows.
ENTRY_BYTES_MAX = 524_288

# The first value of every entry. Columns that change get a new number, and `_decode` must go on
# reading the old one: a new version may find what an old one left in a crash.
_FORMAT = 3
_WITHOUT_CLOCK = 2  # every instant followed the wall clock
_WITHOUT_ROUTE = 1  # beside that, jobs had no routes

# Every step of a statement lets the loop's thread have the interpreter, and to get it back can cost
# more than the step. So what must be true of an entry's jobs is asked in the statement that appends
# it, which is a transaction by itself: none of the new ones is there (ids grow, so there is hardly
# ever anything where they go), and all the known ones are.
APPEND = """
INSERT INTO journal (body) SELECT :body
WHERE NOT EXISTS (SELECT 1 FROM job WHERE id BETWEEN :first AND :last)
AND (
    SELECT count(*) FROM json_each(:known) AS known CROSS JOIN job ON job.id = known.value
) = :known_count"""
_ENTRIES = "SELECT id, body FROM journal ORDER BY id"
_DELETE = "DELETE FROM journal WHERE id <= ?"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, list[tuple[Any, ...]], list[tuple[Any, ...]]]).decode
_encode_ids = msgspec.json.Encoder().encode

# What SQLite and its binding say of values that a column cannot take.
_UNFIT = (
    *(sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.DataError),
    *(OverflowError, ValueError),
)
_NEW_WIDTH = len(rows.JOB_INSERTED_COLUMNS)
_KNOWN_WIDTH = len(rows.JOB_MUTABLE_COLUMNS) + 1
_COLUMNS = {name: at for at, name in enumerate(rows.JOB_INSERTED_COLUMNS)}
_STATE, _QUEUED = _COLUMNS["state"], str(State.QUEUED.value)
_LATER = {name: _NEW_WIDTH + at for at, name in enumerate(rows.JOB_MUTABLE_COLUMNS)}
# Of a new row and a known row after it: the new row as it is now.
_merge = itemgetter(*(_LATER.get(name, at) for name, at in _COLUMNS.items()))


class Entry(NamedTuple):
    """One row of the journal; new and known: how many jobs were not pending before it."""

    id: int
    new: int
    known: int
    size: int
    waiting: int  # new ones that wait for an instant


class WriteBuffer:
    """The jobs of one open file that are still to be written to its tables."""

    def __init__(self) -> None:
        # By job id, in the order of the entries that named a job first.
        self._new: dict[int, Row] = {}
        self._known: dict[int, Row] = {}
        self._entries: deque[Entry] = deque()
        self._size = 0
        self._waiting = 0
        self._old = 0  # the newest entry when fold_old was called last
        self._is_sure = True  # memory says what the journal table holds

    def __bool__(self) -> bool:
        """Tell whether the tables lack something."""
        return bool(self._new or self._known) or not self._is_sure

    @property
    def is_long(self) -> bool:
        """Tell whether the oldest should be folded soon."""
        return (
            self._count > PENDING_ROWS_MAX
            or self._waiting > WAITING_ROWS_MAX
            or self._size > PENDING_BYTES_MAX
        )

    @property
    def _count(self) -> int:
        return len(self._new) + len(self._known)

    def forget(self) -> None:
        """Go on from the journal table alone, whatever memory says."""
        self._is_sure = False  # first: other threads ask whether something is pending
        self._clear()

    def commit(self, connection: sqlite3.Connection, commit: Commit) -> None:
        """Make the commit durable: as an entry if it can be one, else in the tables."""
        with self._guarded(connection):
            if commit.bufferable is not None and self._append(connection, commit.bufferable):
                return
            with transaction(connection):
                self._write(connection, len(self._entries))
                writes.run(connection, commit.statements)
            self._clear()

    def flush(self, connection: sqlite3.Connection) -> None:
        """Write all pending jobs to the tables."""
        with self._guarded(connection):
            self._flush(connection, len(self._entries))

    def read_folded(
        self,
        connection: sqlite3.Connection,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Read the tables as a fold would leave them, and leave them as they are.

        For a disk without room for a fold: what is written stays in the cache of the connection.
        """
        connection.execute("PRAGMA cache_spill = OFF")
        try:
            with undone(connection):
                if self._is_sure:
                    self._write(connection, len(self._entries))
                else:
                    replay(connection)
                return function(connection, *args, **kwargs)
        finally:
            connection.execute("PRAGMA cache_spill = ON")

    def flush_old(self, connection: sqlite3.Connection) -> None:
        """Write some of what was pending already when this was called last."""
        with self._guarded(connection):
            old = sum(1 for entry in self._entries if entry.id <= self._old)
            self._flush(connection, min(old, self._oldest(max(FLUSH_ROWS, self._count // 8))))
            self._old = self._entries[-1].id if self._entries else 0

    def flush_oldest(self, connection: sqlite3.Connection) -> None:
        """Write so many of the oldest that it is not long any more."""
        with self._guarded(connection):
            count = self._count - PENDING_ROWS_MAX + FLUSH_ROWS
            size = self._size - PENDING_BYTES_MAX // 2
            waiting = self._waiting - WAITING_ROWS_MAX // 2
            self._flush(connection, self._oldest(count, size, waiting))

    def _oldest(self, count: int, size: int = 0, waiting: int = 0) -> int:
        """Return how many entries from the oldest on hold so many jobs, bytes and waiting jobs."""
        for number, entry in enumerate(self._entries):
            if count <= 0 and size <= 0 and waiting <= 0:
                return number
            count -= entry.new + entry.known
            size -= entry.size
            waiting -= entry.waiting
        return len(self._entries)

    @contextmanager
    def _guarded(self, connection: sqlite3.Connection) -> Iterator[None]:
        try:
            if not self._is_sure:
                sync_commits(connection)
                with transaction(connection):
                    replay(connection)
                self._is_sure = True
            yield
        except BaseException:
            self.forget()
            raise

    def _append(self, connection: sqlite3.Connection, plain: BufferableJobs) -> bool:
        """Make an entry of the rows, unless they have to go to the tables at once."""
        body = _encode((_FORMAT, plain.new, plain.known))
        size = len(body)
        if (
            size > ENTRY_BYTES_MAX
            or size + self._size > 2 * PENDING_BYTES_MAX
            or len(plain.new) + len(plain.known) + self._count > 2 * PENDING_ROWS_MAX
            or not self._new.keys().isdisjoint(row[0] for row in plain.new)
        ):
            return False
        appended = connection.execute(APPEND, self._describe(plain) | {"body": body})
        if appended.rowcount == 0:
            return False
        count_statement(connection)
        entry = appended.lastrowid
        assert entry is not None
        new, known = len(self._new), len(self._known)
        _take(self._new, self._known, plain)
        waiting = sum(1 for row in plain.new if row[_STATE] != _QUEUED)
        self._entries.append(
            Entry(entry, len(self._new) - new, len(self._known) - known, size, waiting)
        )
        self._size += size
        self._waiting += waiting
        return True

    def _describe(self, plain: BufferableJobs) -> dict[str, Any]:
        """Return which jobs must not be in the tables, and which must."""
        ids = [row[0] for row in plain.new]
        new, known = self._new, self._known
        stored = [row[-1] for row in plain.known if row[-1] not in new and row[-1] not in known]
        return {
            "first": min(ids, default=None),
            "last": max(ids, default=None),
            "known": _encode_ids(stored).decode(),
            "known_count": len(stored),
        }

    def _flush(self, connection: sqlite3.Connection, count: int) -> None:
        if count == 0:
            return
        # Not synced by itself: if it is lost, the entries that it deletes are still there.
        with unsynced(connection), transaction(connection):
            self._write(connection, count)
        if count == len(self._entries):
            self._clear()
            return
        for _ in range(count):
            entry = self._entries.popleft()
            self._size -= entry.size
            self._waiting -= entry.waiting
            _drop_first(self._new, entry.new)
            _drop_first(self._known, entry.known)

    def _write(self, connection: sqlite3.Connection, count: int) -> None:
        """Write what the oldest entries named first, and delete the entries."""
        if count == 0:
            return
        entries = [*islice(self._entries, count)]
        known = [*islice(self._known.values(), sum(entry.known for entry in entries))]
        new = [*islice(self._new.values(), sum(entry.new for entry in entries))]
        statements = [
            writes.update_jobs(known),
            writes.insert_jobs(new),
            Statement(_DELETE, [(entries[-1].id,)]),
        ]
        writes.run(connection, statements)

    def _clear(self) -> None:
        self._new.clear()
        self._known.clear()
        self._entries.clear()
        self._size = self._waiting = self._old = 0


def _take(new: dict[int, Row], known: dict[int, Row], plain: BufferableJobs) -> None:
    """Fold the rows of one entry into what is pending."""
    for row in plain.known:
        job_id = row[-1]
        before = new.get(job_id)
        if before is None:
            known[job_id] = row
        else:
            new[job_id] = _merge(before + row)
    for row in plain.new:
        new[row[0]] = row


def _drop_first(pending: dict[int, Row], count: int) -> None:
    for job_id in [*islice(pending, count)]:
        del pending[job_id]


def replay(connection: sqlite3.Connection) -> None:
    """Write what the journal table holds to the tables, inside a transaction.

    What cannot be read or written is logged and left out: no entry keeps a file from opening.
    """
    new: dict[int, Row] = {}
    known: dict[int, Row] = {}
    for entry, body in connection.execute(_ENTRIES).fetchall():
        try:
            _take(new, known, _read(body))
        except ValueError as error:  # msgspec's errors are some too
            log.error("entry %d of the store's journal is unreadable, left out: %s", entry, error)
    for sql, pending in ((UPDATE_JOB, known), (INSERT_JOB, new)):
        for job_id, row in pending.items():
            try:
                is_written = connection.execute(sql, row).rowcount == 1
                reason = None if is_written else "it is not in the store"
            except _UNFIT as error:
                reason = str(error)
            if reason is not None:
                log.error(
                    "a change of job %d in the store's journal is left out: %s", job_id, reason
                )
    connection.execute("DELETE FROM journal")


def _read(body: bytes) -> BufferableJobs:
    number, new, known = _decode(body)
    if number == _WITHOUT_ROUTE:
        new = [(*row, "") for row in new]
    if number in (_WITHOUT_ROUTE, _WITHOUT_CLOCK):
        new = [(*row[:-1], 0, 0, 0, row[-1]) for row in new]
        known = [(*row[:-1], 0, 0, row[-1]) for row in known]
    elif number != _FORMAT:
        raise ValueError(f"its format is {number}")
    if {*map(len, new)} - {_NEW_WIDTH} or {*map(len, known)} - {_KNOWN_WIDTH}:
        raise ValueError("a row has too many values, or too few")
    if not all(type(job_id) is int for job_id in (*(r[0] for r in new), *(r[-1] for r in known))):
        raise ValueError("a row names no job")
    return BufferableJobs(new, known)
