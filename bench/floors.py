"""The floors: the least that the same work costs without schedo."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

_TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def measure_timerfd(dues_us: Sequence[int]) -> list[int]:
    """Sleep until each instant with a bare timerfd; return the lateness of each in microseconds."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.timerfd_create(time.CLOCK_REALTIME, 0)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create failed")
    spec = _Itimerspec()
    lateness = []
    try:
        for due in dues_us:
            if time.time_ns() // 1000 < due:
                spec.value.seconds, microseconds = divmod(due, 1_000_000)
                spec.value.nanoseconds = microseconds * 1000
                libc.timerfd_settime(fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None)
                os.read(fd, 8)
            lateness.append(time.time_ns() // 1000 - due)
    finally:
        os.close(fd)
    return lateness


TABLE = """
CREATE TABLE job (
    id INTEGER PRIMARY KEY, task TEXT, queue TEXT, priority INTEGER, state TEXT, created_at INTEGER,
    due_at INTEGER, started_at INTEGER, ended_at INTEGER, attempt INTEGER, payload BLOB, result BLOB
) STRICT"""
INSERT = "INSERT INTO job VALUES (?, 'noop', 'default', 0, 'queued', ?, ?, NULL, NULL, 0, ?, NULL)"
UPDATE = """
UPDATE job SET state = 'completed', started_at = ?, ended_at = ?, attempt = 1 WHERE id = ?"""


class BareTable:
    """A SQLite file with one table without an index; its rows are as durable as schedo's."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(TABLE)

    def insert(self, ids: Sequence[int]) -> None:
        """Insert the rows in one durable commit."""
        now = time.time_ns() // 1000
        self._commit(INSERT, [(each, now, now, b'{"n":1}') for each in ids])

    def complete(self, ids: Sequence[int]) -> None:
        """Mark the rows as completed in one durable commit."""
        now = time.time_ns() // 1000
        self._commit(UPDATE, [(now, now, each) for each in ids])

    def _commit(self, sql: str, rows: list[tuple[object, ...]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(sql, rows)
        self._connection.execute("COMMIT")

    def close(self) -> None:

        self._connection.close()


def commit_groups(path: Path, count: int, batch: int, *, is_completing: bool = True) -> float:
    """Insert and complete rows, with two commits for each batch; return rows a second."""
    table = BareTable(path)
    began = time.perf_counter()
    for start in range(0, count, batch):
        ids = range(start, min(start + batch, count))
        table.insert(ids)
        if is_completing:
            table.complete(ids)
    elapsed = time.perf_counter() - began
    table.close()
    return count / elapsed


def run_xargs(count: int, at_once: int = 16) -> float:
    """Run /bin/true `count` times with xargs; return the number of runs a second."""
    words = b"x\n" * count
    began = time.perf_counter()
    # xargs passes each word to `true` as an argument, which `true` ignores.
    subprocess.run(["xargs", "-P", str(at_once), "-n", "1", "/bin/true"], input=words, check=True)
    return count / (time.perf_counter() - began)
