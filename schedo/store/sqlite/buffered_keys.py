"""The unique keys of the jobs in the write buffer.

The tables check that a key has one holder, but only when the buffer is flushed. So a commit may
enter the buffer only if none of its keys can fail that check: a new job takes a key that no other
job holds, and a known job keeps its own. Every other commit is written to the tables at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import msgspec

from schedo.store.columns import Row
from schedo.store.sqlite import queries
from schedo.store.sqlite.buffer_entries import LAYOUT, BufferableJobs

_NEW, _KNOWN = LAYOUT.new.index("unique_key"), LAYOUT.known.index("unique_key")
_KEYS = "SELECT id, unique_key FROM job WHERE id IN (SELECT value FROM json_each(?))"
_encode = msgspec.json.Encoder().encode


class BufferedKeys:
    """The buffered jobs that hold a unique key, by key; new and known: the rows of the buffer."""

    def __init__(self, new: Mapping[int, Row], known: Mapping[int, Row]) -> None:
        self._new = new
        self._known = known
        self._holders: dict[str, int] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._holders

    def __bool__(self) -> bool:
        return bool(self._holders)

    def admit(self, connection: sqlite3.Connection, jobs: BufferableJobs) -> bool:
        """Return whether the tables will accept the keys of the jobs after the buffered ones."""
        released = {row[-1] for row in jobs.known if row[_KNOWN] is None}
        keeps = {row[-1]: row[_KNOWN] for row in jobs.known if row[_KNOWN] is not None}
        taken = [row[_NEW] for row in jobs.new if row[_NEW] is not None]
        if not all(self._key(job_id) == key for job_id, key in keeps.items() if self._has(job_id)):
            return False
        if len({*taken}) < len(taken) or not {
            self._holders[key] for key in taken if key in self._holders
        }.issubset(released):
            return False
        stored = {job_id: key for job_id, key in keeps.items() if not self._has(job_id)}
        if stored and dict(connection.execute(_KEYS, (_encode([*stored]).decode(),))) != stored:
            return False
        if not taken:
            return True
        holders = connection.execute(queries.UNIQUE_IDS, (_encode(taken).decode(),)).fetchall()
        return all(
            job_id in released or (self._has(job_id) and self._key(job_id) is None)
            for (job_id,) in holders
        )

    def note(self, jobs: BufferableJobs) -> None:
        """Note the keys of jobs that enter the buffer, before their rows are merged."""
        for row in jobs.known:
            if row[_KNOWN] is None:
                self.forget(row[-1])
            else:
                self._holders[row[_KNOWN]] = row[-1]
        self._holders.update((row[_NEW], row[0]) for row in jobs.new if row[_NEW] is not None)

    def forget(self, job_id: int) -> None:
        """Note that a buffered job releases its key, or leaves the buffer."""
        key = self._key(job_id) if self._has(job_id) else None
        if key is not None and self._holders.get(key) == job_id:
            del self._holders[key]

    def clear(self) -> None:
        """Forget all keys."""
        self._holders.clear()

    def _has(self, job_id: int) -> bool:
        return job_id in self._new or job_id in self._known

    def _key(self, job_id: int) -> str | None:
        row = self._new.get(job_id)
        key: str | None = self._known[job_id][_KNOWN] if row is None else row[_NEW]
        return key
