"""What a server with a store in PostgreSQL has ready, so that a take-over does not wait for it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from schedo.core.loads import LoadSchedules, LoadTimers
from schedo.core.paged_index import START
from schedo.store.postgres import loads, reads, session, snapshots
from schedo.store.postgres.address import parse_address
from schedo.store.postgres.control import TAKEN, Control
from schedo.store.postgres.session import Readers
from schedo.store.postgres.store import PostgresStore
from tests.factories import make_job
from tests.postgres import USER, PostgresServer, running_server
from tests.store.servers import silence
from tests.store.steps import listed, put

PLANNED = "SELECT statement, custom_plans FROM pg_prepared_statements"
PREPARED = "SELECT statement FROM pg_prepared_statements"
READING = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '% reads'"
DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
async def store(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(server.url(schema="jobs"))
    await store.open()
    yield store
    await store.close()
    server.sql("DROP SCHEMA jobs CASCADE")


def writing(store: PostgresStore) -> asyncpg.Connection:
    assert store._writer is not None
    return store._writer.connection


async def test_a_server_may_be_of_a_user_who_cannot_end_the_sessions_of_a_silent_one(
    store: PostgresStore, server: PostgresServer
) -> None:
    """It waits for the end of the session, and its own heartbeats go on."""
    await store._control.close()
    silent = store.cluster.me._replace(silent_us=1_000_000)
    server.sql(
        "UPDATE jobs.server SET timeout_us = 1; CREATE ROLE other LOGIN;"
        " GRANT USAGE ON SCHEMA jobs TO other; GRANT pg_read_all_stats TO other;"
        " GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA jobs TO other"
    )
    try:
        url = server.url(schema="jobs").replace(f"//{USER}@", "//other@")
        control = Control(parse_address(url), "other", store.cluster)
        await control.connect()

        assert not await control._take_over(silent, 0.0)

        assert await store._require_writer().run(lambda c: c.fetchval("SELECT 1")) == 1
        await control.close()
    finally:
        server.sql("DROP OWNED BY other; DROP ROLE other")


async def test_a_server_looks_again_when_another_one_has_taken_shards_and_not_after_its_own_take(
    store: PostgresStore, server: PostgresServer
) -> None:
    silence(store)
    control = store._control
    other = Control(parse_address(server.url(schema="jobs")), "other", store.cluster)
    await other.connect()

    async def is_woken(sender: Control, what: str) -> bool:
        control._wake.clear()
        await sender.notify(what)
        await control._fetch("SELECT 1")  # notifications come before the response
        return control._wake.is_set()

    assert not await is_woken(control, TAKEN)
    assert await is_woken(other, TAKEN)
    assert await is_woken(control, "")  # as after it has given shards away
    await other.close()


async def prepared(connection: asyncpg.Connection) -> str:
    return texts(await connection.fetch(PREPARED))


def texts(rows: list[asyncpg.Record]) -> str:
    return "\n".join(text for (text,) in rows)


async def until_reading(server: PostgresServer, count: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await asyncio.to_thread(server.sql, READING) != str(count):
            pass


async def test_a_take_over_finds_its_statements_prepared(store: PostgresStore) -> None:
    statements = texts(await store._control._fetch(PREPARED))

    assert "SELECT take_over(" in statements
    assert "SELECT pg_terminate_backend(writer_pid)" in statements


async def test_the_first_commit_finds_its_statements_prepared(store: PostgresStore) -> None:
    before = await prepared(writing(store))

    await put(store, make_job(id=1))

    assert "INSERT INTO job (" in before
    assert await prepared(writing(store)) == before


async def test_each_statement_is_planned_once(store: PostgresStore) -> None:
    await store.snapshot()
    await store.load(LoadTimers(START, 10))

    planned_again = dict(await writing(store).fetch(PLANNED))

    assert planned_again[snapshots._READ] == 0
    assert planned_again[loads._TIMERS] == 0


@pytest.mark.parametrize(
    ("index", "statement"),
    [
        ("job_timers", loads._TIMERS),
        ("job_timers", loads._PROMOTE),
        ("job_ready", loads._READY),
        ("job_expires", loads._EXPIRED),
        ("job_state", reads.RUNNING),
        ("job_state", reads.BLOCKED),
        ("job_unique", reads.UNIQUE),
        ("job_active", reads._ACTIVE),
        ("schedule_next", reads._SCHEDULES),
    ],
)
async def test_the_plan_for_any_parameters_has_the_index(
    store: PostgresStore, index: str, statement: str
) -> None:
    connection = writing(store)
    count = max(map(int, re.findall(r"\$(\d+)", statement)))
    await connection.execute(f"PREPARE asked AS {statement}")

    plan = texts(await connection.fetch(f"EXPLAIN EXECUTE asked({', '.join(['NULL'] * count)})"))

    assert f"using {index}" in plan
    assert "Seq Scan on job" not in plan
    assert "Seq Scan on schedule" not in plan


async def test_a_snapshot_is_one_statement(store: PostgresStore) -> None:
    asked: list[str] = []
    with writing(store).query_logger(lambda query: asked.append(query.query)):
        await store.snapshot()

    assert len(asked) == 1


async def test_a_page_without_schedules_is_one_statement(store: PostgresStore) -> None:
    asked: list[str] = []
    with writing(store).query_logger(lambda query: asked.append(query.query)):
        assert await store.load(LoadSchedules(START, 10)) == []

    assert len(asked) == 1


async def test_counts_and_reads_share_a_session(
    store: PostgresStore, server: PostgresServer
) -> None:
    await put(store, make_job(id=1))
    epoch = (await store.snapshot()).epoch  # its count takes the place of the one before
    await store.count_waiting(epoch)
    assert await listed(store) == [1]

    assert server.sql(READING) == "1"


async def test_spare_sessions_are_closed_and_one_is_left(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SPARE_S", 0.01)
    readers = Readers(parse_address(server.url(schema="public")), "tests reads")
    async with readers.session() as one, readers.session(), readers.session():
        assert server.sql(READING) == "3"
        kept = one.get_server_pid()

    await until_reading(server, 1)

    async with readers.session() as left:
        assert left.get_server_pid() == kept
    await readers.close()
    await until_reading(server, 0)
