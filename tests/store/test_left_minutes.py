"""The minutes that a server of a cluster has left are those of another one, and of no two."""

from __future__ import annotations

import asyncio

import msgspec

from schedo.core.limits import DAY, MINUTE
from schedo.core.minutes import StoredMinute
from schedo.store.postgres import minutes
from schedo.store.postgres.server_numbers import CLASS
from schedo.store.postgres.store import PostgresStore
from tests.store.servers import DEADLINE_S, LONG_US, kill, sharing

_IS_FREE = f"""
SELECT NOT EXISTS (
    SELECT 1 FROM pg_locks
    WHERE locktype = 'advisory' AND classid = {CLASS}::oid AND objid = $1::int::oid
)"""


async def save(store: PostgresStore, minute: int, started: int) -> None:
    text = msgspec.json.encode(StoredMinute({"started": started})).decode()
    await store.save_minute(minute * MINUTE, text, DAY)


def started(found: list[tuple[int, str]]) -> dict[int, int]:
    """Return how many jobs were started, by minute."""
    read = msgspec.json.Decoder(StoredMinute).decode
    return {at // MINUTE: read(text).counts["started"] for at, text in found}


async def load(store: PostgresStore) -> dict[int, int]:
    return started(await store.load_minutes(0))


async def test_the_minutes_of_a_dead_server_are_added_to_those_of_a_living_one(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2, LONG_US) as (store, other):
        await save(store, 1, 10)
        await save(store, 2, 20)
        await save(other, 2, 3)
        await save(other, 3, 4)
        kill(other)
        async with asyncio.timeout(DEADLINE_S):
            while not (found := await store.cluster.adopt_minutes()):
                pass  # PostgreSQL has not ended its sessions yet

        assert started(found) == {2: 23, 3: 4}
        assert await load(store) == {1: 10, 2: 23, 3: 4}
        assert await store.cluster.adopt_minutes() == []


async def test_the_minutes_of_a_living_server_stay_with_it(postgres_store_url: str) -> None:
    async with sharing(postgres_store_url, 2, LONG_US) as (store, other):
        await save(other, 2, 3)

        assert await store.cluster.adopt_minutes() == []
        assert (await load(store), await load(other)) == ({}, {2: 3})


async def test_the_minutes_of_a_server_that_has_lost_the_session_that_writes_stay_with_it(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2, LONG_US) as (store, other):
        await save(other, 2, 3)
        assert store._writer is not None
        assert other._writer is not None
        other._writer.connection.terminate()
        async with asyncio.timeout(DEADLINE_S):
            while not await store._writer.connection.fetchval(_IS_FREE, other._owned.no):
                pass  # PostgreSQL has not ended the session yet

        assert await store.cluster.adopt_minutes() == []
        assert await load(store) == {}


async def test_a_server_that_starts_again_has_no_minute_that_another_one_has_adopted(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2, LONG_US) as (store, other):
        await save(other, 2, 3)
        await other.close()
        await store.cluster.adopt_minutes()
        again = PostgresStore(postgres_store_url, LONG_US)
        await again.open()

        assert (await load(store), await load(again)) == ({2: 3}, {})
        await again.close()


async def test_many_minutes_are_adopted_in_steps_so_that_commits_need_not_wait(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2, LONG_US) as (store, other):
        count = minutes._ADOPTED_MAX + 1
        for minute in range(1, count + 1):
            await save(other, minute, 1)
        await other.close()

        steps = [len(await store.cluster.adopt_minutes()) for _ in range(3)]

        assert steps == [minutes._ADOPTED_MAX, 1, 0]
        assert len(await load(store)) == count
