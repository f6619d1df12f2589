"""What the commits of several servers do to each other in PostgreSQL: nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import asyncpg
import pytest

from schedo.core.changes import AttemptRecord, Changes, IdempotencyRecord
from schedo.core.ends import Alike, Kind
from schedo.core.limit_shares import LimitUse
from schedo.core.limits import DAY, HOUR
from schedo.core.model import Queue
from schedo.core.shards import shard_of
from schedo.core.states import State
from schedo.core.tallies import Dimension, TallyFilter
from schedo.engine.tallies import TallyBook
from schedo.store.base import Retention
from schedo.store.cluster import Claim
from schedo.store.postgres.store import PostgresStore
from tests.factories import make_job
from tests.postgres import PostgresServer, running_server
from tests.store.servers import LONG_US, due, follow, kill, sharing
from tests.store.steps import put

COMMITS = 50


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        server.set(log_statement="'all'", log_lock_waits="on", deadlock_timeout="'1ms'")
        yield server


async def work(store: PostgresStore, first: int) -> None:
    """Commit new jobs, and the ends of those before."""
    no = store.cluster.me.no
    for number in range(first, first + COMMITS):
        job = make_job(id=number * 64 + no, unique_key=f"{no} {number}")
        await put(store, job)
        await put(store, make_job(id=job.id, state=State.COMPLETED, is_new=False))


async def test_commits_notify_nobody_and_wait_for_no_lock(server: PostgresServer) -> None:
    log = server.directory / "log"
    async with sharing(server.url(schema="jobs"), 2, LONG_US) as stores:
        before = log.stat().st_size
        await asyncio.gather(*(work(store, 1) for store in stores))
        text = log.read_bytes()[before:].decode()

    assert text.count("INSERT INTO job (") == 2 * 2 * COMMITS  # one statement a commit
    assert not re.search("notify", text, re.IGNORECASE)
    # The session that watches another server waits for its advisory lock, as it should.
    waits = [each for each in text.splitlines() if "still waiting for" in each]
    assert [each for each in waits if "advisory lock" not in each] == []


async def blocked(server: PostgresServer, count: int = 1) -> None:
    """Wait until this number of sessions wait for a row that another transaction has changed."""
    waits = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND wait_event <> 'advisory'"
    )
    async with asyncio.timeout(30):
        while int(await asyncio.to_thread(server.sql, waits)) < count:
            pass


async def test_a_key_that_is_used_again_while_its_old_record_is_deleted_keeps_the_new_one(
    server: PostgresServer,
) -> None:
    """Else a repetition of the acknowledged request would be carried out once more."""
    old = IdempotencyRecord("key", b"1", 201, b"old", 0)
    async with sharing(server.url(schema="keys"), 1) as (store,):
        await store.commit(Changes(idempotency_records=[old]))
        other = await asyncpg.connect(server.url(), server_settings={"search_path": "keys"})
        async with other.transaction():
            await other.execute("UPDATE idempotency_record SET created_at = $1", 2 * DAY)
            pruning = asyncio.ensure_future(store.prune(2 * DAY, Retention(), 100))
            await blocked(server)
        await pruning
        await other.close()

        assert await store.find_idempotency_record("key", b"1") is not None


async def test_servers_that_claim_and_give_shares_of_many_queues_do_not_block_each_other(
    server: PostgresServer,
) -> None:
    """They know the queues in different orders. A lock of a third one makes both go on together."""
    async with sharing(server.url(schema="shares"), 2, LONG_US) as (home, other):
        names = (name for k in range(999) if home.cluster.is_mine(shard_of(name := f"q{k:03}")))
        first, last, between = (next(names) for _ in range(3))
        await home.commit(Changes(queues={q: Queue(q, 9) for q in (first, last, between)}))
        await due(other)
        await follow(other)
        order = (last, between, first)
        await other.cluster.limits.claim({queue: Claim(1, 0, 0) for queue in order})
        session = await asyncpg.connect(server.url(), server_settings={"search_path": "shares"})
        uses = {q: LimitUse(9, 0, 0, 0) for q in (first, last)}
        async with session.transaction():
            await session.execute("UPDATE queue_share SET held = held WHERE queue = $1", between)
            more = {queue: Claim(2, 0, 0) for queue in order}
            claiming = asyncio.ensure_future(other.cluster.limits.claim(more))
            await blocked(server)
            dividing = asyncio.ensure_future(home.cluster.limits.divide(uses, 0, lambda _: uses))
            await blocked(server, 2)
        await session.close()

        found = await asyncio.gather(claiming, dividing, return_exceptions=True)

        assert [each for each in found if isinstance(each, BaseException)] == []


async def test_a_stricter_isolation_that_is_the_default_of_the_database_fails_no_commit(
    server: PostgresServer,
) -> None:
    """Each change of a queue raises one number, which another server may change at the time."""
    server.sql("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
    try:
        async with sharing(server.url(schema="strict"), 1, LONG_US) as (store,):
            await store.commit(Changes(queues={"a": Queue("a")}))
            other = await asyncpg.connect(server.url(), server_settings={"search_path": "strict"})
            async with other.transaction():
                await other.execute("UPDATE meta SET value = value + 1 WHERE name = 'settings'")
                change = asyncio.ensure_future(store.commit(Changes(queues={"b": Queue("b")})))
                await blocked(server)
            await other.close()

            await change
    finally:
        server.sql("ALTER DATABASE postgres RESET default_transaction_isolation")


MAIL: Kind = (1, "mail", "default", None, "completed")
ENDED = Alike()
ENDED.count = 1


async def count_mail(book: TallyBook, store: PostgresStore) -> int:
    found = await book.read(store, TallyFilter(Dimension.TASK, 0, DAY))
    return found[0]["mail"].counts["completed"]


async def save_and_lose(
    book: TallyBook, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Save the tallies; PostgreSQL commits them, and the session ends before the response."""
    execute, lost = asyncpg.Connection.execute, list[str]()

    async def execute_and_lose(
        connection: asyncpg.Connection, query: str, *parameters: object
    ) -> str:
        status: str = await execute(connection, query, *parameters)
        if "COMMIT" in query:
            connection.terminate()
            lost.append(query)
            raise ConnectionResetError
        return status

    book.add({MAIL: ENDED})
    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "execute", execute_and_lose)
        await book.save(store, HOUR)
    assert len(lost) == 1


async def test_tallies_count_once_although_their_session_ends_behind_the_commit(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server cannot know whether the commit took effect, and saves them again."""
    book = TallyBook()
    async with sharing(server.url(schema="tallies"), 1, LONG_US) as (store,):
        await save_and_lose(book, store, monkeypatch)
        await store.snapshot()
        book.add({MAIL: ENDED})

        before = await count_mail(book, store)
        await book.save(store, HOUR)

        assert (before, await count_mail(book, store)) == (2, 2)


async def test_tallies_count_once_although_another_server_has_the_number_meanwhile(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, next_book = TallyBook(), TallyBook()
    url = server.url(schema="numbers")
    async with sharing(url, 1, LONG_US) as (store,), sharing(url, 0) as others:
        await save_and_lose(book, store, monkeypatch)
        kill(store)
        others.append(PostgresStore(url, LONG_US))
        await others[0].open()
        next_book.add({MAIL: ENDED})
        await next_book.save(others[0], HOUR)
        await store.snapshot()

        found = await count_mail(book, store)

        assert (others[0].cluster.me.no, store.cluster.me.no) == (1, 2)
        assert found == 2


async def test_the_mark_of_a_server_that_has_ended_is_kept_for_a_week(
    server: PostgresServer,
) -> None:
    async with sharing(server.url(schema="marks"), 1, LONG_US) as (store,):
        for day in range(1, 11):
            store.cluster.first_epoch = day
            await store.add_tallies({}, day * DAY, 7 * day)
            await store.add_tallies({}, day * DAY + HOUR, day)
        writer = store._require_writer()

        kept = await writer.run(
            lambda c: c.fetch("SELECT value FROM meta WHERE name LIKE 'tallied%' ORDER BY value")
        )

        assert [value for (value,) in kept] == [*range(3, 11)]


async def test_a_late_result_of_a_job_of_another_server_leaves_no_record(
    postgres_store_url: str,
) -> None:
    """Its owner may write a record at the same time, with the same number."""
    async with sharing(postgres_store_url, 2) as (first, second):
        await put(first, make_job(id=1))
        await put(second, make_job(id=2))
        late = [AttemptRecord(job_id, 1, 1, None, None, 1, "stale", None) for job_id in (1, 2)]

        await second.commit(Changes(attempts=late))

        assert await second.list_attempts(1) == []
        assert [each.outcome for each in await second.list_attempts(2)] == ["stale"]
