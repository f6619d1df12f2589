"""The rights of the users of PostgreSQL as which servers log in: what is missing is named."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from schedo.errors import StoreUnsuitable
from schedo.store.postgres.store import PostgresStore
from tests.postgres import USER, PostgresServer, refused, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    yield server.url(schema="jobs")
    server.sql("DROP SCHEMA IF EXISTS jobs CASCADE")


async def test_a_user_without_the_right_to_create_the_schema_gets_the_statement(
    server: PostgresServer,
) -> None:
    server.sql("CREATE ROLE poor LOGIN")
    url = server.url(schema="jobs").replace(f"//{USER}@", "//poor@")

    error = await refused(url, "permission denied for database postgres; .*GRANT CREATE")

    assert isinstance(error, StoreUnsuitable)
    server.sql("CREATE SCHEMA jobs AUTHORIZATION poor")
    store = PostgresStore(url)
    assert (await store.open()).epoch == 1
    await store.close()
    server.sql("DROP SCHEMA jobs CASCADE")
    server.sql("DROP ROLE poor")


async def test_a_user_who_may_not_write_all_rows_gets_the_missing_rights(
    server: PostgresServer, url: str
) -> None:
    await PostgresStore(url).migrate()
    server.sql(
        "CREATE ROLE weak LOGIN; SET search_path = jobs; GRANT USAGE ON SCHEMA jobs TO weak;"
        " GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA jobs TO weak;"
        " GRANT USAGE ON ALL SEQUENCES IN SCHEMA jobs TO weak;"
        " REVOKE INSERT, UPDATE ON inbox FROM weak; REVOKE INSERT ON attempt FROM weak"
    )
    weak = url.replace(f"//{USER}@", "//weak@")
    try:
        error = await refused(weak, "lacks the rights INSERT on attempt; .*roles.sql")
        assert isinstance(error, StoreUnsuitable)
        server.sql("GRANT INSERT ON jobs.attempt TO weak")
        store = PostgresStore(weak)
        await store.open()
        await store.close()
    finally:
        server.sql("DROP OWNED BY weak; DROP ROLE weak")


async def test_a_user_who_may_use_only_the_tables_gets_the_other_missing_rights(
    server: PostgresServer, url: str
) -> None:
    """A hardened database lets not everyone execute a function."""
    await PostgresStore(url).migrate()
    server.sql(
        "CREATE ROLE weak LOGIN; GRANT USAGE ON SCHEMA jobs TO weak;"
        " GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA jobs TO weak;"
        " REVOKE EXECUTE ON FUNCTION jobs.take_over FROM PUBLIC"
    )
    weak = url.replace(f"//{USER}@", "//weak@")
    try:
        error = await refused(weak, "lacks the rights USAGE on epoch, EXECUTE on take_over; ")
        assert isinstance(error, StoreUnsuitable)
        assert server.sql("SELECT count(*) FROM jobs.shard WHERE owner IS NOT NULL") == "0"
    finally:
        server.sql("DROP OWNED BY weak; DROP ROLE weak")


async def test_a_start_warns_if_servers_of_two_users_take_each_other_for_dead(
    server: PostgresServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.sql('CREATE ROLE one LOGIN; CREATE ROLE "Two" LOGIN')
    server.sql("CREATE SCHEMA jobs AUTHORIZATION one")
    first = PostgresStore(url.replace(f"//{USER}@", "//one@"))
    await first.open()
    server.sql(
        'GRANT USAGE ON SCHEMA jobs TO "Two"; GRANT USAGE ON ALL SEQUENCES IN SCHEMA jobs TO "Two";'
        ' GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA jobs TO "Two"'
    )

    async def is_warned() -> bool:
        caplog.clear()
        second = PostgresStore(url.replace(f"//{USER}@", "//Two@"))
        await second.open()
        await second.close()
        warning = 'another server, which logs in as the user one; .* TO one, "Two"$'
        return any(re.search(warning, message) for message in caplog.messages)

    try:
        assert await is_warned()
        server.sql("GRANT pg_read_all_stats TO one")
        assert await is_warned()  # the second one does not see the first one yet
        server.sql('GRANT pg_read_all_stats TO "Two"')
        assert not await is_warned()
    finally:
        await first.close()
        server.sql('DROP SCHEMA jobs CASCADE; DROP OWNED BY one, "Two"; DROP ROLE one, "Two"')
