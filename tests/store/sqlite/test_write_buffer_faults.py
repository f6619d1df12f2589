"""Buffered jobs when the process, the disk or a buffered entry fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from schedo.core.loads import LoadJob
from schedo.core.model import Job, Queue, ReadyKey
from schedo.core.states import State
from schedo.errors import StoreFull
from schedo.store import rows
from schedo.store.sqlite.buffer_bounds import ALONE
from schedo.store.sqlite.buffer_entries import LAYOUT
from schedo.store.sqlite.connection import prepare_writer
from schedo.store.sqlite.schema import migrate
from schedo.store.sqlite.store import SqliteStore
from schedo.store.sqlite.write_buffer import WriteBuffer
from schedo.store.sqlite.writes import encode
from tests.factories import make_job
from tests.store.files import Crashed, raw
from tests.store.steps import ended, listed, of_jobs, put


async def test_buffered_entries_survive_a_crash(store: SqliteStore, path: Path) -> None:
    old, new = make_job(id=1), make_job(id=2, payload=b"[2]")
    await put(store, old)
    assert await listed(store) == [1]
    await store.commit(of_jobs(ended(old, b"[1]")))
    await put(store, new, make_job(id=3))
    await store.commit(of_jobs(ended(new)))

    found = await Crashed(path).jobs()

    assert sorted(found) == [1, 2, 3]
    assert (found[1], found[2], found[3].state) == (old, new, State.QUEUED)


async def test_buffered_entries_of_a_crash_are_replayed_before_the_first_turn(
    store: SqliteStore, path: Path
) -> None:
    await put(store, make_job(id=7, queue="a"))
    crashed = Crashed(path)
    second = SqliteStore(crashed.path)

    opening = await second.open()
    await second.close()

    assert (opening.last_id, opening.ready_keys) == (7, [ReadyKey("a", "email.send")])
    assert crashed.run("SELECT count(*) FROM write_buffer") == [(0,)]


WIDTH = len(LAYOUT.new)
GARBAGE = {
    "torn": b"\x93\x01\x91",
    "no message": b"\xc1\xff",
    "of another kind": msgspec.msgpack.encode({"a": 1}),
    "of another version": msgspec.msgpack.encode((3, [], [])),
    "with a row that is too short": msgspec.msgpack.encode(([(1, 2)], [])),
    "with a row that names no job": msgspec.msgpack.encode(([(None,) * WIDTH], [])),
    "with values that do not fit": msgspec.msgpack.encode(([(9, *(b"?",) * (WIDTH - 1))], [])),
    "with numbers beyond 63 bits": msgspec.msgpack.encode(([(9, *(2**63,) * (WIDTH - 1))], [])),
    "with lists for values": msgspec.msgpack.encode(([(9, *([],) * (WIDTH - 1))], [])),
    "with an update of a job that is not there": msgspec.msgpack.encode(
        ([], [(*rows.known_job_row(make_job(), 0)[:-1], 12_345)])
    ),
}


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
async def test_an_invalid_entry_is_logged_and_the_others_are_kept(
    store: SqliteStore, path: Path, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await put(store, make_job(id=1))
    crashed = Crashed(path)
    crashed.run("INSERT INTO write_buffer (body) VALUES (?)", body)

    assert sorted(await crashed.jobs()) == [1]
    assert [record.name for record in caplog.records] == ["schedo.store"]
    assert "skipped" in caplog.text


async def test_a_failed_flush_loses_no_entry(store: SqliteStore, path: Path) -> None:
    jobs = [make_job(id=n, payload=b"x" * 3_000) for n in range(1, 101)]
    await put(store, *jobs)
    pages = (await raw(store, "PRAGMA page_count"))[0][0]
    await raw(store, f"PRAGMA max_page_count = {pages}")

    with pytest.raises(StoreFull):
        await store.load(LoadJob(1))
    with pytest.raises(StoreFull):
        await listed(store)
    with pytest.raises(StoreFull):
        await store.snapshot()
    with pytest.raises(StoreFull):
        await store.commit(of_jobs(make_job(id=200)))
    assert sorted(await Crashed(path).jobs()) == [*range(1, 101)]
    await raw(store, "PRAGMA max_page_count = 100000")

    assert await raw(store, "PRAGMA synchronous") == [(2,)]
    assert (await store.snapshot()).last_id == 100
    assert len(await listed(store)) == 100


async def test_a_failed_background_flush_is_only_logged(store: SqliteStore) -> None:
    await put(store, *(make_job(id=n, payload=b"x" * 3_000) for n in range(1, 101)))
    pages = (await raw(store, "PRAGMA page_count"))[0][0]
    await raw(store, f"PRAGMA max_page_count = {pages}")

    store._post(store._buffer.flush)
    await raw(store, "PRAGMA max_page_count = 100000")

    assert len(await listed(store)) == 100


async def test_a_snapshot_uses_the_write_buffer_and_not_memory(store: SqliteStore) -> None:
    await put(store, make_job(id=1))
    # As if a commit had failed with an unknown outcome and is durable after all.
    row = rows.new_job_row(make_job(id=2), b"[2]", None, "", 0)
    body = msgspec.msgpack.encode(([row], []))
    await raw(store, "INSERT INTO write_buffer (body) VALUES (?)", body)

    assert (await store.snapshot()).last_id == 2
    assert await listed(store) == [2, 1]


class UnclearConnection(sqlite3.Connection):
    """Executes everything, and then reports that one statement failed."""

    unclear: str | None = None  # the beginning of the message

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        done = super().execute(sql, parameters)
        if self.unclear is not None and sql.lstrip().startswith(self.unclear):
            self.unclear = None
            raise sqlite3.OperationalError("it may have happened")
        return done


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[UnclearConnection]:
    file = tmp_path / "unclear.db"
    connection = sqlite3.connect(file, isolation_level=None, factory=UnclearConnection)
    prepare_writer(connection)
    migrate(connection)
    yield connection
    connection.close()


@pytest.mark.parametrize("is_folding", [True, False])
def test_a_commit_that_failed_and_is_durable_after_all_is_neither_lost_nor_written_twice(
    connection: UnclearConnection, is_folding: bool
) -> None:
    jobs = WriteBuffer()
    jobs.commit(connection, encode(of_jobs(make_job(id=1))))
    connection.unclear = "COMMIT" if is_folding else "INSERT INTO write_buffer"
    second = encode(of_jobs(make_job(id=2)))
    fail = (
        partial(jobs.flush, connection) if is_folding else partial(jobs.commit, connection, second)
    )
    with pytest.raises(sqlite3.OperationalError, match="it may have happened"):
        fail()
    assert jobs

    jobs.commit(connection, encode(of_jobs(make_job(id=3))))
    jobs.flush(connection)

    found = [job_id for (job_id,) in connection.execute("SELECT id FROM job")]
    assert found == ([1, 3] if is_folding else [1, 2, 3])


def test_no_commit_runs_before_commits_are_synced_again(connection: UnclearConnection) -> None:
    jobs = WriteBuffer()
    jobs.commit(connection, encode(of_jobs(make_job(id=1))))
    connection.execute("PRAGMA synchronous = NORMAL")
    jobs.forget()  # the worst state after a failed flush

    jobs.commit(connection, encode(of_jobs(make_job(id=2))))

    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_commits_go_to_the_tables_while_flushes_cannot_keep_up(
    connection: UnclearConnection,
) -> None:
    jobs = WriteBuffer()
    for first in range(1, 17_101, 1_900):
        bulk = (make_job(id=n) for n in range(first, first + 1_900))
        jobs.commit(connection, encode(of_jobs(*bulk)))
        assert jobs._count <= 2 * ALONE.rows

    assert connection.execute("SELECT count(*) FROM job").fetchone() == (17_100,)


@pytest.mark.parametrize("seed", range(8))
async def test_any_order_of_commits_and_flushes_is_consistent_after_a_crash(
    store: SqliteStore, path: Path, seed: int
) -> None:
    random = Random(seed)
    jobs: dict[int, Job] = {}
    assert store._writer is not None
    flushes = (store._buffer.flush, store._buffer.flush_old, store._buffer.flush_oldest)
    for step in range(1, 61):
        changed = random.sample([*jobs.values()], min(len(jobs), random.randrange(4)))
        for job in changed:
            job.state, job.attempt = random.choice([*State]), step
        new = [make_job(id=10 * step + n, payload=b"%d" % step) for n in range(random.randrange(4))]
        jobs |= {job.id: job for job in new}
        changes = of_jobs(*changed, *new)
        if random.random() < 0.1:
            changes.queues = {"a": Queue("a", weight=step)}
        await store.commit(changes)
        for job in new:
            job.is_new = False
        if random.random() < 0.4:
            await store._writer.run(random.choice(flushes))
        if step % 15 == 0:
            assert await Crashed(path, f"crashed-{step}").jobs() == jobs

    assert await listed(store, limit=999) == sorted(jobs, reverse=True)
    for job_id, job in jobs.items():
        assert await store.get_job(job_id) == job
