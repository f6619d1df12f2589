"""A PostgreSQL that responds to nothing, as one that is stopped or cut off."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import count
from typing import Any

import asyncpg
import pytest

from schedo.core.job_filter import JobFilter
from schedo.errors import StoreError
from schedo.store.postgres import control as control_module
from schedo.store.postgres import membership, session
from schedo.store.postgres import watch as watch_module
from schedo.store.postgres.address import parse_address
from schedo.store.postgres.control import Control
from schedo.store.postgres.membership import since_boot_s
from schedo.store.postgres.store import PostgresStore
from schedo.store.postgres.watch import NeighbourWatch
from tests.e2e.cluster.link import Link
from tests.factories import make_job
from tests.postgres import USER, PostgresServer, running_server
from tests.store.servers import DEADLINE_S, until
from tests.store.steps import put

SHORT_S = 0.2
OF_STORE = "application_name LIKE '%schedo%' AND pid <> pg_backend_pid()"
_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
async def link(server: PostgresServer) -> AsyncIterator[Link]:
    link = Link(partial(asyncio.open_unix_connection, server.socket))
    await link.open()
    yield link
    link.heal()
    await link.close()


@pytest.fixture
async def store(link: Link, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    monkeypatch.setattr(session, "SILENCE_S", SHORT_S)
    monkeypatch.setattr(membership, "SILENCE_S", SHORT_S)
    monkeypatch.setattr(session, "CLOSE_S", SHORT_S)
    schema = f"schema=silent_{next(_numbers)}&sslmode=disable"
    store = PostgresStore(f"postgresql://{USER}@127.0.0.1:{link.port}/postgres?{schema}")
    await store.open()
    yield store
    await store.close()


async def test_reads_fail_while_nothing_responds_and_succeed_afterwards(
    store: PostgresStore, link: Link
) -> None:
    await put(store, make_job(id=1))
    link.cut()

    reads = [store.get_job(1) for _ in range(2 * session.READERS_MAX)]
    searches = [store.find_job_ids(JobFilter(), None, 10) for _ in range(session.READERS_MAX)]
    found = await asyncio.gather(*reads, *searches, return_exceptions=True)
    link.heal()
    await until(store, lambda: not store.cluster.is_silent())

    assert {type(each) for each in found} == {StoreError}
    assert all("does not respond" in str(each) for each in found)
    assert await store.get_job(1) is not None


async def test_a_read_that_takes_long_while_the_database_responds_goes_on(
    store: PostgresStore, server: PostgresServer
) -> None:
    async with store._require_readers().session() as connection:
        assert await connection.fetchval("SELECT 7 FROM pg_sleep($1)", 3 * SHORT_S) == 7


async def test_a_store_closes_although_a_transaction_holds_what_its_end_needs(
    store: PostgresStore, server: PostgresServer
) -> None:
    other = await asyncpg.connect(server.url())
    await other.execute(f"BEGIN; SELECT FROM {store._address.schema}.shard FOR UPDATE")
    writer = store._require_writer()

    await store.close()

    assert writer.is_lost
    await other.close()


async def test_the_kernel_ends_a_silent_session_from_its_first_statement_on(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, timeouts = asyncpg.Connection.execute, list[int]()

    async def look(connection: asyncpg.Connection, query: str, **options: Any) -> str:
        found = connection._transport.get_extra_info("socket")
        timeouts.append(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        return str(await execute(connection, query, **options))

    monkeypatch.setattr(asyncpg.Connection, "execute", look)
    url = f"postgresql://{USER}@127.0.0.1:{link.port}/postgres?sslmode=disable"

    connection = await session.connect(parse_address(url), "test")

    await connection.close()
    assert timeouts == [11_000]


async def test_a_session_that_gets_no_response_after_its_login_is_given_up(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy, the kernel does not see that the host of PostgreSQL is lost."""
    execute = asyncpg.Connection.execute

    async def cut_before(connection: asyncpg.Connection, query: str, **options: Any) -> str:
        link.cut()
        return str(await execute(connection, query, **options))

    monkeypatch.setattr(asyncpg.Connection, "execute", cut_before)
    monkeypatch.setattr(session, "ANSWER_S", SHORT_S)
    url = f"postgresql://{USER}@127.0.0.1:{link.port}/postgres?sslmode=disable"

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StoreError, match="cannot connect to"):
            await session.connect(parse_address(url), "test")


@pytest.mark.parametrize("step", ["add_listener", "execute", "fetch", "fetchrow"])
async def test_a_control_session_whose_preparation_gets_no_response_is_given_up(
    store: PostgresStore, link: Link, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It is opened again by itself, so heartbeats go on as soon as PostgreSQL responds."""
    control = Control(store._address, "test", store.cluster)
    connect, original = session.connect, getattr(asyncpg.Connection, step)
    prepared = list[asyncpg.Connection]()

    async def note(*arguments: Any) -> asyncpg.Connection:
        prepared.append(await connect(*arguments))
        return prepared[0]

    async def cut_before(connection: asyncpg.Connection, *arguments: Any, **options: Any) -> Any:
        if connection in prepared:
            link.cut()
        return await original(connection, *arguments, **options)

    monkeypatch.setattr(control_module, "connect", note)
    monkeypatch.setattr(asyncpg.Connection, step, cut_before)
    monkeypatch.setattr(control_module, "ANSWER_S", SHORT_S)

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(TimeoutError):
            await control.connect()

    assert prepared[0].is_closed()
    link.heal()


async def test_a_commit_that_another_postgresql_never_answers_fails_and_the_store_goes_on(
    store: PostgresStore, server: PostgresServer, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may keep the connections to a lost primary, and lead new ones to the next one."""
    monkeypatch.setattr(control_module, "ANSWER_S", SHORT_S)
    await store.count_waiting(1)  # its session is idle then, for the next read
    link.cut()
    link.stop_listening()
    commit = asyncio.create_task(put(store, make_job(id=1)))
    server.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OF_STORE}")
    successor = Link(partial(asyncio.open_unix_connection, server.socket))
    await successor.open(link.port)

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StoreError):
            await commit
        await store.snapshot()
        await put(store, make_job(id=2))

    assert await store.get_job(2) is not None
    await store.close()
    await successor.close()


@pytest.mark.parametrize("host", ["a", "a" * 60], ids=["short", "long"])
async def test_heartbeats_that_begin_again_leave_the_session_that_writes(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Also if PostgreSQL cuts the names of the sessions, which have the name of the host."""
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    store = PostgresStore(server.url(schema=f"silent_{next(_numbers)}"))
    await store.open()
    control, ended = store._control, store._control.pid

    server.sql(f"SELECT pg_terminate_backend({ended})")
    await until(store, lambda: control.pid != ended and control._judges_from_s > since_boot_s())

    assert not store._require_writer().is_lost
    await store.close()


async def test_a_watch_that_gets_no_response_begins_again_with_another_session(
    store: PostgresStore, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store._control._watch.close()
    watch = NeighbourWatch(store._address, "test", store.cluster, lambda: None)
    assert not await watch._has_ended(store.cluster.me.no)
    monkeypatch.setattr(watch_module, "ANSWER_S", SHORT_S)
    link.cut()

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(TimeoutError):
            await watch._has_ended(store.cluster.me.no)

    link.heal()
    await watch.close()


async def test_a_store_closes_although_a_count_that_has_just_begun_has_no_response(
    store: PostgresStore, link: Link
) -> None:
    await store.snapshot()
    link.cut()
    try:
        async with asyncio.timeout(DEADLINE_S):
            await store.close()
    finally:
        link.heal()
