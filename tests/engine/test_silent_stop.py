"""An engine that stops while its PostgreSQL does not respond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import count
from typing import Any

import asyncpg
import pytest

from schedo.clock import SystemClock
from schedo.engine import silent_stop
from schedo.engine.call_results import Accepted
from schedo.engine.engine import Engine
from schedo.errors import StoreError
from schedo.store.postgres import membership, session
from schedo.store.postgres.store import PostgresStore
from tests.e2e.cluster.link import Link
from tests.engine.world import spec
from tests.postgres import USER, PostgresServer, running_server

SHORT_S = 0.2
DEADLINE_S = 20.0


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


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_stop, "SILENT_S", SHORT_S)
    monkeypatch.setattr(membership, "SILENCE_S", SHORT_S)
    monkeypatch.setattr(session, "CLOSE_S", SHORT_S)


async def start(url: str, errors: list[Exception]) -> Engine:
    engine = Engine(PostgresStore(url), SystemClock(), on_fatal=errors.append)
    await engine.start()
    return engine


async def test_a_stop_while_the_database_is_silent_ends_and_says_what_is_not_confirmed(
    server: PostgresServer, link: Link
) -> None:
    """What was acknowledged before is there; a change that was under way is not acknowledged."""
    errors: list[Exception] = []
    options = "schema=silent&sslmode=disable"
    engine = await start(f"postgresql://{USER}@127.0.0.1:{link.port}/postgres?{options}", errors)
    kept: list[Any] = await engine.submit([spec()])
    assert [type(each) for each in kept] == [Accepted]
    link.cut()
    submitting: asyncio.Task[list[Any]] = asyncio.create_task(engine.submit([spec()]))

    async with asyncio.timeout(DEADLINE_S):
        await engine.stop()

    with pytest.raises(StoreError, match="may or may not be durable"):
        await submitting
    (error,) = errors
    assert isinstance(error, StoreError)
    assert "last changes are not confirmed, and the other servers take over its jobs" in str(error)
    assert int(server.sql("SELECT count(*) FROM silent.job")) == 1


async def test_a_stop_waits_for_a_database_that_is_slow_and_responds(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Exception] = []
    engine = await start(server.url(schema="slow"), errors)
    cluster, looks, has_looked = engine.cluster, count(1), asyncio.Event()
    assert cluster is not None
    is_silent = cluster.is_silent

    def look() -> bool:
        if next(looks) > 4 * SHORT_S / silent_stop._LOOK_S:
            has_looked.set()
        return is_silent()

    monkeypatch.setattr(cluster, "is_silent", look)
    other = await asyncpg.connect(server.url())
    async with other.transaction():
        await other.execute("LOCK slow.job")
        submitting: asyncio.Task[list[Any]] = asyncio.create_task(engine.submit([spec()]))
        stopping = asyncio.create_task(engine.stop())
        await has_looked.wait()
        assert not stopping.done()
    await other.close()

    await stopping

    assert [type(each) for each in await submitting] == [Accepted]
    assert errors == []
