"""The write buffer: jobs that are durable in a table of their own and not yet in the job table.

To insert and update a job takes ten times as long as to append it to a table without an index, and
most jobs end within milliseconds of their first commit. So the jobs of a commit are one row of that
table, as durable as any other commit. Memory merges the entries of each job into one row, and a
later flush writes these rows to the job table together.

- The tables alone are complete only while the buffer is empty: each read or write of them flushes
  first. Only the pages of waiting jobs are read from both (loads.py).
- The entries have values, never differences. So a replay in order is correct even if the tables
  have a part of the entries already.
- After a failed transaction the rows in memory are unreliable: the next call replays the table of
  the entries.

Everything here runs in the writer's thread; any thread may test whether the buffer is empty.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice, takewhile
from operator import itemgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from schedo.core.loads import LoadReady
from schedo.core.states import State
from schedo.store.columns import Row
from schedo.store.sqlite import writes
from schedo.store.sqlite.buffer_bounds import ALONE, Bounds, Periods
from schedo.store.sqlite.buffer_entries import (
    LAYOUT,
    BufferableJobs,
    Entry,
    encode,
    have_ended,
    may_expire,
    merge_entry,
)
from schedo.store.sqlite.buffered_keys import BufferedKeys
from schedo.store.sqlite.buffered_queued import BufferedQueued
from schedo.store.sqlite.connection import (
    count_statement,
    sync_commits,
    transaction,
    undone,
    unsynced,
)
from schedo.store.sqlite.replay import replay
from schedo.store.sqlite.writes import Commit, Statement

P = ParamSpec("P")
T = TypeVar("T")

BUFFERED_BYTES_MAX = 4_194_304
# With more than this part of the rows, those of ended jobs are flushed after each commit. So a fast
# stream writes them while it runs, and a close has little left to do.
ENDED_PART = 4
# The rows of one flush: it takes a millisecond or two, and commits wait meanwhile.
FLUSH_ROWS = 250
# A larger commit is written to the tables at once: writing its payloads twice would cost more than
# it saves.
ENTRY_BYTES_MAX = 524_288

# Each step of a statement gives the interpreter to the loop's thread, and waiting for its return
# can take longer than the step. So the statement that appends an entry, which is a transaction by
# itself, also checks its jobs: no new job is in the table (ids grow, so there is hardly ever a row
# in their range), and all known jobs are.
APPEND = """
INSERT INTO write_buffer (body) SELECT :body
WHERE NOT EXISTS (SELECT 1 FROM job WHERE id BETWEEN :first AND :last)
AND (
    SELECT count(*) FROM json_each(:known) AS known CROSS JOIN job ON job.id = known.value
) = :known_count"""
_DELETE = "DELETE FROM write_buffer WHERE id <= ?"

_encode_ids = msgspec.json.Encoder().encode

_new_state, _known_state = (itemgetter(names.index("state")) for names in LAYOUT)
_QUEUED = str(State.QUEUED.value)
_merge = LAYOUT.merger()


class WriteBuffer:
    """The jobs of one open file that a flush has yet to write to its tables."""

    def __init__(self, bounds: Bounds = ALONE) -> None:
        self.bounds = bounds  # any thread may set it
        # Each commit goes to the tables at once: that of a recovery, because the first pages are
        # read from the tables right after it.
        self.is_bypassed = False
        # By job id, in the order of the entries that added the jobs.
        self._new: dict[int, Row] = {}
        self._known: dict[int, Row] = {}
        self._keys = BufferedKeys(self._new, self._known)
        self._queued = BufferedQueued(self._new)
        self._entries: deque[Entry] = deque()
        self._size = 0
        self._waiting = 0
        self._has_requeued = False  # a job that was in the tables before may be queued again
        self._periods = Periods()
        self._is_consistent = True  # memory agrees with the entries

    def __bool__(self) -> bool:
        """Whether the tables may be incomplete."""
        return bool(self._new or self._known) or not self._is_consistent

    @property
    def newest(self) -> int:
        """The id of the last entry, or 0; any thread may call."""
        with suppress(IndexError):
            return self._entries[-1].id
        return 0

    def holds_key(self, key: str) -> bool:
        """Whether a buffered job holds the unique key; only the writer's thread may call."""
        return key in self._keys or not self._is_consistent

    def holds(self, job_id: int) -> bool:
        """Whether the tables may be without the newest row of the job; any thread may call."""
        return job_id in self._new or job_id in self._known or not self._is_consistent

    def holds_any(self, job_ids: Iterable[int]) -> bool:
        """Whether the tables may be without the newest row of one of the jobs."""
        new, known = self._new, self._known
        return any(job_id in new or job_id in known for job_id in job_ids)

    def may_expire(self, now: int) -> bool:
        """Whether a buffered job may have expired; only the writer's thread may call."""
        rows = self._new.values(), self._known.values()
        return not self._is_consistent or may_expire(*rows, now)

    def find_queued(self, load: LoadReady) -> list[Row] | None:
        """Return the first rows of buffered jobs that may belong to the page, of JOB.inserted.

        None: the page must be read after a flush.
        """
        if self._has_requeued or not self._is_consistent:
            return None
        return self._queued.find(load)

    @property
    def is_long(self) -> bool:
        """Whether the oldest entries should be flushed soon."""
        return (
            self._count > self.bounds.rows
            or self._waiting > self.bounds.waiting
            or self._size > BUFFERED_BYTES_MAX
        )

    @property
    def may_flush_ended(self) -> bool:
        """Whether the oldest entries should be flushed soon if their jobs have ended."""
        return self._count > self.bounds.rows // ENDED_PART

    @property
    def _count(self) -> int:
        return len(self._new) + len(self._known)

    def forget(self) -> None:
        """Drop the rows in memory; the next call replays the entries."""
        self._is_consistent = False  # first, because other threads test whether it is empty
        self._clear()

    def commit(self, connection: sqlite3.Connection, commit: Commit) -> None:
        """Make the commit durable: as an entry if possible, else in the tables."""
        try:
            self._restore(connection)
            may_enter = self._may_enter(connection, commit)
            # An entry alone is a transaction by itself, which takes one step.
            if may_enter and not commit.others and self._append(connection, commit):
                return
            with transaction(connection):
                if may_enter and commit.others and self._append(connection, commit):
                    writes.run(connection, commit.others)
                    return
                self._write(connection, len(self._entries))
                writes.run(connection, commit.statements())
            self._clear()  # not before the end: a read that finds no job in here does not wait
        except BaseException:
            self.forget()
            raise

    def _may_enter(self, connection: sqlite3.Connection, commit: Commit) -> bool:
        if self.is_bypassed or not commit.is_bufferable:
            return False
        return not (commit.has_keys or self._keys) or self._keys.admit(connection, commit.jobs)

    def flush(self, connection: sqlite3.Connection) -> None:
        """Write all buffered jobs to the tables."""
        with self._guarded(connection):
            self._flush(connection, len(self._entries))

    def read_flushed(
        self,
        connection: sqlite3.Connection,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Read the tables as after a flush, without a flush.

        This is for a full disk: the written pages stay in the cache of the connection.
        """
        connection.execute("PRAGMA cache_spill = OFF")
        try:
            with undone(connection):
                if self._is_consistent:
                    self._write(connection, len(self._entries))
                else:
                    replay(connection)
                return function(connection, *args, **kwargs)
        finally:
            connection.execute("PRAGMA cache_spill = ON")

    def end_period(self) -> bool:
        """Note the end of a period; return whether flush_old should run. Any thread may call."""
        return self._periods.is_flush_due(self.bounds, self._count, self.newest)

    def flush_old(self, connection: sqlite3.Connection) -> None:
        """Write some of the oldest entries, as far as their jobs have ended or they are old."""
        self.is_bypassed = False
        with self._guarded(connection):
            most = self._oldest(max(FLUSH_ROWS, self._count // 8))
            self._flush(connection, self._count_old(most))
            self._periods.end(self.newest)

    def _count_old(self, most: int) -> int:
        """Return how many of the oldest entries, at most `most`, should wait no longer.

        A job that has not ended would be written again at its end.
        """
        periods = self.bounds.periods
        if not periods:
            return most
        last, overdue = self._periods.newest_before(1), self._periods.newest_before(periods)
        new, known = iter(self._new.values()), iter(self._known.values())
        for number, entry in enumerate(islice(self._entries, most)):
            if entry.id > last:
                return number
            if not have_ended(entry, new, known) and entry.id > overdue:
                return number
        return most

    def flush_ended(self, connection: sqlite3.Connection) -> None:
        """Write oldest entries whose jobs have ended, few of them behind a small commit."""
        with self._guarded(connection):
            new, known = iter(self._new.values()), iter(self._known.values())
            rows = min(max(FLUSH_ROWS, 2 * self._newest_rows), 2 * FLUSH_ROWS)
            oldest = islice(self._entries, self._oldest(rows))
            ended = takewhile(lambda entry: have_ended(entry, new, known), oldest)
            self._flush(connection, sum(1 for _ in ended))

    def flush_step(self, connection: sqlite3.Connection, last: int) -> bool:
        """Write some of the oldest entries; return whether all up to `last` are in the tables."""
        with self._guarded(connection):
            self._flush(connection, self._oldest(FLUSH_ROWS))
            return not self._entries or self._entries[0].id > last

    def flush_oldest(self, connection: sqlite3.Connection) -> None:
        """Write the oldest entries until the buffer is not long any more.

        If it was made shorter, some of them, and more jobs than the newest entry has added.
        """
        with self._guarded(connection):
            step = 4 * FLUSH_ROWS + self._newest_rows
            count = min(self._count - self.bounds.rows + FLUSH_ROWS, step)
            size = self._size - BUFFERED_BYTES_MAX // 2
            waiting = self._waiting - self.bounds.waiting // 2
            self._flush(connection, self._oldest(count, size, waiting))

    @property
    def _newest_rows(self) -> int:
        return sum(each.new + each.known for each in islice(reversed(self._entries), 1))

    def _oldest(self, count: int, size: int = 0, waiting: int = 0) -> int:
        """Return how many of the oldest entries to write, to flush this many jobs and bytes."""
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
            self._restore(connection)
            yield
        except BaseException:
            self.forget()
            raise

    def _restore(self, connection: sqlite3.Connection) -> None:
        """Replay the entries if the rows in memory are unreliable."""
        if not self._is_consistent:
            sync_commits(connection)
            with transaction(connection):
                replay(connection)
            self._is_consistent = True

    def _append(self, connection: sqlite3.Connection, commit: Commit) -> bool:
        """Append the jobs as an entry; return False if they must go to the tables at once."""
        jobs = commit.jobs
        body = encode(jobs)
        size = len(body)
        if (
            size > ENTRY_BYTES_MAX
            or size + self._size > 2 * BUFFERED_BYTES_MAX
            or len(jobs.new) + len(jobs.known) + self._count > 2 * ALONE.rows
            or not self._new.keys().isdisjoint(row[0] for row in jobs.new)
        ):
            return False
        appended = connection.execute(APPEND, self._describe(jobs) | {"body": body})
        if appended.rowcount == 0:
            return False
        count_statement(connection)
        entry = appended.lastrowid
        assert entry is not None
        new, known = len(self._new), len(self._known)
        if commit.has_keys or self._keys:
            self._keys.note(jobs)
        merge_entry(self._new, self._known, jobs, _merge)
        self._queued.note(jobs.new)
        waiting = len(jobs.new) - list(map(_new_state, jobs.new)).count(_QUEUED)
        self._has_requeued = self._has_requeued or _QUEUED in map(_known_state, jobs.known)
        self._entries.append(
            Entry(entry, len(self._new) - new, len(self._known) - known, size, waiting)
        )
        self._size += size
        self._waiting += waiting
        return True

    def _describe(self, jobs: BufferableJobs) -> dict[str, Any]:
        """Return the parameters of APPEND: which jobs must be in the tables, and which must not."""
        ids = [row[0] for row in jobs.new]
        new, known = self._new, self._known
        stored = [row[-1] for row in jobs.known if row[-1] not in new and row[-1] not in known]
        return {
            "first": min(ids, default=None),
            "last": max(ids, default=None),
            "known": _encode_ids(stored).decode(),
            "known_count": len(stored),
        }

    def _flush(self, connection: sqlite3.Connection, count: int) -> None:
        if count == 0:
            return
        # Not synced: if this transaction is lost, the entries that it deletes are still there.
        with unsynced(connection), transaction(connection):
            self._write(connection, count)
        if count == len(self._entries):
            self._clear()
            return
        for _ in range(count):
            entry = self._entries.popleft()
            self._size -= entry.size
            self._waiting -= entry.waiting
            self._drop_first(self._new, entry.new)
            self._drop_first(self._known, entry.known)

    def _write(self, connection: sqlite3.Connection, count: int) -> None:
        """Write the jobs that the oldest `count` entries added, and delete the entries."""
        if count == 0:
            return
        entries = [*islice(self._entries, count)]
        known = [*islice(self._known.values(), sum(entry.known for entry in entries))]
        new = [*islice(self._new.values(), sum(entry.new for entry in entries))]
        kept, deletes = writes.keep_jobs(new, known)
        statements = [
            *deletes,
            writes.update_jobs(kept.known),
            writes.insert_jobs(kept.new),
            Statement(_DELETE, [(entries[-1].id,)]),
        ]
        writes.run(connection, statements)

    def _clear(self) -> None:
        self._new.clear()
        self._known.clear()
        self._queued.clear()
        self._keys.clear()
        self._entries.clear()
        self._periods.clear()
        self._size = self._waiting = 0
        self._has_requeued = False

    def _drop_first(self, rows: dict[int, Row], count: int) -> None:
        first = [*islice(rows, count)]
        if self._keys:
            for job_id in first:
                self._keys.forget(job_id)
        for job_id in first:
            del rows[job_id]
