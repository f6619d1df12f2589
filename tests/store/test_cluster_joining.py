"""Servers that join a store in PostgreSQL, or leave it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from schedo.core.shards import SHARDS
from schedo.core.states import State
from schedo.errors import StoreError
from schedo.store.base import Snapshot
from schedo.store.cluster import MemberState
from schedo.store.postgres.store import PostgresStore
from tests.factories import make_job
from tests.postgres import PostgresServer
from tests.store.servers import (
    LONG_US,
    due,
    end_patience,
    follow,
    kill,
    shards,
    sharing,
    silence,
    until,
)
from tests.store.steps import put

ALL = list(range(SHARDS))
BEATS = 5


async def beat(store: PostgresStore) -> None:
    """Wait for some heartbeats of the store, within which others would have seen it."""
    store.cluster._late.clear()
    await until(store, lambda: len(store.cluster._late) > BEATS)


async def open_joining(url: str) -> PostgresStore:
    store = PostgresStore(url)
    store.cluster.join()
    await store.open()
    return store


async def test_a_server_that_joins_gets_shards_when_it_is_announced(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 1) as (store,):
        joining = await open_joining(postgres_store_url)
        await beat(joining)
        assert store.cluster.members() == (store.cluster.me,)
        assert not store.cluster.is_change_due()

        await joining.cluster.announce("http://two")
        await due(store)
        await follow(store)
        await due(joining)
        await follow(joining)

        assert len(shards(joining)) == SHARDS // 2
        assert store.cluster.members()[1].url == "http://two"
        await joining.close()


async def test_a_server_that_leaves_before_it_owns_a_shard_has_nothing_to_give(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 1):
        joining = await open_joining(postgres_store_url)
        await joining.cluster.announce("http://two")

        await joining.cluster.leave()
        await beat(joining)

        assert shards(joining) == []
        assert joining.cluster.has_given
        await joining.close()


async def test_a_server_that_leaves_gives_what_is_left_when_only_remote_workers_run_something(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2) as (store, other):
        await put(store, make_job(id=1, state=State.RUNNING, attempt=1))
        await put(store, make_job(id=2, state=State.RUNNING, attempt=1, unique_key="key"))
        await store.cluster.leave()
        await follow(store)
        assert store._owned.shards

        store.cluster.leave_last()
        await follow(store)
        await due(other)
        await follow(other)

        assert shards(store) == []
        assert shards(other) == ALL


async def test_the_first_server_owns_all_shards_before_it_is_announced(
    postgres_store_url: str,
) -> None:
    store = await open_joining(postgres_store_url)
    await store.cluster.announce("http://one")

    assert shards(store) == ALL
    assert store.cluster.me.url == "http://one"
    await store.close()


async def test_the_shards_of_a_server_that_dies_wait_for_the_only_one_that_joins(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 1) as (dead,):
        joining = await open_joining(postgres_store_url)
        kill(dead)
        await until(joining, lambda: len(joining.cluster.find_gone()) > 0)
        await beat(joining)
        assert not joining.cluster.is_change_due()

        await joining.cluster.announce("http://two")
        await due(joining)
        await follow(joining)

        assert shards(joining) == ALL
        await joining.close()


async def begin_two(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Task[Snapshot], PostgresStore, PostgresStore, asyncio.Future[None]]:
    """Begin two starts at once on a new store. The first has all shards, and has not signed.

    Return its start, both servers, and what the start waits for.
    """
    store, other = PostgresStore(url), PostgresStore(url)
    has_entered, goes_on = asyncio.Event(), asyncio.get_running_loop().create_future()
    connect = store._control.connect

    async def connect_later() -> None:
        has_entered.set()
        await goes_on
        await connect()

    monkeypatch.setattr(store._control, "connect", connect_later)
    opening = asyncio.create_task(store.open())
    await has_entered.wait()
    await other.open()
    return opening, store, other, goes_on


async def test_the_shards_of_a_server_that_fails_before_it_has_signed_are_taken(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, _, other, goes_on = await begin_two(postgres_store_url, monkeypatch)
    goes_on.set_exception(StoreError("sorry, too many clients already"))
    with pytest.raises(StoreError, match="too many clients"):
        await opening

    await until(other, lambda: other.cluster._seen_as_mine() == {*ALL})
    await follow(other)

    assert shards(other) == ALL
    await other.close()


async def test_a_server_that_has_not_signed_yet_keeps_its_shards(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, store, other, goes_on = await begin_two(postgres_store_url, monkeypatch)

    await other._control._act()
    assert not other._control._hurries  # it is not looked at in short steps
    await beat(other)
    goes_on.set_result(None)
    await opening

    assert shards(store) == ALL
    assert shards(other) == []
    await store.close()
    await other.close()


def end_heartbeats(store: PostgresStore) -> None:
    """End the session of the heartbeats; the store opens another one."""
    assert store._control._connection is not None
    store._control._connection.terminate()


async def test_a_server_that_leaves_while_postgresql_is_away_says_so_in_an_error_of_the_store(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 1) as (store,):
        end_heartbeats(store)

        with pytest.raises(StoreError):
            await store.cluster.leave()


async def test_a_server_that_could_not_say_that_it_leaves_says_so_with_its_next_heartbeat(
    postgres_store_url: str,
) -> None:
    """Else the others give it shards again while it drains."""
    async with sharing(postgres_store_url, 2, LONG_US) as (leaving, other):
        end_heartbeats(leaving)
        with pytest.raises(StoreError):
            await leaving.cluster.leave()

        no = leaving.cluster.me.no
        await until(other, lambda: other.cluster._view.members[no].state is MemberState.LEAVING)


async def test_the_url_that_a_server_could_not_announce_comes_with_its_next_heartbeat(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2, LONG_US) as (store, other):
        end_heartbeats(store)
        with pytest.raises(StoreError):
            await store.cluster.announce("http://a")

        await until(other, lambda: "http://a" in {each.url for each in other.cluster.members()})


async def test_a_server_that_has_ended_in_order_does_not_say_again_that_it_leaves(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2, LONG_US) as (leaving, other):
        await leaving.cluster.leave()
        leaving.note_leaving()
        await leaving._require_writer().run(lambda c: c.fetchval("SELECT 1"))
        no = leaving.cluster.me.no

        await beat(leaving)
        await beat(other)

        assert other.cluster._view.members[no].state is MemberState.CLOSED


@dataclass(frozen=True)
class Copying:
    """A way to copy a store inside one PostgreSQL; url: of the copy with this name."""

    copy: Callable[[PostgresServer, str], None]
    url: Callable[[PostgresServer, str], str]


COPIES = {
    "another database": Copying(
        lambda server, name: server.copy("postgres", name),
        lambda server, name: server.url(name, schema="original"),
    ),
    "another schema": Copying(
        lambda server, name: server.copy_schema("original", name),
        lambda server, name: server.url(schema=name),
    ),
}


@pytest.fixture(params=COPIES)
def copying(request: pytest.FixtureRequest) -> Copying:
    return COPIES[request.param]


@pytest.fixture
def original_url(primary: PostgresServer) -> str:
    """Return the URL of a store whose schema has a name that is nowhere else in a dump."""
    primary.sql("DROP SCHEMA IF EXISTS original CASCADE")
    return primary.url(schema="original")


async def test_a_server_on_a_copy_is_in_no_cluster_with_the_original(
    primary: PostgresServer, original_url: str, copying: Copying
) -> None:
    async with sharing(original_url, 1) as (original,):
        copying.copy(primary, "copied")
        copy = PostgresStore(copying.url(primary, "copied"))
        await copy.open()

        assert shards(copy) == ALL
        assert copy.cluster.members() == (copy.cluster.me,)
        await copy.close()
        await beat(original)
        assert original.cluster.is_sure()
        assert shards(original) == ALL


async def test_a_server_on_a_copy_does_not_end_the_session_of_the_original(
    primary: PostgresServer, original_url: str, copying: Copying
) -> None:
    async with sharing(original_url, 1, LONG_US) as (original,):
        silence(original)
        await end_patience(original, original)
        copying.copy(primary, "fenced")
        copy = PostgresStore(copying.url(primary, "fenced"))
        await copy.open()
        await beat(copy)

        assert original._writer is not None
        assert await original._writer.connection.fetchval("SELECT 1") == 1
        await copy.close()


async def test_the_servers_on_a_copy_form_a_cluster_of_their_own(
    primary: PostgresServer, original_url: str, copying: Copying
) -> None:
    async with sharing(original_url, 1) as (original,):
        copying.copy(primary, "shared")
        async with sharing(copying.url(primary, "shared"), 2) as (first, second):
            assert shards(first, second) == ALL
            assert [each.no for each in first.cluster.members()] == [1, 2]
        await beat(original)
        assert original.cluster.members() == (original.cluster.me,)


async def test_a_store_in_which_no_server_has_noted_its_place_yet_keeps_its_servers(
    primary: PostgresServer, original_url: str
) -> None:
    async with sharing(original_url, 1, LONG_US) as (earlier,):
        primary.sql("DELETE FROM original.meta WHERE name = 'home'")
        joining = PostgresStore(original_url)
        await joining.open()

        assert [each.silent_us is None for each in joining.cluster.members()] == [False, False]
        assert joining.cluster.me.no != earlier.cluster.me.no
        await joining.close()
