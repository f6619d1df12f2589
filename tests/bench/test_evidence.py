"""The checks in a store that the measured work was done."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bench.server.evidence import NotDone, check_acknowledged, check_all_completed


@pytest.fixture
def store(tmp_path: Path) -> Callable[[list[tuple[int, str]]], Path]:
    """Return a function that makes a store with jobs: the number in the payload, and the state."""

    def make(jobs: list[tuple[int, str]]) -> Path:
        path = tmp_path / "bench.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE job (payload BLOB, state TEXT)")
            rows = [(b'{"n":%d}' % number, state) for number, state in jobs]
            connection.executemany("INSERT INTO job VALUES (?, ?)", rows)
        return path

    return make


Make = Callable[[list[tuple[int, str]]], Path]


def test_acknowledged_jobs_that_all_completed_pass(store: Make) -> None:
    # The third was submitted, but the server was killed before it was acknowledged.
    path = store([(0, "completed"), (1, "completed"), (2, "completed")])

    assert check_acknowledged(path, 2).startswith("2 acknowledged jobs")


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param([(0, "completed"), (2, "completed")], id="missing"),
        pytest.param([(0, "completed"), (1, "completed"), (1, "completed")], id="twice"),
        pytest.param([(0, "completed"), (1, "queued")], id="waiting"),
    ],
)
def test_an_acknowledged_job_that_is_not_there_once_and_completed_is_reported(
    store: Make, jobs: list[tuple[int, str]]
) -> None:
    with pytest.raises(NotDone):
        check_acknowledged(store(jobs), 2)


def test_a_job_that_has_not_completed_is_reported(store: Make) -> None:
    with pytest.raises(NotDone, match="'queued': 1"):
        check_all_completed(store([(0, "completed"), (1, "queued")]), 2)
