"""The reads of the inbox: each row comes once, in parts, and no read passes what is gone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from schedo.core.ids import parse_id
from schedo.core.limits import ENQUEUED_BYTES_MAX
from schedo.errors import StoreError
from schedo.protocol.enqueued import read_rows
from schedo.protocol.reading import at_once
from schedo.store.postgres import inbox
from schedo.store.postgres.store import PostgresStore
from tests.store.test_postgres_inbox import client, connected, enqueue, store, take, take_once

__all__ = ["client", "store"]


async def plan_of_read(store: PostgresStore) -> dict[str, Any]:
    """Return the plan of the next read in the reader's session, with the pages that it touches."""
    source = store.inbox
    text = inbox._READ
    values = ([x for x in source._open if x > source._part[0]], *source._position, None)
    for number, value in enumerate((*values, *source._part), 1):
        shown = f"'{{{','.join(map(str, value))}}}'" if isinstance(value, list) else value
        text = text.replace(f"${number}", "NULL" if shown is None else str(shown))
    async with store._require_readers().session() as session:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {text}"
        (plan,) = json.loads(await session.fetchval(explain))
    found: dict[str, Any] = plan["Plan"]
    return found


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a read return three rows at most."""
    monkeypatch.setattr(inbox, "_READ", inbox._READ.replace(f"LIMIT {inbox.ROWS_MAX}", "LIMIT 3"))
    monkeypatch.setattr(inbox, "ROWS_MAX", 3)


@pytest.mark.usefixtures("small_parts")
async def test_many_rows_come_in_parts_also_behind_an_open_transaction(
    store: PostgresStore,
    client: asyncpg.Connection,
    postgres_store_url: str,
) -> None:
    async with connected(postgres_store_url) as slow:
        transaction = slow.transaction()
        await transaction.start()
        for number in range(7):
            await enqueue(slow, f"'slow{number}'")
            await enqueue(client, f"'fast{number}'")
        await store.inbox.read()
        store.inbox.restart()
        fast = await take(store)
        for number in range(7, 9):
            await enqueue(client, f"'fast{number}'")
        await transaction.commit()
        rest = await take(store)

    assert [each["task"] for each in fast] == [f"fast{number}" for number in range(7)]
    assert sorted(each["task"] for each in rest) == [
        *("fast7", "fast8"),
        *(f"slow{number}" for number in range(7)),
    ]
    assert await take(store) == []


async def test_a_restart_during_a_read_forgets_what_that_read_has_passed(
    store: PostgresStore, client: asyncpg.Connection
) -> None:
    await enqueue(client)
    reading = asyncio.ensure_future(store.inbox.read())
    while not reading.done():
        store.inbox.restart()
        await asyncio.wait([reading], timeout=0.0)

    assert len(reading.result()) == 1
    assert await take(store) == [{"task": "mail"}]


async def test_a_read_ends_after_some_megabytes(
    store: PostgresStore, client: asyncpg.Connection
) -> None:
    await client.execute(
        "SELECT enqueue('big', to_jsonb(repeat('x', 1000000))) FROM generate_series(1, 12)"
    )

    rows = await store.inbox.read()

    assert len(rows) == 5
    store.inbox.restart()
    assert len(await take(store)) == 12


async def test_of_a_row_that_is_too_large_only_the_beginning_is_read(
    store: PostgresStore, client: asyncpg.Connection
) -> None:
    await enqueue(client, "'big', to_jsonb(repeat('ä', 3000000)), queue => 'slow'")

    (row,) = await store.inbox.read()
    found = await store.inbox.find(row.id)

    assert found is not None
    assert len(row.spec) == len(found.spec) == ENQUEUED_BYTES_MAX + 1
    (read,) = at_once(read_rows([row], lambda spec: None))
    assert (read.spec.task, read.spec.queue) == ("big", "slow")
    assert "a payload has at most" in (read.refusal or "")


async def test_a_read_does_not_look_at_deleted_rows_that_an_old_snapshot_still_needs(
    store: PostgresStore, client: asyncpg.Connection, postgres_store_url: str
) -> None:
    async with connected(postgres_store_url) as old:
        transaction = old.transaction(isolation="repeatable_read")
        await transaction.start()
        await old.fetchval("SELECT count(*) FROM inbox")
        await client.execute("SELECT enqueue('x') FROM generate_series(1, 3000)")
        assert len(await take(store)) == 3_000
        await enqueue(client)

        plan = await plan_of_read(store)

        assert plan["Actual Rows"] == 1
        assert plan["Shared Hit Blocks"] < 40


async def test_a_read_does_not_look_again_at_the_deleted_rows_of_a_transaction_with_many(
    store: PostgresStore, client: asyncpg.Connection, postgres_store_url: str
) -> None:
    count = 6 * inbox.ROWS_MAX
    async with connected(postgres_store_url) as old, connected(postgres_store_url) as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute(f"SELECT enqueue('x') FROM generate_series(1, {count})")
        await enqueue(client)
        assert await take(store) == [{"task": "mail"}]  # the transaction is older than the position
        holder = old.transaction(isolation="repeatable_read")
        await holder.start()
        await old.fetchval("SELECT count(*) FROM inbox")
        await transaction.commit()
        pages = []
        for _ in range(6):
            plan = await plan_of_read(store)
            pages.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
            assert len(await take_once(store)) == inbox.ROWS_MAX

        assert max(pages[1:]) < 2 * pages[0]
    assert await take(store) == []


@pytest.mark.usefixtures("small_parts")
async def test_a_transaction_that_ends_while_another_one_is_read_in_parts_is_read_too(
    store: PostgresStore,
    client: asyncpg.Connection,
    postgres_store_url: str,
) -> None:
    async with connected(postgres_store_url) as first, connected(postgres_store_url) as second:
        transactions = [each.transaction() for each in (first, second)]
        for number, session in enumerate((first, second)):
            await transactions[number].start()
            await session.execute(f"SELECT enqueue('t{number}') FROM generate_series(1, 7)")
        await enqueue(client)
        assert await take(store) == [{"task": "mail"}]
        await transactions[1].commit()
        found = await take_once(store)
        await transactions[0].commit()
        await enqueue(client, "'last'")

        found += await take(store)

    assert sorted(each["task"] for each in found) == ["last", *["t0"] * 7, *["t1"] * 7]


async def test_a_row_that_another_transaction_holds_fails_one_commit_and_is_left_until_later(
    store: PostgresStore,
    client: asyncpg.Connection,
    postgres_store_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held, free = parse_id(await enqueue(client)), parse_id(await enqueue(client, "'other'"))
    async with connected(postgres_store_url) as person:
        transaction = person.transaction()
        await transaction.start()
        await person.execute("DELETE FROM inbox WHERE id = $1", held)

        with pytest.raises(StoreError, match="lock timeout"):
            await asyncio.wait_for(take_once(store), 10)
        store.inbox.restart()

        assert await take(store) == [{"task": "other"}]
        found = await store.inbox.find(held)
        assert found is not None
        assert not found.is_own
        assert await store.inbox.find(free) is None
        await transaction.rollback()
    monkeypatch.setattr(store.inbox, "_held_until", 0.0)
    assert await take(store) == [{"task": "mail"}]
