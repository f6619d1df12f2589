"""The start of a store in PostgreSQL: each trouble has a message with what helps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import asyncpg
import pytest

from schedo.errors import Invalid, StoreError, StoreUnsuitable
from schedo.store import open_store, without_password
from schedo.store.postgres.address import parse_address
from schedo.store.postgres.errors import opening_error
from schedo.store.postgres.self_test import check_server
from schedo.store.postgres.session import list_settings
from schedo.store.postgres.store import PostgresStore
from tests.pgbouncer import pooling
from tests.postgres import USER, PostgresServer, refused, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    yield server.url(schema="jobs")
    server.sql("DROP SCHEMA IF EXISTS jobs CASCADE")


async def test_a_server_that_does_not_run_may_be_tried_again(tmp_path: Path) -> None:
    for place in (f"@/postgres?host={tmp_path}", "@127.0.0.1:1/postgres"):
        error = await refused(f"postgresql://{USER}{place}", "cannot connect .* does it listen")
        assert not isinstance(error, StoreUnsuitable)


@pytest.mark.parametrize("options", ["127.0.0.1:99999/x", "h/x?sslmode=odd", "h..h/x"])
async def test_a_url_that_the_driver_cannot_use_is_refused(options: str) -> None:
    error = await refused(f"postgresql://{USER}@{options}", "cannot use postgresql://")

    assert isinstance(error, StoreUnsuitable)


async def test_a_server_without_tls_is_not_said_to_be_down() -> None:
    async def refuse_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"N")
        writer.close()

    async with await asyncio.start_server(refuse_tls, "127.0.0.1", 0) as plain:
        port = plain.sockets[0].getsockname()[1]
        url = f"postgresql://{USER}@127.0.0.1:{port}/postgres?sslmode=require"
        error = await refused(url, "cannot connect .* rejected SSL .*; sslmode in the URL")

    assert isinstance(error, StoreUnsuitable)
    assert "does PostgreSQL run" not in str(error)


def test_a_server_that_is_starting_is_not_said_to_be_down() -> None:
    starting = asyncpg.CannotConnectNowError("the database system is starting up")

    error = opening_error(starting, "postgresql://db/jobs")

    text = "cannot connect to postgresql://db/jobs: the database system is starting up"
    assert (type(error), str(error)) == (StoreError, text)


def test_a_server_without_a_free_session_is_refused_with_what_helps() -> None:
    """Another start may find one, so the exit code is not that of a setting that is wrong."""
    used_up = asyncpg.TooManyConnectionsError("sorry, too many clients already")

    error = opening_error(used_up, "postgresql://db/jobs")

    assert type(error) is StoreError
    assert str(error) == (
        "cannot connect to postgresql://db/jobs: sorry, too many clients already; end sessions that"
        " nobody needs, or raise max_connections of PostgreSQL or the CONNECTION LIMIT of the role"
        " or the database; a server of schedo has up to nine sessions"
    )


@pytest.mark.parametrize(
    ("version", "knows_it"), [(14, False), (16, False), (17, True), (18, True)]
)
def test_no_transaction_of_a_store_has_a_time_limit_of_the_database(
    version: int, knows_it: bool
) -> None:
    """A version before 17 refuses the setting, because it does not know it."""
    settings = list_settings(version)

    assert settings.get("transaction_timeout") == ("0" if knows_it else None)
    assert settings["statement_timeout"] == "0"


async def test_a_database_that_does_not_exist_is_named(server: PostgresServer) -> None:
    error = await refused(server.url("nowhere"), '"nowhere" does not exist; create the database')

    assert isinstance(error, StoreUnsuitable)


async def test_a_wrong_password_is_named_and_never_shown(server: PostgresServer) -> None:
    server.sql("CREATE ROLE locked LOGIN PASSWORD 'right'")
    rules = server.directory / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all locked scram-sha-256\n{before}")
    server.sql("SELECT pg_reload_conf()")
    url = server.url().replace(f"//{USER}@", "//locked:wr0ng@")

    error = await refused(url, "the password is wrong")

    assert isinstance(error, StoreUnsuitable)
    assert "wr0ng" not in str(error)
    rules.write_text(before)
    server.sql("SELECT pg_reload_conf()")
    server.sql("DROP ROLE locked")


async def test_another_encoding_than_utf8_is_refused(server: PostgresServer) -> None:
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")

    error = await refused(server.url("latin"), "has the encoding LATIN1; .*--encoding=UTF8")

    assert isinstance(error, StoreUnsuitable)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("track_activities", "off", "set track_activities = on"),
        ("default_transaction_read_only", "on", "is on;.*turn that setting off"),
    ],
)
async def test_a_setting_that_does_not_fit_is_refused_with_a_hint(
    server: PostgresServer, setting: str, value: str, message: str
) -> None:
    server.sql(f"ALTER DATABASE postgres SET {setting} = {value}")
    try:
        error = await refused(server.url(), message)
    finally:
        server.sql(f"ALTER DATABASE postgres RESET {setting}", "template1")

    assert isinstance(error, StoreUnsuitable)


@pytest.mark.parametrize(
    ("setting", "value", "used"),
    [
        ("synchronous_commit", "off", "on"),
        ("idle_session_timeout", "'1h'", "0"),
        ("default_transaction_isolation", "serializable", "read committed"),
    ],
)
async def test_a_session_has_what_it_needs_although_the_database_has_another_default(
    server: PostgresServer, url: str, setting: str, value: str, used: str
) -> None:
    server.sql(f"ALTER DATABASE postgres SET {setting} = {value}")
    store = PostgresStore(url)
    await store.open()
    server.sql(f"ALTER DATABASE postgres RESET {setting}")

    assert store._writer is not None
    query = f"SELECT current_setting('{setting}')"
    assert await store._writer.run(lambda session: session.fetchval(query)) == used
    await store.close()


async def test_a_server_that_does_not_sync_is_named_in_the_log(
    postgres_store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(postgres_store_url)
    with caplog.at_level(logging.WARNING, "schedo.store"):
        await store.open()
    await store.close()

    assert "fsync = off" in caplog.text


class Session:
    """A session whose server has these settings."""

    def __init__(self, **settings: object) -> None:
        self._settings = {
            "version": 15,
            "shown_version": "15.18",
            "encoding": "UTF8",
            "is_read_only": False,
            "shows_sessions": True,
            "synchronous_commit": "on",
            "synchronous_standbys": "",
            "standbys": 0,
            "syncs": True,
        } | settings

    def transaction(self) -> asyncio.Lock:
        return asyncio.Lock()

    def get_server_pid(self) -> int:
        return 7

    async def fetchval(self, query: str) -> int:
        return 7

    async def fetchrow(self, query: str) -> dict[str, object]:
        return self._settings


async def test_a_postgresql_that_is_too_old_is_refused() -> None:
    with pytest.raises(StoreUnsuitable, match=r"db is PostgreSQL 13\.23; schedo needs version 14"):
        await check_server(Session(version=13, shown_version="13.23"), "db")


async def test_of_several_obstacles_the_version_is_named_first() -> None:
    session = Session(version=13, shown_version="13.23", encoding="LATIN1", shows_sessions=False)

    with pytest.raises(StoreUnsuitable, match=r"db is PostgreSQL 13\.23; schedo needs version 14"):
        await check_server(session, "db")


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({}, ""),
        ({"syncs": False}, "db has fsync = off"),
        ({"standbys": 1}, "db has an asynchronous standby: a fail-over to it can lose"),
        ({"standbys": 1, "synchronous_standbys": "*"}, ""),
        (
            {"standbys": 1, "synchronous_standbys": "*", "synchronous_commit": "local"},
            "db has synchronous_commit = local",
        ),
        (
            {"synchronous_standbys": "FIRST 1 (b)"},
            "db has no standby, but synchronous_standby_names = 'FIRST 1 (b)'",
        ),
    ],
)
async def test_settings_that_can_lose_jobs_are_named_in_the_log(
    caplog: pytest.LogCaptureFixture, settings: dict[str, object], warning: str
) -> None:
    with caplog.at_level(logging.WARNING, "schedo.store"):
        await check_server(Session(**settings), "db")

    assert len(caplog.messages) == (1 if warning else 0)
    assert warning in caplog.text


@pytest.mark.parametrize("mode", ["session", "transaction"])
async def test_a_pooler_is_refused_and_leaves_nothing(
    server: PostgresServer, mode: Literal["session", "transaction"]
) -> None:
    with pooling(server, mode) as url:
        error = await refused(url, "is a pooler: .* give the URL of the server itself")

    assert isinstance(error, StoreUnsuitable)
    assert server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'jobs'") == "0"


async def test_a_pooler_that_fails_first_is_refused_without_the_advice_of_the_driver() -> None:
    fields = {"S": "ERROR", "C": "42P05", "M": 'prepared statement "s_1" already exists'}
    failed = asyncpg.PostgresError.new(fields)
    assert "set statement_cache_size to 0" in str(failed)

    error = opening_error(failed, "postgresql://db/jobs")

    assert str(error) == (
        'cannot use postgresql://db/jobs: prepared statement "s_1" already exists;'
        " a pooler is no place for the writer of the store: give the URL of the server itself"
    )


async def test_a_url_is_shown_without_its_password() -> None:
    store = open_store("postgresql://ann:secret@db1,db2:6000/jobs?sslmode=require&password=x")

    assert isinstance(store, PostgresStore)
    shown = store._address.shown
    assert shown == "postgresql://ann@db1,db2:6000/jobs?sslmode=require"
    assert store._address.url.startswith(
        "postgresql://ann:secret@db1,db2:6000/jobs?sslmode=require"
    )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:se/cret@db/jobs",
        "postgresql://ann:12/cret@db/jobs",
        "postgresql://ann:se?cret@db/jobs",
        "postgresql://ann:se#cret@db/jobs",
        "postgresql://ann:cret@ret@db/jobs",
        "postgresql://ann:[cret@db/jobs",
    ],
)
def test_a_password_that_is_not_encoded_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(Invalid, match="%") as caught:
        open_store(url)

    assert "cret" not in str(caught.value) + without_password(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://@/jobs?host=%2Fvar%2Frun%2Fpostgresql",
        "postgresql://ann:se%2Fcret@db:5432,db-2.example.org/jobs",
        "postgres://ann@[2001:db8::1]:5433/jobs",
        "postgresql://ann%40example@db/jobs",
    ],
)
def test_a_url_is_read(url: str) -> None:
    assert parse_address(url).url == url
