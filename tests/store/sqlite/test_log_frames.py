"""The log tells which pages of the database its commits hold."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from schedo.store.sqlite.log_frames import INDEX_BYTES, count_frames, has_pages

PAGE = 4_096


@pytest.fixture
def log(tmp_path: Path) -> Iterator[str]:
    """The log of a database of several pages, none of which was copied."""
    path = tmp_path / "some.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE some (value)")
        connection.execute("INSERT INTO some VALUES (zeroblob(20000))")
        yield f"{path}-wal"


def index_of(log: str) -> bytes:
    return Path(log.replace("-wal", "-shm")).read_bytes()[:INDEX_BYTES]


def test_a_log_has_the_pages_of_its_commits_and_no_others(log: str) -> None:
    index = index_of(log)

    assert count_frames(index) >= 6
    assert has_pages(log, index, range(1, 7), PAGE)
    assert has_pages(log, index, range(3, 3), PAGE)
    assert not has_pages(log, index, range(1, 9), PAGE)


def test_frames_after_the_last_commit_do_not_count(log: str) -> None:
    index = index_of(log)
    one_frame = index[:16] + (1).to_bytes(4, "little") + index[20:]

    assert has_pages(log, index, range(2, 7), PAGE)
    assert not has_pages(log, one_frame, range(2, 7), PAGE)


def test_a_log_that_is_missing_cut_or_new_has_no_pages(log: str) -> None:
    index = index_of(log)

    assert not has_pages(f"{log}-other", index, range(1, 7), PAGE)
    assert not has_pages(log, None, range(1, 7), PAGE)
    assert not has_pages(log, index[:32] + bytes(16), range(1, 7), PAGE)
    with open(log, "r+b") as file:
        file.seek(32 + 8)
        file.write(b"previous")
    assert not has_pages(log, index, range(1, 7), PAGE)
    os.truncate(log, 40)
    assert not has_pages(log, index, range(1, 7), PAGE)
