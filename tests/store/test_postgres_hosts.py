"""A URL with several hosts: each host gets its time, and the one that had a session comes first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schedo.errors import StoreError, StoreUnsuitable
from schedo.store.postgres import hosts
from schedo.store.postgres.address import parse_address
from schedo.store.postgres.session import close, connect
from schedo.store.postgres.store import PostgresStore
from tests.postgres import USER, PostgresServer, refused, running_server


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "CONNECT_S", 3.0)
    monkeypatch.setattr(hosts, "_last", {})


class Silent:
    """The directory of a host that takes connections and never responds, and counts them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.asked = 0

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        while await reader.read(1_024):
            pass
        writer.close()


@pytest.fixture
async def silent(tmp_path: Path) -> AsyncIterator[Silent]:
    silent = Silent(tmp_path)
    async with await asyncio.start_unix_server(silent.hear, tmp_path / ".s.PGSQL.5432"):
        yield silent


def url_of(*found: Silent | PostgresServer | Path, schema: str = "hosts") -> str:
    directories = [str(each if isinstance(each, Path) else each.directory) for each in found]
    return f"postgresql://{USER}@/postgres?host={','.join(directories)}&schema={schema}"


async def test_a_store_opens_at_its_second_host_when_the_first_one_does_not_respond(
    silent: Silent, primary: PostgresServer
) -> None:
    store = PostgresStore(url_of(silent, primary), 30_000_000)

    await store.open()

    assert silent.asked == 1  # the other sessions began at the second host
    await store.close()


async def test_a_host_that_ends_each_connection_keeps_none_from_the_next_one(
    primary: PostgresServer, tmp_path: Path
) -> None:
    """So does a proxy whose database is down."""

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_unix_server(end, tmp_path / ".s.PGSQL.5432"):
        connection = await connect(parse_address(url_of(tmp_path, primary)), "test")

    assert not await connection.fetchval("SELECT pg_is_in_recovery()")
    await close(connection)


async def test_a_host_that_has_no_session_left_keeps_none_from_the_next_one(
    primary: PostgresServer,
) -> None:
    """It may be a standby that was the primary, and had the last session, before a fail-over."""
    with running_server() as full:
        full.sql("CREATE ROLE app LOGIN CONNECTION LIMIT 0")
        primary.sql("CREATE ROLE app LOGIN")
        url = url_of(full, primary).replace(f"{USER}@", "app@")
        connection = await connect(parse_address(url), "test")

        alone = await refused(
            url_of(full, full).replace(f"{USER}@", "app@"), "too many connections"
        )

    assert await connection.fetchval("SELECT current_user") == "app"
    assert not isinstance(alone, StoreUnsuitable)
    await close(connection)


async def test_the_host_that_takes_writes_is_found_in_any_place(
    primary: PostgresServer, standby: PostgresServer, tmp_path: Path
) -> None:
    for order in ((standby, primary), (primary, standby), (tmp_path, standby, primary)):
        connection = await connect(parse_address(url_of(*order)), "test")
        assert not await connection.fetchval("SELECT pg_is_in_recovery()")
        await close(connection)


async def test_reads_prefer_a_standby_in_any_place_and_take_a_primary_else(
    primary: PostgresServer, standby: PostgresServer, tmp_path: Path
) -> None:
    found = []
    for order in ((primary, standby), (standby, primary), (tmp_path, primary)):
        connection = await connect(parse_address(url_of(*order)), "test", "prefer-standby")
        found.append(await connection.fetchval("SELECT pg_is_in_recovery()"))
        await close(connection)

    assert found == [True, True, False]


async def test_a_standby_alone_is_refused_but_of_several_hosts_one_may_become_the_primary(
    standby: PostgresServer, tmp_path: Path
) -> None:
    """The exit code of the first one says that a restart cannot help."""
    alone = await refused(url_of(standby), "is read-only, as a standby is")
    both = await refused(url_of(standby, standby), "none of the hosts .* is a fail-over under way")
    with_lost = await refused(url_of(tmp_path, standby), "cannot connect")

    assert isinstance(alone, StoreUnsuitable)
    assert {type(both), type(with_lost)} == {StoreError}


async def test_no_epoch_is_given_again_after_a_fail_over_that_has_lost_the_last_ones() -> None:
    """Else an attempt that goes on would have the same lease as the one that repeats it."""
    with running_server() as first, running_server(first) as behind:
        store = PostgresStore(url_of(first, behind), 30_000_000)
        await store.open()
        behind.stop("fast")
        lost = [(await store.snapshot()).epoch for _ in range(70)]  # 32 are logged at once
        first.stop()
        behind.start()
        behind.promote()
        with pytest.raises(StoreError):
            await store.load_payload(1)

        found = [(await store.snapshot()).epoch for _ in range(2)]

        await store.close()
    assert max(lost) < found[0] < found[1]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (
            "postgresql://ann:a%2Cb@db1,db2:6000/jobs?sslmode=require&schema=x",
            [
                "postgresql://ann:a%2Cb@db1/jobs?sslmode=require",
                "postgresql://ann:a%2Cb@db2:6000/jobs?sslmode=require",
            ],
        ),
        (
            "postgresql://@/jobs?host=db1,db2&port=1,2",
            ["postgresql://@/jobs?host=db1&port=1", "postgresql://@/jobs?host=db2&port=2"],
        ),
        (
            "postgresql://[::1]:1,[::2]/jobs?port=7",
            ["postgresql://[::1]:1/jobs?port=7", "postgresql://[::2]/jobs?port=7"],
        ),
        ("postgresql://db1/jobs", ["postgresql://db1/jobs"]),
        ("postgresql://@/jobs", ["postgresql://@/jobs"]),
    ],
)
def test_a_url_has_a_url_for_each_host(url: str, found: list[str]) -> None:
    assert [*parse_address(url).hosts] == found
