"""Files of earlier versions open with all their records, those in the write buffer included."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from schedo.core.loads import LoadSchedule
from schedo.core.model import Decision, Job, Options, Queue, ReadyKey, Schedule
from schedo.core.requirements import Condition, Requirements
from schedo.core.states import State
from schedo.store import rows
from schedo.store.base import OutputPiece
from schedo.store.sqlite.buffer_entries import _NUMBERED, LAYOUT
from schedo.store.sqlite.schema import list_migrations
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.files import Crashed, make_old_file
from tests.store.steps import listed, put

SCHEMA_6 = Path(__file__).with_name("schema_6.sql")
T = 1_795_172_645_000_000
GPU = Requirements(labels=(Condition("gpu", "=", ("a100",)),))
STATES = {
    1: State.SCHEDULED,
    2: State.RUNNING,  # it was queued; its start is in the write buffer
    3: State.RUNNING,
    4: State.BLOCKED,
    5: State.RETRYING,
    6: State.COMPLETED,
    7: State.FAILED,
    8: State.CANCELLED,
    9: State.EXPIRED,
    10: State.QUEUED,
    # These jobs were only in the write buffer of the old file.
    20: State.QUEUED,
    21: State.COMPLETED,
    22: State.SCHEDULED,
    23: State.QUEUED,  # it was released
}


@pytest.fixture
def old(path: Path) -> Path:
    """Return a file that the version with schema 6 has left when it was killed."""
    path.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA_6.read_text(encoding="utf-8"))
    return path


async def test_every_job_of_an_old_file_is_found(old: Path) -> None:
    store = SqliteStore(old)
    snapshot = await store.open()
    jobs = {n: await store.get_job(n * 256) for n in STATES}
    keys = set(snapshot.ready_keys)
    listed_ids = await listed(store)
    await store.close()

    found = {n: job.state for n, job in jobs.items() if job is not None}
    assert found == STATES
    assert sorted(listed_ids) == [n * 256 for n in STATES]
    assert keys == {ReadyKey("default", "email.send"), ReadyKey("mail", "email.send")}
    assert snapshot.has_blocked
    assert snapshot.queues == [Queue("mail", concurrency=2, paused=True)]
    assert snapshot.epoch == 3
    started = jobs[2]
    assert started is not None
    assert (started.attempt, started.worker, started.priority) == (2, "w2", 3)
    assert started.options == Options(requirements=GPU)
    assert started.payload == b'{"n":2}'


async def test_every_record_of_an_old_file_is_found(old: Path) -> None:
    store = SqliteStore(old)
    await store.open()
    completed, failed, kept = [await store.get_job(n * 256) for n in (21, 7, 22)]
    _, pulse = (await store.list_schedules(None, 9)).schedules
    nightly = await store.load(LoadSchedule("nightly"))
    decisions = (await store.list_decisions(900 * 256, 9)).decisions
    attempts = await store.list_attempts(5 * 256)
    output = await store.read_output(6 * 256, OutputPiece(1, "stdout", "head", 0, 9))
    record = await store.find_idempotency_record("t POST /v1/jobs k", b"\1\1\1\1")
    tagged = await listed(store, tag="b")
    await store.close()

    assert completed is not None
    assert (completed.result, completed.ended_at) == (b"21", T + 60)
    assert failed is not None
    assert failed.payload == b'"' + b"x" * 5_000 + b'"'
    assert failed.failure is not None
    assert failed.failure.exit_code == 1
    assert kept is not None
    assert (kept.due_at, kept.due_elapsed) == (T + 50, True)
    assert (nightly.name, nightly.active, nightly.blocked) == ("nightly", [768, 1024], 1024)
    assert (pulse.paused, pulse.note) == (True, "paused by ada")
    assert (pulse.owner, pulse.declared) == ("api", None)
    assert [each.decision for each in decisions] == [Decision.BUFFERED, Decision.FIRED]
    assert [(each.outcome, each.worker) for each in attempts] == [("failed", "w1")]
    assert output == b"he\xff"
    assert record is not None
    assert (record.status, record.body) == (201, b"{}")
    assert tagged == [6 * 256]


async def test_an_upgraded_file_opens_again_and_takes_commits(old: Path) -> None:
    store = SqliteStore(old)
    await store.open()
    await put(store, make_job(id=99 * 256))
    await store.close()

    second = SqliteStore(old)
    snapshot = await second.open()
    await second.close()

    assert snapshot.last_id == 900 * 256 + 256
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(list_migrations()),)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_an_upgraded_file_has_the_schema_of_a_new_one(old: Path, tmp_path: Path) -> None:
    def columns(path: Path) -> dict[str, list[str]]:
        with closing(sqlite3.connect(path)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            names = [name for (name,) in tables if not name.startswith("sqlite_")]
            return {
                name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
                for name in names
            }

    fresh = tmp_path / "data" / "fresh.db"
    for file in (old, fresh):
        store = SqliteStore(file)
        await store.open()
        await store.close()

    assert columns(old) == columns(fresh)


# The schema of the last version that wrote entries of each numbered layout.
@pytest.mark.parametrize(("number", "version"), [(1, 2), (2, 4), (3, 5), (3, 6)])
async def test_an_entry_of_each_old_layout_is_replayed(
    path: Path, number: int, version: int
) -> None:
    layout = _NUMBERED[number]
    ended = make_job(id=1, state=State.COMPLETED, attempt=1, result=b"1")
    entries = [
        (number, [row_of(make_job(id=1), layout.new), row_of(make_job(id=2), layout.new)], []),
        (number, [], [row_of(ended, layout.known)]),
    ]
    make_old_file(path, version)
    with closing(sqlite3.connect(path)) as connection:
        for entry in entries:
            body = msgspec.msgpack.encode(entry)
            connection.execute("INSERT INTO journal (body) VALUES (?)", (body,))
        connection.commit()

    store = SqliteStore(path)
    snapshot = await store.open()
    first, second = await store.get_job(1), await store.get_job(2)
    await store.close()

    assert first is not None
    assert (first.state, first.attempt, first.result) == (State.COMPLETED, 1, b"1")
    assert second is not None
    assert second.state is State.QUEUED
    assert snapshot.ready_keys == [ReadyKey("default", "email.send")]


def row_of(job: Job, names: tuple[str, ...]) -> tuple[object, ...]:
    row = rows.new_job_row(job, b"1", None, "", 0)
    named = dict(zip(rows.JOB.inserted, row, strict=True))
    return tuple(named["requirements" if name == "route" else name] for name in names)


async def test_an_attempt_with_the_old_outcome_of_a_release_is_read_as_released(path: Path) -> None:
    values = "({}, 1, 1, 1, 1, '{}')"
    rows = ", ".join(values.format(n, name) for n, name in ((1, "handed_back"), (2, "lost")))
    make_old_file(
        path,
        5,
        f"INSERT INTO attempt (job_id, number, attempt, epoch, ended_at, outcome) VALUES {rows};",
    )

    store = SqliteStore(path)
    await store.open()
    outcomes = [(await store.list_attempts(n))[0].outcome for n in (1, 2)]
    await store.close()

    assert outcomes == ["released", "lost"]


async def test_entries_with_other_columns_than_the_current_ones_are_replayed(path: Path) -> None:
    """As if the column `worker` was new in this version: the file notes what its entries have."""
    store = SqliteStore(path)
    await store.open()
    crashed = Crashed(path)
    await store.close()
    new = tuple(name for name in LAYOUT.new if name != "worker")
    crashed.run(
        "UPDATE write_buffer_layout SET columns = ? WHERE kind = 'new'",
        msgspec.json.encode(new).decode(),
    )
    body = msgspec.msgpack.encode(([row_of(make_job(id=5, attempt=3), new)], []))
    crashed.run("INSERT INTO write_buffer (body) VALUES (?)", body)

    found = (await crashed.jobs())[5]

    assert (found.attempt, found.worker) == (3, None)


async def test_an_old_file_without_a_write_buffer_opens(path: Path) -> None:
    make_old_file(path, 1)
    store = SqliteStore(path)

    await store.open()
    await put(store, make_job(id=1))
    await store.close()
    await store.open()

    assert await listed(store) == [1]
    await store.close()


def test_the_columns_of_a_schedule_are_its_first_fields() -> None:
    assert rows.SCHEDULE.inserted[-2:] == ("name", "elapsed")
    assert Schedule.__slots__[-2:] == ("active", "blocked")
