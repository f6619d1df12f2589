"""What a store in PostgreSQL does when its server, session or schema is not as it should be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from schedo.core.changes import AttemptRecord, Changes
from schedo.core.model import Options, Queue
from schedo.core.states import State
from schedo.errors import (
    Exit,
    StoreBroken,
    StoreError,
    StoreRefused,
    StoreUnsuitable,
    exit_of_server,
)
from schedo.store.postgres import schema, session
from schedo.store.postgres.errors import ends_session, store_error
from schedo.store.postgres.store import PostgresStore
from tests.factories import make_job
from tests.postgres import PostgresServer, refused, running_server
from tests.store.servers import kill
from tests.store.steps import counted, listed, of_jobs, put

SCHEMA = "schema=jobs"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    yield server.url(schema="jobs")
    server.sql("DROP SCHEMA IF EXISTS jobs CASCADE")


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    yield store
    await store.close()


def writer_pid(store: PostgresStore) -> int:
    assert store._writer is not None
    return store._writer.pid


async def test_the_store_of_a_dead_process_is_free(store: PostgresStore, url: str) -> None:
    await put(store, make_job(id=1))
    kill(store)
    other = PostgresStore(url)

    snapshot = await other.open()

    assert snapshot.was_killed
    assert await listed(other) == [1]
    await other.close()


async def test_a_server_that_ends_in_order_was_not_killed(url: str) -> None:
    store = PostgresStore(url)
    for _ in range(2):
        assert not (await store.open()).was_killed
        await store.recovered()
        await store.close()


async def test_a_server_that_ends_before_it_has_recovered_leaves_the_recovery_to_the_next(
    store: PostgresStore, url: str
) -> None:
    kill(store)
    other = PostgresStore(url)

    for _ in range(2):
        assert (await other.open()).was_killed
        await other.close()
    await other.open()
    await other.recovered()
    await other.close()

    assert not (await other.open()).was_killed
    await other.close()


async def test_a_server_that_leaves_counts_as_ended_even_if_it_is_killed(
    store: PostgresStore, url: str
) -> None:
    store.note_leaving()
    await put(store, make_job(id=1))
    kill(store)
    other = PostgresStore(url)

    assert not (await other.open()).was_killed
    await other.close()


async def test_a_store_goes_on_with_a_new_session_after_its_own_was_ended(
    store: PostgresStore, server: PostgresServer
) -> None:
    await put(store, make_job(id=1))
    server.sql(f"SELECT pg_terminate_backend({writer_pid(store)})")

    with pytest.raises(StoreError):
        await put(store, make_job(id=2))
    before = (await store.snapshot()).epoch
    await put(store, make_job(id=3))

    assert await listed(store) == [3, 1]
    assert (await store.snapshot()).epoch == before + 1


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_what_was_committed_survives_a_restart_of_the_server(
    store: PostgresStore, server: PostgresServer, mode: str
) -> None:
    await put(store, *(make_job(id=n) for n in range(1, 50)))
    server.stop(mode)  # type: ignore[arg-type]

    with pytest.raises(StoreError):
        await store.commit(of_jobs(make_job(id=90)))
    with pytest.raises(StoreError, match="cannot connect"):
        await store.snapshot()
    server.start()
    snapshot = await store.snapshot()

    assert snapshot.last_id == 49
    assert len(await listed(store)) == 49
    await put(store, make_job(id=90))


async def test_a_store_without_its_lock_must_end(store: PostgresStore) -> None:
    await store.check()
    assert store._writer is not None
    await store._writer.run(lambda session: session.execute("SELECT pg_advisory_unlock_all()"))

    with pytest.raises(StoreBroken, match="lost its lock"):
        await store.check()


async def test_a_refused_commit_names_the_jobs_that_brought_the_values(
    store: PostgresStore,
) -> None:
    await put(store, make_job(id=1, unique_key="k"))
    changes = of_jobs(
        make_job(id=2, worker="\0"), make_job(id=3), make_job(id=4, attempt=2**63), make_job(id=5)
    )
    changes.jobs[5].unique_key = "k"
    changes.attempts = [AttemptRecord(3, 1, 1, None, None, 2**63, "failed", None)]

    with pytest.raises(StoreRefused) as caught:
        await store.commit(changes)

    assert {*caught.value.jobs} == {2, 3, 4, 5}
    assert await listed(store) == [1]


async def test_a_commit_that_cannot_be_encoded_names_the_jobs_that_brought_the_values(
    store: PostgresStore,
) -> None:
    changes = of_jobs(
        make_job(id=2, options=Options(tags=("\ud800",))),
        make_job(id=3),
        make_job(id=4, options=Options(meta={"a": object()})),
    )

    with pytest.raises(StoreRefused, match="in 2 of its jobs") as caught:
        await store.commit(changes)

    assert {*caught.value.jobs} == {2, 4}
    assert await listed(store) == []


async def test_a_commit_goes_on_when_its_caller_is_cancelled(store: PostgresStore) -> None:
    task = asyncio.create_task(store.commit(of_jobs(make_job(id=1))))
    await asyncio.wait([task], timeout=0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert (await store.snapshot()).last_id == 1


async def test_the_schema_of_a_newer_version_is_refused_unless_this_one_may_read_it(
    store: PostgresStore, server: PostgresServer, url: str
) -> None:
    await store.close()
    newest = schema.list_migrations()[-1].number
    server.sql(f"UPDATE jobs.meta SET value = {newest + 1} WHERE name = 'schema'")
    await store.open()
    await store.close()

    server.sql(f"UPDATE jobs.meta SET value = {newest + 1} WHERE name = 'reads_from'")

    error = await refused(url, "was migrated by a newer schedo")
    assert isinstance(error, StoreUnsuitable)


async def test_the_tables_of_another_program_are_not_touched(
    server: PostgresServer, url: str
) -> None:
    server.sql("CREATE SCHEMA jobs CREATE TABLE job (id int)")

    await refused(url, "has tables of another program")

    assert server.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'jobs'") == "1"


async def test_migrations_run_in_order_and_once(url: str, tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").write_text(
        "-- schedo: reads_from=1\nCREATE TABLE meta (name text PRIMARY KEY, value bigint);"
        "CREATE TABLE job (id int); CREATE TABLE server (id int);"
    )
    store = PostgresStore(url)
    connection = await asyncpg.connect(store._address.url)
    await connection.execute("SET search_path = jobs")

    async def run() -> tuple[int, int]:
        return await schema.migrate(connection, store._address, tmp_path)

    assert await run() == (0, 1)
    (tmp_path / "0002_b.sql").write_text(
        "-- schedo: reads_from=1\nALTER TABLE job ADD COLUMN a int;"
    )
    (tmp_path / "0003_c.sql").write_text("-- schedo: reads_from=3\nnonsense;")
    schema.list_migrations.cache_clear()
    with pytest.raises(asyncpg.PostgresSyntaxError):
        await run()
    (tmp_path / "0003_c.sql").unlink()
    schema.list_migrations.cache_clear()
    assert await run() == (1, 2)
    assert await run() == (2, 2)
    schema.list_migrations.cache_clear()
    await connection.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("_LOCK_TIMEOUT", "SET LOCAL lock_timeout = '50ms'"), ("LONG_S", 0.0)],
    ids=["it has just begun", "it has begun before"],
)
async def test_a_migration_that_would_have_to_wait_for_a_backup_stops_no_server(
    store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    for migration in schema.DIRECTORY.iterdir():
        (tmp_path / migration.name).write_bytes(migration.read_bytes())
    (tmp_path / "9999_later.sql").write_text(
        "-- schedo: reads_from=1\nALTER TABLE job ADD COLUMN later int;"
    )
    monkeypatch.setattr(schema, name, value)
    backup = await asyncpg.connect(
        store._address.url, server_settings={"application_name": "pg_dump"}
    )
    await backup.execute("BEGIN; SELECT FROM jobs.job")
    await store.count_waiting(1)  # it reads the tables, too

    connection = await session.connect(store._address, "a later version")
    try:
        with pytest.raises(StoreError, match="cannot be migrated while pg_dump ") as raised:
            await schema.migrate(connection, store._address, tmp_path)
        await put(store, make_job(id=1))
    finally:
        await backup.close()

    assert exit_of_server(raised.value) == Exit.BROKEN  # a supervisor starts it again
    newest = (await schema.migrate(connection, store._address, tmp_path)).after
    assert newest == 9_999
    await connection.close()


async def test_a_backup_and_a_standby_are_refused_with_what_to_use(store: PostgresStore) -> None:
    with pytest.raises(StoreUnsuitable, match="pg_dump"):
        await store.backup(lambda: 0)
    with pytest.raises(StoreUnsuitable, match="start another server"):
        await store.prepare()


async def test_the_health_names_the_transaction_that_keeps_dead_rows(
    store: PostgresStore, url: str, server: PostgresServer
) -> None:
    await counted(store)  # a count keeps what was there when it began
    await put(store, *(make_job(id=n) for n in range(1, 30)))
    other = await asyncpg.connect(
        store._address.url, server_settings={"application_name": "report"}
    )
    await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    await other.fetchval("SELECT count(*) FROM jobs.job")
    for number in range(1, 30):
        job = make_job(id=number, state=State.COMPLETED)
        job.is_new = False
        await put(store, job)
    server.sql("ANALYZE jobs.job")

    health = await store.database_health()
    await other.close()

    table = next(each for each in health.tables if each.name == "job")
    assert (table.live_rows, table.dead_rows >= 29, table.size_bytes > 0) == (29, True, True)
    assert health.oldest_snapshot is not None
    assert str(health.oldest_snapshot) == f"the session 'report' (pid {other.get_server_pid()})"
    assert health.oldest_snapshot.transactions >= 29
    assert health.longest_transaction is not None
    assert health.longest_transaction.name == "report"
    assert (await store.database_health()).oldest_snapshot is None


def test_a_session_that_the_server_ends_is_reported_as_that() -> None:
    error = asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is …")

    assert str(store_error(error, "db")) == "the store db failed: PostgreSQL ends the session"
    assert ends_session(error)


def test_the_hint_of_postgresql_is_in_the_line_of_its_error() -> None:
    fields = {"S": "ERROR", "C": "53100", "M": "could not extend a file", "H": "Check the disk."}
    error = asyncpg.PostgresError.new(fields)

    said = "there is no room left for db: could not extend a file; HINT: Check the disk."
    assert str(store_error(error, "db")) == said


async def test_an_empty_commit_needs_no_server(store: PostgresStore) -> None:
    await store.commit(Changes())
    await store.commit(Changes(queues={"a": Queue("a")}))

    assert (await store.snapshot()).queues == [Queue("a")]


async def test_a_session_for_the_count_that_is_lost_at_its_begin_is_an_error_of_the_store(
    store: PostgresStore, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other error would count as a bug of the engine, and several would end the process."""
    readers = store._require_readers()
    take = readers.take

    async def take_one_that_ends() -> asyncpg.Connection:
        connection = await take()
        server.sql(f"SELECT pg_terminate_backend({connection.get_server_pid()}, 10000)")
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(readers, "take", take_one_that_ends)
        with pytest.raises(StoreError):
            await store.snapshot()

    await store.snapshot()
    assert await counted(store) == {}


async def test_a_session_that_is_lost_while_it_opens_is_an_error_of_the_store(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: asyncpg.Connection) -> None:
        raise OSError("the socket is closed")

    monkeypatch.setattr(session, "_notice_silence", fail)

    await refused(url, "cannot connect to .*: the socket is closed")
