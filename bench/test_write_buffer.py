"""Write buffer: the duration of a durable commit by its size, beside a bare SQLite file.

A commit is fast because a flush writes its jobs to the tables later; the flush is measured as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import uvloop
from pytest_benchmark.fixture import BenchmarkFixture

from bench.figures import QUICK
from bench.floors import BareTable
from schedo.core.changes import Changes
from schedo.core.loads import LoadJob
from schedo.core.model import Job
from schedo.core.states import State
from schedo.store.sqlite.store import SqliteStore

SIZES = [1, 10, 100, 1_000]
ROUNDS = 10 if QUICK else 100
NOW = 1_795_172_645_000_000


def size_name(size: int) -> str:
    return f"{size:>5,} in a commit"


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


@pytest.fixture
def store(runner: asyncio.Runner, tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "bench.db")
    runner.run(store.open())
    yield store
    runner.run(store.close())


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[BareTable]:
    table = BareTable(tmp_path / "bare.db")
    yield table
    table.close()


def new_jobs(ids: Iterator[int], size: int) -> Changes:
    made = Changes()
    for _ in range(size):
        job = Job(
            id=next(ids),
            task="noop",
            payload=b'{"n":1}',
            state=State.QUEUED,
            created_at=NOW,
            due_at=NOW,
            rank=NOW,
            is_new=True,
        )
        made.jobs[job.id] = job
    return made


def end(changes: Changes) -> None:
    for job in changes.jobs.values():
        job.is_new = False
        job.state = State.COMPLETED
        job.attempt = 1
        job.picked_at = job.started_at = job.ended_at = NOW


@pytest.mark.parametrize("size", SIZES, ids=size_name)
@pytest.mark.benchmark(group="write buffer: commit new jobs")
def test_commit_new(
    benchmark: BenchmarkFixture, runner: asyncio.Runner, store: SqliteStore, size: int
) -> None:
    ids = count(1)

    benchmark.pedantic(
        lambda changes: runner.run(store.commit(changes)),
        setup=lambda: ((new_jobs(ids, size),), {}),
        rounds=ROUNDS,
    )


@pytest.mark.parametrize("size", SIZES, ids=size_name)
@pytest.mark.benchmark(group="write buffer: commit new jobs")
def test_bare_sqlite_new(benchmark: BenchmarkFixture, bare: BareTable, size: int) -> None:
    starts = count(0, size)

    def setup() -> tuple[tuple[range], dict[str, object]]:
        start = next(starts)
        return (range(start, start + size),), {}

    benchmark.pedantic(bare.insert, setup=setup, rounds=ROUNDS)


@pytest.mark.parametrize("size", SIZES, ids=size_name)
@pytest.mark.benchmark(group="write buffer: commit ended jobs")
def test_commit_ended(
    benchmark: BenchmarkFixture, runner: asyncio.Runner, store: SqliteStore, size: int
) -> None:
    ids = count(1)

    def setup() -> tuple[tuple[Changes], dict[str, object]]:
        changes = new_jobs(ids, size)
        runner.run(store.commit(changes))
        end(changes)
        return (changes,), {}

    benchmark.pedantic(
        lambda changes: runner.run(store.commit(changes)), setup=setup, rounds=ROUNDS
    )


@pytest.mark.parametrize("size", SIZES, ids=size_name)
@pytest.mark.benchmark(group="write buffer: flush ended jobs to the table")
def test_flush(
    benchmark: BenchmarkFixture, runner: asyncio.Runner, store: SqliteStore, size: int
) -> None:
    ids = count(1)

    def setup() -> None:
        changes = new_jobs(ids, size)
        runner.run(store.commit(changes))
        end(changes)
        runner.run(store.commit(changes))

    benchmark.pedantic(lambda: runner.run(store.load(LoadJob(0))), setup=setup, rounds=ROUNDS)


@pytest.mark.parametrize("size", SIZES, ids=size_name)
@pytest.mark.benchmark(group="write buffer: commit ended jobs")
def test_bare_sqlite_ended(benchmark: BenchmarkFixture, bare: BareTable, size: int) -> None:
    starts = count(0, size)

    def setup() -> tuple[tuple[range], dict[str, object]]:
        start = next(starts)
        bare.insert(range(start, start + size))
        return (range(start, start + size),), {}

    benchmark.pedantic(bare.complete, setup=setup, rounds=ROUNDS)
