"""The inbox of a store in PostgreSQL: what `enqueue` accepts, and what a reader finds when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from schedo.core.changes import Changes
from schedo.core.ids import is_from_sql, newest_at, parse_id
from schedo.core.limits import DAY, HOUR
from schedo.core.model import Queue
from schedo.core.shards import SHARDS, shard_of
from schedo.errors import StoreRefused
from schedo.protocol.jobs import JobRequest
from schedo.protocol.times import parse_duration
from schedo.store.inbox import find_inbox
from schedo.store.postgres.store import PostgresStore
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.steps import of_jobs


@pytest.fixture
async def store(postgres_store_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_store_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def client(
    store: PostgresStore, postgres_store_url: str
) -> AsyncIterator[asyncpg.Connection]:
    async with connected(postgres_store_url) as connection:
        yield connection


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session of a client that finds the functions of the store."""
    (schema,) = parse_qs(urlsplit(url).query)["schema"]
    plain = url.replace(f"schema={schema}", "").rstrip("?&")
    connection = await asyncpg.connect(plain, server_settings={"search_path": schema})
    try:
        yield connection
    finally:
        await connection.close()


async def enqueue(client: asyncpg.Connection, arguments: str = "task => 'mail'") -> str:
    return str(await client.fetchval(f"SELECT enqueue({arguments})"))


async def take_once(store: PostgresStore) -> list[dict[str, Any]]:
    """Read and commit the next rows; return their specs."""
    rows = await store.inbox.read()
    jobs = [make_job(id=row.id) for row in rows]
    await store.commit(taken(of_jobs(*jobs), [row.id for row in rows]))
    return [json.loads(row.spec) for row in rows]


async def take(store: PostgresStore) -> list[dict[str, Any]]:
    """Read and commit until nothing is left, as a server does; return the specs."""
    found = []
    while specs := await take_once(store):
        found += specs
    return found


def taken(changes: Changes, ids: Sequence[int]) -> Changes:
    changes.taken_in += ids
    return changes


async def test_the_arguments_become_the_body_of_a_submit(
    store: PostgresStore, client: asyncpg.Connection
) -> None:
    await enqueue(
        client,
        """task => 'mail', payload => '{"to": [null, "ann"]}', queue => 'slow',
        run_at => '2027-01-15 10:00:00.25+02', priority => -3, unique_key => 'a',
        options => '{"tags": ["x"], "retry": {"max_attempts": 2}}'""",
    )
    await enqueue(client, "task => 'mail', delay => interval '1 day 2.5 s'")
    await enqueue(client)

    assert await take(store) == [
        {
            "task": "mail",
            "payload": {"to": [None, "ann"]},
            "queue": "slow",
            "run_at": "2027-01-15T08:00:00.250000Z",
            "priority": -3,
            "unique": "a",
            "tags": ["x"],
            "retry": {"max_attempts": 2},
        },
        {"task": "mail", "delay": "86402.500000s"},
        {"task": "mail"},
    ]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("task => NULL", "enqueue: task: a name"),
        ("task => '-x'", "enqueue: task: a name"),
        ("task => '..'", "enqueue: task: a name"),
        ("task => 'x', queue => 'a b'", "enqueue: queue: a name"),
        ("task => 'x', queue => '.'", "enqueue: queue: a name"),
        ("task => 'x', run_at => now(), delay => '1s'", "enqueue: delay: give run_at or delay"),
        ("task => 'x', run_at => 'infinity'", "enqueue: run_at: an instant is in the years"),
        ("task => 'x', delay => '-1 ms'", "enqueue: delay: it is negative"),
        ("task => 'x', delay => '101 years'", "enqueue: delay: it is more than 100 years"),
        ("task => 'x', priority => 10", "enqueue: priority: it is a number from -9 to 9"),
        ("task => 'x', unique_key => ''", "enqueue: unique_key: a key has 1 to 255 characters"),
        (
            """task => 'x', unique_key => 'a', options => '{"unique": "b"}'""",
            "enqueue: unique_key: give it or the option unique",
        ),
        ("task => 'x', options => '[]'", "enqueue: options: it is a JSON object"),
        (
            """task => 'x', options => '{"retries": 3}'""",
            "enqueue: options: 'retries' is none of delivery, ",
        ),
        (
            """task => 'x', options => '{"queue": "q"}'""",
            "enqueue: options: 'queue' is an argument of its own",
        ),
    ],
)
async def test_a_wrong_argument_is_named_and_inserts_nothing(
    store: PostgresStore, client: asyncpg.Connection, arguments: str, error: str
) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match=f"^{error}"):
        await enqueue(client, arguments)

    assert await take(store) == []


@pytest.mark.parametrize(
    ("delay", "us"),
    [
        ("0", 0),
        ("0.000001 s", 1),
        ("1 month", 30 * DAY),
        ("1 day -1 hour", 23 * HOUR),
        ("32 years 3 us", 32 * 365.25 * DAY + 3),
        ("100 years", 36_525 * DAY),
    ],
)
async def test_a_server_understands_each_delay_that_the_function_accepts(
    store: PostgresStore, client: asyncpg.Connection, delay: str, us: int
) -> None:
    await enqueue(client, f"task => 'x', delay => '{delay}'")

    (spec,) = await take(store)

    assert parse_duration(spec["delay"]) == us


async def test_the_options_are_those_of_a_submit(client: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError) as caught:
        await enqueue(client, """task => 'x', options => '{"no": 1}'""")

    listed = str(caught.value).partition("is none of ")[2].split(", ")
    arguments = {"task", "payload", "queue", "run_at", "delay", "priority"}
    assert {*listed} == {*JobRequest.__struct_fields__} - arguments - {"broadcast"}


async def test_a_job_is_in_the_shard_of_its_key_or_its_limited_queue_or_in_any(
    store: PostgresStore, client: asyncpg.Connection
) -> None:
    await store.commit(Changes(queues={"one": Queue("one", concurrency=1), "all": Queue("all")}))
    for arguments in (
        "'x', queue => 'one'",
        "'x', queue => 'one', unique_key => 'k'",
        "'x', queue => 'all', unique_key => 'k'",
        """'x', options => '{"unique": {"key": "k", "for": "1h"}}'""",
        """'x', options => '{"unique": "k"}'""",
    ):
        await enqueue(client, arguments)
    await client.execute("SELECT enqueue('x', queue => 'all') FROM generate_series(1, 100)")

    shards = [shard for (shard,) in await client.fetch("SELECT shard FROM inbox ORDER BY id")]

    assert shards[:5] == [shard_of("one"), *[shard_of("k")] * 4]
    assert {*shards[5:]} <= {*range(SHARDS)}
    assert len({*shards[5:]}) > 1
    store.inbox._shards = [shard_of("one")]
    assert len(await store.inbox.read()) == shards.count(shard_of("one"))


async def test_ids_grow_over_all_sessions_and_say_when_they_were_made(
    store: PostgresStore, postgres_store_url: str
) -> None:
    async with connected(postgres_store_url) as first, connected(postgres_store_url) as second:
        before = await first.fetchval("SELECT clock_timestamp()")
        ids = [await enqueue(each) for _ in range(30) for each in (first, second)]
        ids += await first.fetchval("SELECT array_agg(enqueue('x')) FROM generate_series(1, 50)")
        after = await first.fetchval("SELECT clock_timestamp()")
        many = await asyncio.gather(
            *(
                each.fetchval("SELECT array_agg(enqueue('x')) FROM generate_series(1, 500)")
                for each in (first, second)
            )
        )

    numbers = [parse_id(each) for each in ids]
    assert numbers == sorted({*numbers})
    assert all(map(is_from_sql, numbers))
    assert before.timestamp() * 1e6 <= newest_at(numbers[0]) + 1
    assert newest_at(numbers[-1]) <= after.timestamp() * 1e6 + 1
    assert len({each for ids in many for each in ids}) == 1_000


async def test_an_id_is_never_given_again_after_the_clock_was_set_back(
    store: PostgresStore, client: asyncpg.Connection
) -> None:
    ahead = 4_000_000 * 4_000_000_000  # in the year 2096
    await client.execute("SELECT setval('inbox_number', $1)", ahead)

    first, second = await enqueue(client), await enqueue(client)

    assert parse_id(first) == (ahead + 1) * 64 + 62
    assert parse_id(second) == (ahead + 2) * 64 + 62


async def test_a_rolled_back_row_never_comes(
    store: PostgresStore, client: asyncpg.Connection
) -> None:
    async with client.transaction():
        await enqueue(client, "'kept'")
        savepoint = client.transaction()
        await savepoint.start()
        await enqueue(client, "'undone'")
        await savepoint.rollback()

    assert await take(store) == [{"task": "kept"}]


async def test_rows_of_a_transaction_that_stays_open_come_when_it_ends(
    store: PostgresStore, client: asyncpg.Connection, postgres_store_url: str
) -> None:
    async with connected(postgres_store_url) as slow:
        transaction = slow.transaction()
        await transaction.start()
        await enqueue(slow, "'early'")
        await enqueue(client, "'late'")
        assert await take(store) == [{"task": "late"}]
        await enqueue(slow, "'last'")
        assert await take(store) == []

        await transaction.commit()

    assert await take(store) == [{"task": "early"}, {"task": "last"}]
    assert await take(store) == []


async def test_a_row_that_has_become_a_job_before_fails_the_whole_commit(
    store: PostgresStore, client: asyncpg.Connection
) -> None:
    await enqueue(client)
    (row,) = await store.inbox.read()
    await store.commit(taken(of_jobs(make_job(id=row.id)), [row.id]))

    with pytest.raises(StoreRefused, match="1 of 1 updated"):
        await store.commit(taken(of_jobs(make_job(id=5)), [row.id]))

    assert await store.get_job(5) is None
    assert await store.inbox.find(row.id) is None


async def test_rows_that_someone_has_deleted_meanwhile_are_named_when_they_fail_a_commit(
    store: PostgresStore, client: asyncpg.Connection
) -> None:
    await client.execute("SELECT enqueue('mail') FROM generate_series(1, 3)")
    ids = [row.id for row in await store.inbox.read()]
    await client.execute("DELETE FROM inbox WHERE id = $1", ids[1])

    with pytest.raises(StoreRefused) as caught:
        await store.commit(taken(of_jobs(*(make_job(id=each) for each in ids)), ids))

    assert caught.value.jobs == {ids[1]: "its row is not in the inbox any more"}
    assert len(await take(store)) == 0
    store.inbox.restart()
    assert len(await take(store)) == 2


async def test_a_role_needs_the_function_and_no_table(
    store: PostgresStore, client: asyncpg.Connection, postgres_store_url: str
) -> None:
    schema = await client.fetchval("SELECT current_schema()")
    await client.execute(
        f"""DROP ROLE IF EXISTS shop; CREATE ROLE shop; GRANT USAGE ON SCHEMA {schema} TO shop;
        SET ROLE shop"""
    )
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="function enqueue"):
            await enqueue(client)
        await client.execute("RESET ROLE; GRANT EXECUTE ON FUNCTION enqueue TO shop; SET ROLE shop")
        await client.execute("CREATE TEMP TABLE inbox (id bigint, spec text)")
        await enqueue(client, "'mail'")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="table job"):
            await client.execute("SELECT * FROM job")
        assert await client.fetchval("SELECT count(*) FROM pg_temp.inbox") == 0
        assert await take(store) == [{"task": "mail"}]
    finally:
        await client.execute("RESET ROLE; DROP OWNED BY shop; DROP ROLE shop")


async def test_a_client_announces_its_jobs_only_if_it_wants(
    store: PostgresStore, client: asyncpg.Connection
) -> None:
    heard = asyncio.Event()
    store.inbox.notify = heard.set
    await enqueue(client)
    await client.execute("SET schedo.notify = off")
    await enqueue(client)
    await store.session_key()  # the session that listens has answered since
    assert not heard.is_set()

    await client.execute("SET schedo.notify = on")
    await enqueue(client)

    await asyncio.wait_for(heard.wait(), 10)


def test_a_file_has_no_inbox() -> None:
    assert find_inbox(SqliteStore(":memory:")) is None
