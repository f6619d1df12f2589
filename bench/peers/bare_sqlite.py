"""The floor: a bare SQLite table of three columns; rows are inserted and then updated by id."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from pathlib import Path

from bench.peers.work import Result, Work, print_result, read_work

BATCH = 500


def main() -> None:
    work = read_work()
    with tempfile.TemporaryDirectory() as directory:
        print_result(commit_rows(Path(directory) / "bare.db", work))


def commit_rows(path: Path, work: Work, batch: int = BATCH) -> Result:
    """Insert all rows and complete all rows, `batch` rows in each durable commit."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, payload TEXT, state INTEGER)")
    payload = "x" * work.payload_bytes
    parts = [range(at, min(at + batch, work.count)) for at in range(0, work.count, batch)]
    began = time.perf_counter()
    for part in parts:
        connection.execute("BEGIN IMMEDIATE")
        rows = [(number, payload) for number in part]
        connection.executemany("INSERT INTO job VALUES (?, ?, 0)", rows)
        connection.execute("COMMIT")
    submitted = time.perf_counter()
    for part in parts:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("UPDATE job SET state = 1 WHERE id = ?", [(n,) for n in part])
        connection.execute("COMMIT")
    ended = time.perf_counter()
    connection.close()
    total = ended - (began if work.mode == "stream" else submitted)
    return Result(
        submitted - began, total, f"SQLite {sqlite3.sqlite_version}, {batch} rows a commit"
    )


if __name__ == "__main__":
    main()
