"""Servers that share a store in PostgreSQL, as stores in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from schedo.store.postgres.store import PostgresStore

DEADLINE_S = 20.0
LONG_US = 60_000_000  # a failover timeout that no busy machine exceeds


@asynccontextmanager
async def sharing(
    url: str, count: int, timeout_us: int = 300_000
) -> AsyncIterator[list[PostgresStore]]:
    """Open stores one after the other, with equally many shards; close those that still live."""
    stores: list[PostgresStore] = []
    try:
        for _ in range(count):
            stores.append(PostgresStore(url, timeout_us))
            await stores[-1].open()
            for store in stores[:-1]:
                store.cluster._moved_s = 0.0  # a move may follow the one before at once
                await due(store)
                await follow(store)
            await due(stores[-1], len(stores) > 1)
            await follow(stores[-1])
        yield stores
    finally:
        for store in stores:
            await store.close()


async def follow(store: PostgresStore) -> None:
    """Give away what is due, and continue with the shards that the store has now."""
    await store.cluster.change_shards()
    await store.snapshot()


async def due(store: PostgresStore, is_due: bool = True) -> None:
    """Wait until the engine of the store would have to follow a change."""
    if is_due:
        await until(store, store.cluster.is_change_due)


async def until(store: PostgresStore, condition: Callable[[], bool]) -> None:
    """Wait until a heartbeat has made the condition true."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            store.cluster._seen.clear()
            await store.cluster._seen.wait()


def shards(*stores: PostgresStore) -> list[int]:
    """Return the shards that the stores own, in order; one that two of them own is there twice."""
    return sorted(shard for store in stores for shard in store._owned.shards)


def silence(store: PostgresStore) -> None:
    """Stop the heartbeats, as SIGSTOP does; the sessions stay."""
    assert store._control._task is not None
    store._control._task.cancel()


async def end_patience(store: PostgresStore, silent: PostgresStore) -> None:
    """Let the failover timeout of the silent one be over now, however busy the machine is."""
    assert store._writer is not None
    await store._writer.connection.execute(
        "UPDATE server SET timeout_us = 1 WHERE no = $1", silent.cluster.me.no
    )


def kill(store: PostgresStore) -> None:
    """End all sessions, as SIGKILL does."""
    silence(store)
    assert store._control._watch._task is not None
    store._control._watch._task.cancel()
    store._control._watch._drop()
    store._control._drop()
    assert store._writer is not None
    store._writer.connection.terminate()
