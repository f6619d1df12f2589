"""A server of a cluster goes on with a new session, and perhaps a new number."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from schedo.core.shards import SHARDS
from schedo.errors import StoreError
from schedo.store.base import Snapshot
from schedo.store.postgres import control, server_numbers, snapshots
from schedo.store.postgres import store as stores
from schedo.store.postgres import watch as watches
from schedo.store.postgres.session import connect
from schedo.store.postgres.store import PostgresStore
from schedo.store.postgres.watch import NeighbourWatch
from tests.store.servers import LONG_US, due, follow, shards, sharing, silence, until

ALL = list(range(SHARDS))
_LOCK_SHARED = f"SELECT pg_advisory_lock_shared({server_numbers.CLASS}, $1::int)"
_TRY_LOCK = f"SELECT pg_try_advisory_lock({server_numbers.CLASS}, $1::int)"
FORMER = 7  # a number that the server had before
_COPY = """
INSERT INTO server (no, name, boot, epoch, version, state, opened_at, control_pid, control_began)
SELECT $1, name, boot, 0, version, state, opened_at, control_pid, control_began FROM server"""
_SET_EPOCH = "UPDATE server SET epoch = epoch + 1000, control_pid = NULL WHERE no = $1"
_CONTROLS = """
SELECT server.no, pid FROM server LEFT JOIN pg_stat_activity
    ON pid = control_pid AND backend_start = control_began"""
_WRITERS = "SELECT no, writer_pid FROM server WHERE state <> 'closed' ORDER BY no"


async def end_session(store: PostgresStore, other: PostgresStore, *, lock: bool = False) -> None:
    """End the session in which the store writes; lock: its lock is held by another session."""
    assert store._writer is not None
    assert other._writer is not None
    await other._control._fetch("SELECT pg_terminate_backend($1)", store._writer.pid)
    if lock:
        await other._writer.connection.execute(_LOCK_SHARED, store._owned.no)
    await due(store)


async def writers(store: PostgresStore) -> dict[int, int]:
    """Return the sessions that write, by the number of the server, as all servers know them."""
    async with store._require_readers().session() as session:
        return dict(await session.fetch(_WRITERS))


async def stop_beating(store: PostgresStore) -> None:
    silence(store)
    assert store._control._task is not None
    await asyncio.wait([store._control._task])


async def controls(store: PostgresStore) -> dict[int, int | None]:
    """Return the sessions of the heartbeats that live, by the number of the server."""
    async with store._require_readers().session() as session:
        return dict(await session.fetch(_CONTROLS))


async def test_a_watch_keeps_no_lock_of_the_server_that_it_has_seen_end(
    postgres_store_url: str,
) -> None:
    """Else that server could not start again."""
    async with sharing(postgres_store_url, 2) as (store, other):
        watch = NeighbourWatch(store._address, "watch", store.cluster, lambda: None)
        ended = 7

        assert await watch._has_ended(ended)

        assert other._writer is not None
        assert await other._writer.connection.fetchval(_TRY_LOCK, ended)
        await watch.close()


async def test_a_bug_in_a_watch_is_logged_and_does_not_end_it(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watches, "PAUSE_S", 0.0)
    async with sharing(postgres_store_url, 2, LONG_US) as (store, _):
        watched = asyncio.Event()

        async def fail(_: int) -> bool:
            monkeypatch.setattr(watch, "_has_ended", go_on)
            raise ZeroDivisionError

        async def go_on(_: int) -> bool:
            watched.set()
            return True

        watch = NeighbourWatch(store._address, "watch", store.cluster, lambda: None)
        monkeypatch.setattr(watch, "_has_ended", fail)
        watch.begin()

        await watched.wait()

        assert "the watch over another server failed" in caplog.text
        await watch.close()


async def test_a_number_that_a_server_has_given_up_counts_as_dead(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_numbers, "WAIT_S", 0.0)
    async with sharing(postgres_store_url, 2) as (store, other):
        await end_session(store, other, lock=True)
        await store.snapshot()

        assert store.cluster.me.no == 3
        await until(other, lambda: 1 not in other.cluster._view.owners.values())
        await follow(other)
        await follow(store)
        assert shards(store, other) == ALL


async def test_a_new_session_is_signed_although_the_first_snapshot_in_it_fails(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(postgres_store_url, 2) as (store, other):
        await end_session(store, other)

        async def fail(*_: object) -> Snapshot:
            monkeypatch.setattr(stores, "read_snapshot", snapshots.read_snapshot)
            raise StoreError("a session that reads cannot be opened")

        monkeypatch.setattr(stores, "read_snapshot", fail)
        with pytest.raises(StoreError, match="cannot be opened"):
            await store.snapshot()
        await store.snapshot()

        assert store._writer is not None
        assert (await writers(other))[store.cluster.me.no] == store._writer.pid


async def test_a_server_that_needs_a_new_number_never_goes_on_with_its_old_one(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_numbers, "WAIT_S", 0.0)
    async with sharing(postgres_store_url, 2) as (store, other):
        await end_session(store, other, lock=True)  # as by a server that has started meanwhile

        async def fail(*_: object) -> Snapshot:
            monkeypatch.setattr(stores, "read_snapshot", snapshots.read_snapshot)
            raise StoreError("the disk of the database is full")

        monkeypatch.setattr(stores, "read_snapshot", fail)
        with pytest.raises(StoreError, match="is full"):
            await store.snapshot()
        await store.snapshot()

        await store.check()
        assert store.cluster.me.no == 3


async def test_a_server_that_takes_its_lock_again_ends_no_session_but_its_own(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_numbers, "WAIT_S", 0.0)
    async with sharing(postgres_store_url, 2) as (store, other):
        stranger = await connect(other._address, "a session with the pid of a lost one")
        pid = int(stranger.get_server_pid())

        async with store._require_readers().session() as session:
            assert not await server_numbers.lock_again(session, other.cluster.me.no, pid)

        assert await stranger.fetchval("SELECT 1") == 1
        await stranger.close()


async def test_a_server_that_signs_with_a_control_session_that_was_replaced_meanwhile_lives(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(postgres_store_url, 2, LONG_US) as (store, other):
        await stop_beating(store)
        store._control._drop()
        sign = server_numbers.sign

        async def sign_late(*values: Any) -> None:
            await store._control._connect_again()
            await sign(*values)

        monkeypatch.setattr(server_numbers, "sign", sign_late)
        assert store._writer is not None
        store._writer.connection.terminate()
        await store.snapshot()
        await store._control._beat()

        assert (await controls(other))[store.cluster.me.no] == store._control.pid
        await other._control._beat()
        assert not other.cluster._view.is_gone(store.cluster.me.no)


async def test_the_heartbeats_of_a_server_are_for_no_other_number(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 1) as (store,):
        await stop_beating(store)
        await store._control._fetch(_COPY, FORMER)  # it has replaced the session late
        assert (await controls(store))[FORMER] == store._control.pid

        await store._control._beat()

        assert await controls(store) == {store.cluster.me.no: store._control.pid, FORMER: None}


async def test_a_server_does_not_replace_the_control_session_of_another_one(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 2, LONG_US) as (store, other):
        await stop_beating(store)
        no = store.cluster.me.no
        await other._control._fetch(_SET_EPOCH, no)  # another server has taken the number

        await store._control._beat()
        store._control._drop()
        await store._control._connect_again()
        await store._control._beat()

        assert (await controls(other))[no] is None


async def test_a_server_whose_control_session_ends_is_in_doubt_until_its_next_heartbeat(
    postgres_store_url: str,
) -> None:
    """PostgreSQL may have ended the session that writes as well, which the server notices later."""
    async with sharing(postgres_store_url, 1, LONG_US) as (store,):
        await until(store, store.cluster.is_sure)
        connection = store._control._connection
        assert connection is not None
        ended = asyncio.get_running_loop().create_future()
        connection.add_termination_listener(lambda _: ended.set_result(None))
        assert store._writer is not None
        await store._writer.connection.execute(
            "SELECT pg_terminate_backend($1)", store._control.pid
        )

        await ended
        assert not store.cluster.is_sure()

        await until(store, store.cluster.is_sure)
        assert store._control._connection is not connection


async def test_each_cause_of_failed_heartbeats_is_logged_once_and_the_last_one_is_known(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(control, "RECONNECT_S", 0.0)
    async with sharing(postgres_store_url, 1, LONG_US) as (store,):
        open_session = store._control.connect
        causes = ["it is closed", "all sessions are in use", "all sessions are in use"]
        known: list[str] = []

        async def fail() -> None:
            known.append(str(store.cluster.beat_error))
            if not causes:
                return await open_session()
            raise StoreError(causes.pop(0))

        monkeypatch.setattr(store._control, "connect", fail)
        store._control._drop()
        store._control._wake.set()
        await until(store, lambda: len(known) == 4)

        assert known[1:] == ["it is closed", *["all sessions are in use"] * 2]
        assert caplog.text.count("heartbeats of this server fail: it is closed") == 1
        assert caplog.text.count("heartbeats of this server fail: all sessions are in use") == 1
        assert store.cluster.beat_error is None


async def test_a_bug_in_a_heartbeat_is_logged_and_ends_none_of_the_next_ones(
    postgres_store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with sharing(postgres_store_url, 1, LONG_US) as (store,):

        def fail(base_us: int, delay_us: int) -> None:
            store.cluster.on_reading = lambda base_us, delay_us: None
            raise ZeroDivisionError

        store.cluster.on_reading = fail
        await until(store, lambda: "a heartbeat of this server failed" in caplog.text)


async def test_a_heartbeat_is_one_statement(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(postgres_store_url, 2) as (store, _):
        await stop_beating(store)
        asked: list[str] = []
        fetch = store._control._fetch

        async def note(query: str, *parameters: object) -> list[asyncpg.Record]:
            asked.append(query)
            return await fetch(query, *parameters)

        monkeypatch.setattr(store._control, "_fetch", note)
        await store._control._beat()

        assert asked == [control._VIEW]


async def test_a_server_that_has_lost_only_its_session_that_writes_keeps_its_number(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 1) as (store,):
        assert store._writer is not None
        await store._writer.connection.execute("SELECT pg_advisory_unlock_all()")  # as if it ended

        joining = PostgresStore(postgres_store_url)
        await joining.open()

        assert (store.cluster.me.no, joining.cluster.me.no) == (1, 2)
        await joining.close()


async def test_a_server_whose_number_a_later_one_has_starts_nothing_and_changes_nothing_of_it(
    postgres_store_url: str,
) -> None:
    async with sharing(postgres_store_url, 1) as (store,):
        assert store.cluster.is_sure()
        assert store._writer is not None
        await store._writer.connection.execute(
            "UPDATE server SET epoch = epoch + 1000, url = 'new'"
        )

        await until(store, lambda: not store.cluster.is_sure())
        await store.cluster.announce("http://127.0.0.1:1")

        assert store.cluster.is_writing()
        found = await store._writer.connection.fetchval("SELECT url FROM server")
        assert found == "new"
