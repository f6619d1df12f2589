"""A standby of PostgreSQL answers lists and searches, unless it lags, fails or is away."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from schedo.core.job_filter import JobFilter
from schedo.core.states import State
from schedo.errors import StoreError, StoreUnsuitable
from schedo.store.postgres import replica
from schedo.store.postgres.replica import Replica
from schedo.store.postgres.store import PostgresStore
from tests.factories import make_job
from tests.postgres import PostgresServer, running_server
from tests.store.servers import DEADLINE_S
from tests.store.steps import put

ANY = JobFilter()


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test say when the store looks at the standby."""
    monkeypatch.setattr(replica, "PERIOD_S", 3_600.0)


def replay(standby: PostgresServer, *, is_on: bool) -> None:
    standby.sql(f"SELECT pg_wal_replay_{'resume' if is_on else 'pause'}()")


async def opened(primary: PostgresServer, read_url: str, schema: str) -> PostgresStore:
    store = PostgresStore(primary.url(schema=schema), 30_000_000, read_url)
    await store.open()
    return store


def replica_of(store: PostgresStore) -> Replica:
    assert store._replica is not None
    return store._replica


async def look_until_fresh(found: Replica) -> None:
    while not found.is_fresh():
        with suppress(StoreError):  # the standby does not have the tables yet
            await found.look()


async def count(store: PostgresStore) -> int:
    return len((await store.list_jobs(ANY, None, 10)).jobs)


async def test_lists_come_from_the_standby_and_single_jobs_from_the_primary(
    primary: PostgresServer, standby: PostgresServer
) -> None:
    store = await opened(primary, standby.url(schema="lists"), "lists")
    await put(store, make_job(id=64, state=State.SCHEDULED))
    await look_until_fresh(replica_of(store))
    replay(standby, is_on=False)
    try:
        await put(store, make_job(id=128, state=State.SCHEDULED))

        assert await count(store) == 1
        assert len((await store.list_due(ANY, None, 10)).jobs) == 1
        assert await store.get_job(128) is not None
        assert (await store.find_job_ids(ANY, None, 10)).ids == [128, 64]
    finally:
        replay(standby, is_on=True)
        await store.close()


async def test_lists_come_from_the_primary_while_the_standby_is_behind(
    primary: PostgresServer, standby: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(primary, standby.url(schema="behind"), "behind")
    found = replica_of(store)
    await look_until_fresh(found)
    replay(standby, is_on=False)
    try:
        await put(store, make_job(id=64))
        found._written.clear()  # a minute has passed since the last position that it has replayed
        await found.look()

        assert not found.is_fresh()
        assert await count(store) == 1
    finally:
        replay(standby, is_on=True)
    await look_until_fresh(found)
    monkeypatch.setattr(replica, "STALE_S", 0.0)
    assert not found.is_fresh()
    await store.close()


async def test_a_read_that_the_standby_ends_is_repeated_on_the_primary(
    primary: PostgresServer, standby: PostgresServer
) -> None:
    store = await opened(primary, standby.url(schema="ended"), "ended")
    await put(store, make_job(id=64))
    found = replica_of(store)
    await look_until_fresh(found)
    await count(store)
    standby.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'schedo%'"
    )

    assert await count(store) == 1
    await store.close()


async def test_a_standby_that_is_away_keeps_no_server_from_its_start(
    primary: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = "postgresql://schedo@/postgres?host=/nowhere&schema=away"

    store = await opened(primary, nowhere, "away")

    assert await count(store) == 0
    assert "reads come from the primary" in caplog.text
    await store.close()


@pytest.mark.parametrize(
    ("is_standby", "schema", "hint"),
    [(False, "self", "is no standby"), (True, "other", "has another store")],
)
async def test_what_is_no_standby_of_the_store_is_refused(
    primary: PostgresServer, standby: PostgresServer, is_standby: bool, schema: str, hint: str
) -> None:
    other = await opened(primary, standby.url(schema="other"), "other")
    await look_until_fresh(replica_of(other))
    await other.close()
    url = (standby if is_standby else primary).url(schema=schema)

    with pytest.raises(StoreUnsuitable, match=hint):
        await opened(primary, url, "self")

    again = await opened(primary, standby.url(schema="self"), "self")
    await again.close()


async def test_another_store_that_was_away_at_the_start_answers_nothing(
    primary: PostgresServer, standby: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await opened(primary, standby.url(schema="stranger"), "stranger")
    await put(other, make_job(id=64))
    await look_until_fresh(replica_of(other))
    await other.close()

    async def fail(*_: object) -> None:
        raise StoreError("it does not run")

    with monkeypatch.context() as away:
        away.setattr(replica, "connect", fail)
        store = await opened(primary, standby.url(schema="stranger"), "late")
    found = replica_of(store)
    with pytest.raises(StoreUnsuitable, match="has another store than --store"):
        await found.look()

    assert not found.is_fresh()
    assert await count(store) == 0
    await store.close()


async def test_a_standby_that_does_not_follow_its_primary_any_more_answers_nothing() -> None:
    """It has the past, and is further in the log than the one that was promoted."""
    with running_server() as first, running_server(first) as ahead, running_server(first) as behind:
        store = await opened(first, ahead.url(schema="past"), "past")
        behind.stop("fast")
        first.sql("SELECT pg_logical_emit_message(false, '', repeat('x', 30000000))")
        await look_until_fresh(replica_of(store))
        await store.close()
        first.stop()
        behind.start()
        behind.promote()
        store = await opened(behind, ahead.url(schema="past"), "past")
        await put(store, make_job(id=128))
        found = replica_of(store)

        with pytest.raises(StoreUnsuitable, match="does not follow the database of --store"):
            await found.look()

        assert await count(store) == 1
        await store.close()


async def test_lists_come_from_the_next_standby_when_the_one_before_was_promoted() -> None:
    """The sessions with that one go on, so the store has to leave them."""
    with (
        running_server() as first,
        running_server(first) as second,
        running_server(second) as third,
    ):
        hosts = f"{second.directory},{third.directory}"
        url = first.url(schema="next").replace(f"={first.directory}", f"={first.directory},{hosts}")
        store = PostgresStore(
            url, 30_000_000, second.url(schema="next").replace(f"={second.directory}", f"={hosts}")
        )
        await store.open()
        found = replica_of(store)
        await look_until_fresh(found)
        first.stop()
        second.promote()
        with pytest.raises(StoreError):
            await store.load_payload(1)
        await store.snapshot()
        await put(store, make_job(id=64))
        found._written.clear()  # a minute has passed
        found.note_failure(StoreError("it was promoted"))

        async with asyncio.timeout(DEADLINE_S):
            await look_until_fresh(found)

        replay(third, is_on=False)
        await put(store, make_job(id=128))
        assert await count(store) == 1
        await store.close()


async def test_a_server_that_has_not_signed_yet_reads_from_the_primary(
    primary: PostgresServer, standby: PostgresServer
) -> None:
    """Nothing says yet whether the standby follows the primary."""
    store = await opened(primary, standby.url(schema="unsigned"), "unsigned")
    found = replica_of(store)
    await look_until_fresh(found)
    store.cluster.signed_epoch = None

    with pytest.raises(StoreError, match="does not show this server yet"):
        await found.look()

    await store.close()
