"""Copies a store between a SQLite file and PostgreSQL, with everything in it, and compares the two.

Both stores have the same tables with the same columns, so rows are copied as they are: ids, epochs,
attempts, outputs, decisions, watermarks. The servers of both are stopped, which the locks of the
stores ensure. The target is empty, and remains so until all rows are in it and have the same hashes
as those of the source: they come into PostgreSQL in one transaction, and a file gets its name last.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

import msgspec

from schedo.core.minutes import merge_minutes
from schedo.errors import StoreError
from schedo.store.base import ClockMark

Row = Sequence[Any]

# Each table with the columns of its primary key, in the order of copying.
TABLES = {
    "job": ("id",),
    "job_payload": ("job_id",),
    "job_tag": ("tag", "job_id"),
    "attempt": ("job_id", "number"),
    "output": ("job_id", "attempt", "stream"),
    "schedule": ("id",),
    "decision": ("schedule_id", "number"),
    "run_history": ("schedule_id",),
    "run_release": ("schedule_id",),
    "queue": ("name",),
    "pause": ("scope",),
    "cordon": ("name",),
    "expectation": ("id",),
    "bulk_operation": ("id",),
    "bulk_step": ("operation", "number"),
    "idempotency_record": ("scope",),
    "minute": ("at",),
    "tally": ("dimension", "period", "at"),
    "secret": ("name",),
    "action_log": ("number",),
}
# Their texts are JSON that a database may write in another way.
_JSON = {("run_history", "last_runs")}
# What each server finds for itself, or that only one kind of store has.
NOT_COPIED = {
    *("meta", "server", "shard", "queue_share"),  # of meta, the marks are copied
    "inbox",  # it must be empty
    *("bulk_undo", "write_buffer", "write_buffer_layout", "sqlite_sequence"),
}
NOT_COPIED_COLUMNS = {
    *((table, "shard") for table in ("job", "schedule", "expectation", "bulk_operation")),
    *(("run_release", "shard"), ("minute", "server")),
}
# The marks: the epoch, and of the table meta what is not about the file itself.
MARKS = ("store", "decided_at", *(f"clock_{name}" for name in ClockMark._fields))

_encode = msgspec.msgpack.Encoder().encode


class Source(Protocol):
    """A store whose lock this process holds, to read from."""

    async def columns(self, table: str) -> Sequence[str]:
        """Return the names of the columns of a table."""

    def read(
        self, table: str, columns: Sequence[str], order: Sequence[str]
    ) -> AsyncIterator[list[Row]]:
        """Yield all rows of a table in the order of these columns, some thousands at a time."""

    async def read_marks(self) -> dict[str, int]:
        """Return the epoch and the marks that are set."""

    async def end(self) -> None:
        """Raise StoreError if the store has got something since it is read; keep it so."""


class Target(Source, Protocol):
    """An empty store whose lock this process holds; without `finish` it stays empty."""

    async def write(self, table: str, columns: Sequence[str], rows: list[Row]) -> None:
        """Add rows to a table."""

    async def write_marks(self, marks: dict[str, int]) -> None:
        """Set the epoch and the marks, and let new ids and numbers follow those of the rows."""

    async def finish(self) -> None:
        """Make everything durable, under the name of the target."""


class Copied(NamedTuple):
    """A table, or the marks: how many rows each side has, and the SHA-256 of these in order."""

    table: str
    rows: int
    digest: str
    target_rows: int
    target_digest: str

    @property
    def is_equal(self) -> bool:
        return (self.rows, self.digest) == (self.target_rows, self.target_digest)


class _Hash:
    """The number and the SHA-256 of rows; a value counts with its type and its length."""

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self.rows = 0
        self._sha = hashlib.sha256()
        self._json = [at for at, name in enumerate(columns) if (table, name) in _JSON]

    def add(self, rows: list[Row]) -> None:
        self.rows += len(rows)
        if self._json:
            rows = [self._normalize(row) for row in rows]
        self._sha.update(b"".join([_encode(tuple(row)) for row in rows]))

    def _normalize(self, row: Row) -> Row:
        normal = list(row)
        for at in self._json:
            normal[at] = json.dumps(json.loads(row[at]), sort_keys=True, separators=(",", ":"))
        return normal

    def hexdigest(self) -> str:
        return self._sha.hexdigest()


async def copy_store(
    source: AbstractAsyncContextManager[Source],
    target: AbstractAsyncContextManager[Target],
    progress: Callable[[str, int], None],
) -> list[Copied]:
    """Copy the source to the empty target, and compare them; return what was copied.

    progress: called with a table and the number of its rows so far. The target stays empty if an
    entry of the result is not equal, and after an error. Raise StoreError.
    """
    async with source as old, target as new:
        done = [await _copy(old, new, table, progress) for table in TABLES]
        marks = await old.read_marks()
        await new.write_marks(marks)
        found = await new.read_marks()
        done.append(_compare_marks(marks, {name: found[name] for name in found if name in marks}))
        if all(each.is_equal for each in done):
            await old.end()
            await new.finish()
    return done


async def _copy(
    old: Source, new: Target, table: str, progress: Callable[[str, int], None]
) -> Copied:
    columns = await _common_columns(old, new, table)
    written, found = _Hash(table, columns), _Hash(table, columns)
    async for rows in _read(old, table, columns):
        written.add(rows)
        await new.write(table, columns, rows)
        progress(table, written.rows)
    async for rows in _read(new, table, columns):
        found.add(rows)
    return Copied(table, written.rows, written.hexdigest(), found.rows, found.hexdigest())


def _read(side: Source, table: str, columns: list[str]) -> AsyncIterator[list[Row]]:
    """Return the rows as both kinds of stores can have them: one for each minute."""
    pages = side.read(table, columns, TABLES[table])
    return _merge_servers(pages, columns) if table == "minute" else pages


async def _merge_servers(
    pages: AsyncIterator[list[Row]], columns: list[str]
) -> AsyncIterator[list[Row]]:
    """Yield the rows of minutes, those of all servers together."""
    at, figures = columns.index("at"), columns.index("figures")
    last: list[Row] = []  # the rows of one minute
    async for page in pages:
        merged: list[Row] = []
        for row in page:
            if last and last[0][at] != row[at]:
                merged.append(_merge(last, figures))
                last = []
            last.append(row)
        yield merged
    if last:
        yield [_merge(last, figures)]


def _merge(rows: list[Row], figures: int) -> Row:
    if len(rows) == 1:
        return rows[0]
    merged = [*rows[0]]
    merged[figures] = merge_minutes([row[figures] for row in rows])
    return merged


async def _common_columns(old: Source, new: Source, table: str) -> list[str]:
    skipped = {name for owner, name in NOT_COPIED_COLUMNS if owner == table}
    names = [{*await side.columns(table)} - skipped for side in (old, new)]
    if names[0] != names[1]:
        odd = ", ".join(sorted(names[0] ^ names[1]))
        raise StoreError(f"the table {table} has other columns in the other store: {odd}")
    return sorted(names[0])


def _compare_marks(old: dict[str, int], new: dict[str, int]) -> Copied:
    digests = [hashlib.sha256(_encode(sorted(each.items()))).hexdigest() for each in (old, new)]
    return Copied("meta", len(old), digests[0], len(new), digests[1])
