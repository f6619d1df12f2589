"""A copy of a store between a file and PostgreSQL has everything, or the target stays empty."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from schedo.core.bulk import BulkAction, BulkOperation
from schedo.core.changes import Changes
from schedo.core.expectations import Expectation
from schedo.core.ids import SQL_SLOT, first_id
from schedo.core.job_filter import JobFilter
from schedo.core.model import Expect, Pause, PauseScope, Queue, Rule
from schedo.errors import StoreError, StoreLocked, StoreUnsuitable
from schedo.store.base import ClockMark
from schedo.store.copying import MARKS, NOT_COPIED, NOT_COPIED_COLUMNS, TABLES, copy_store
from schedo.store.postgres import copying
from schedo.store.postgres.copying import postgres_source, postgres_target
from schedo.store.postgres.store import PostgresStore
from schedo.store.sqlite.copying import UNFINISHED_SUFFIX, sqlite_source, sqlite_target
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.servers import sharing
from tests.store.steps import LARGE, put

ID = first_id(1_800_000_000_000_000)
READ_AT_THE_START = {"queue", "pause", "expectation", "bulk_operation"}
_VALUES: dict[str, Any] = {"INTEGER": 7, "TEXT": "é☃", "BLOB": b"\x00\xff"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "a.db"


@pytest.fixture
async def filled(path: Path) -> Path:
    """A file with two rows in each table, and real jobs beside them."""
    store = SqliteStore(path)
    await store.open()
    plain, large = make_job(id=ID + 64), make_job(id=ID + 128, payload=LARGE)
    await put(store, plain, large, make_job(id=ID + SQL_SLOT))
    await store.session_key()
    await store.commit(read_at_the_start())
    await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in {*TABLES} - READ_AT_THE_START:
            fill(connection, table)
        connection.execute("INSERT INTO meta VALUES ('decided_at', 77), ('clock_offset_us', -5)")
        connection.execute("UPDATE meta SET value = 41 WHERE name = 'epoch'")
    return path


def read_at_the_start() -> Changes:
    """Return two records for each table in which an open expects records."""
    rule, expect = Rule(every_us=7), Expect(within_us=5)
    began = BulkOperation(id=ID, action=BulkAction.RETRY, which=JobFilter(), created_at=1, before=1)
    undo = msgspec.structs.replace(began, id=ID + 64, undoes=began.id)
    return Changes(
        queues={name: Queue(name, concurrency=2) for name in ("a", "é☃")},
        pauses={scope: Pause(scope, since=5, note="a note") for scope in PauseScope},
        expectations={
            ident: Expectation(ident, f"e{ident}", True, rule, expect, 1, 2, 3, 4)
            for ident in (ID + 640, ID + 704)
        },
        bulk_operations={each.id: each for each in (began, undo)},
    )


def fill(connection: sqlite3.Connection, table: str) -> None:
    """Insert two rows; a value says of which column and row it is."""
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    marks = ", ".join("?" * len(columns))
    for number in (1, 2):
        row = [value_of(name, kind, number, is_set) for _, name, kind, is_set, *_ in columns]
        connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)


def value_of(name: str, kind: str, number: int, is_set: int) -> object:
    if name == "last_runs":
        return f'[{{"b": {number}, "a": null}}]'
    if number == 2 and not is_set and not name.endswith("id"):
        return None
    value = _VALUES[kind]
    return value + 2**62 * (number - 1) + number if isinstance(value, int) else value * number


@pytest.fixture
async def admin(postgres_store_url: str) -> AsyncIterator[asyncpg.Connection]:
    schema = postgres_store_url.rpartition("=")[2]
    url = postgres_store_url.removesuffix(f"schema={schema}").rstrip("?&")
    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    yield connection
    await connection.close()


def ignore(table: str, rows: int) -> None:
    """Show no progress."""


def dump(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return what a file has in the tables that are copied, and its marks."""
    with closing(sqlite3.connect(path)) as connection:
        found = {
            table: connection.execute(f"SELECT * FROM {table} ORDER BY {', '.join(key)}").fetchall()
            for table, key in TABLES.items()
        }
        found["bulk_undo"] = connection.execute("SELECT * FROM bulk_undo").fetchall()
        marks = connection.execute("SELECT name, value FROM meta ORDER BY name").fetchall()
    return found | {"marks": [each for each in marks if each[0] in ("epoch", *MARKS)]}


async def test_a_copy_to_postgresql_and_back_has_every_row_and_mark(
    filled: Path, postgres_store_url: str, admin: asyncpg.Connection
) -> None:
    back = filled.with_name("back.db")

    there = await copy_store(
        sqlite_source(str(filled)), postgres_target(postgres_store_url), ignore
    )
    again = await copy_store(postgres_source(postgres_store_url), sqlite_target(str(back)), ignore)

    assert [each.table for each in there] == [*TABLES, "meta"]
    assert all(each.is_equal and each.rows >= 2 for each in there)
    assert [(each.table, each.digest) for each in again] == [
        (each.table, each.digest) for each in there
    ]
    old, new = dump(filled), dump(back)
    for found in (old, new):  # PostgreSQL writes JSON in another way
        found["run_history"] = [row[:-1] for row in found["run_history"]]
    assert len(new["bulk_undo"]) == 1
    assert new == old
    assert await admin.fetchval("SELECT count(*) FROM pg_indexes WHERE tablename = 'job'") > 10


async def test_a_copy_has_the_clock_that_the_servers_agreed_on_last(
    filled: Path, postgres_store_url: str
) -> None:
    """The second server has followed a step of the clock, and the first one has not lived then."""
    back = filled.with_name("back.db")
    first, second = PostgresStore(postgres_store_url), PostgresStore(postgres_store_url)
    async with AsyncExitStack() as stack:
        for store in (first, second):
            await store.open()
            stack.push_async_callback(store.close)
            await store.save_clock(ClockMark(0, 70, boot=5))
        await second.save_clock(ClockMark(1_000, 1_070, boot=5))

    await copy_store(postgres_source(postgres_store_url), sqlite_target(str(back)), ignore)

    copy = SqliteStore(back)
    clock = (await copy.open()).clock
    await copy.close()
    assert (clock.offset_us, clock.base_us, clock.boot) == (1_000, 1_070, 5)


async def test_all_servers_of_a_copied_store_have_its_clock(
    filled: Path, postgres_store_url: str
) -> None:
    await copy_store(sqlite_source(str(filled)), postgres_target(postgres_store_url), ignore)

    async with sharing(postgres_store_url, 2) as stores:
        assert [(await each.snapshot()).clock.offset_us for each in stores] == [-5, -5]


async def test_the_minutes_of_several_servers_become_one(
    path: Path, admin: asyncpg.Connection, postgres_store_url: str
) -> None:
    store = PostgresStore(postgres_store_url)
    await store.open()
    await store.close()
    rows = [(1, 60, 1), (1, 120, 2), (2, 120, 3), (3, 120, 4), (2, 180, 5)]
    for server, at, started in rows:
        figures = f'{{"counts":{{"started":{started}}}}}'
        await admin.execute(
            "INSERT INTO minute (server, at, figures) VALUES ($1, $2, $3)", server, at, figures
        )

    done = await copy_store(postgres_source(postgres_store_url), sqlite_target(str(path)), ignore)

    assert all(each.is_equal for each in done)
    assert [
        (at, json.loads(figures)["counts"]["started"]) for at, figures in dump(path)["minute"]
    ] == [
        (60, 1),
        (120, 9),
        (180, 5),
    ]


async def test_new_ids_and_numbers_follow_those_that_were_copied(
    filled: Path, postgres_store_url: str, admin: asyncpg.Connection
) -> None:
    await copy_store(sqlite_source(str(filled)), postgres_target(postgres_store_url), ignore)

    assert await admin.fetchval("SELECT last_value FROM inbox_number") >= ID // 64
    numbers = await admin.fetchrow(
        "SELECT max(number), nextval(pg_get_serial_sequence('action_log', 'number'))"
        " FROM action_log"
    )
    assert numbers[1] == numbers[0] + 1
    store = PostgresStore(postgres_store_url)
    assert (await store.open()).epoch == 43  # the copy has opened the file with 42
    await store.close()


async def test_every_table_and_column_of_both_stores_is_copied_or_known(
    path: Path, postgres_store_url: str, admin: asyncpg.Connection
) -> None:
    for store in (SqliteStore(path), PostgresStore(postgres_store_url)):
        await store.open()
        await store.close()
    with closing(sqlite3.connect(path)) as connection:
        ours = {name for (name,) in connection.execute("SELECT name FROM pragma_table_list")}
        ours -= {"sqlite_schema", "sqlite_temp_schema"}
    theirs = {
        name
        for (name,) in await admin.fetch(
            "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p')"
            " AND relnamespace = current_schema()::regnamespace"
        )
    }

    assert ours | theirs == {*TABLES} | NOT_COPIED
    async with (
        sqlite_source(str(path)) as old,
        postgres_target(postgres_store_url) as new,
    ):
        for table in TABLES:
            differing = {*await old.columns(table)} ^ {*await new.columns(table)}
            assert {(table, name) for name in differing} <= NOT_COPIED_COLUMNS


class Interrupted(Exception):
    pass


def interrupt(table: str, rows: int) -> None:
    if table == "output":
        raise Interrupted


async def test_an_interrupted_copy_leaves_the_target_empty(
    filled: Path, postgres_store_url: str
) -> None:
    back = filled.with_name("back.db")

    with pytest.raises(Interrupted):
        await copy_store(sqlite_source(str(filled)), postgres_target(postgres_store_url), interrupt)
    await copy_store(sqlite_source(str(filled)), postgres_target(postgres_store_url), ignore)
    with pytest.raises(Interrupted):
        await copy_store(postgres_source(postgres_store_url), sqlite_target(str(back)), interrupt)

    assert {each.name for each in back.parent.iterdir() if each.name.startswith("back")} <= {
        "back.db.lock"
    }
    await copy_store(postgres_source(postgres_store_url), sqlite_target(str(back)), ignore)


async def test_a_copy_that_differs_is_not_kept(
    filled: Path, postgres_store_url: str, admin: asyncpg.Connection, monkeypatch: Any
) -> None:
    store = PostgresStore(postgres_store_url)
    await store.migrate()
    await admin.execute(
        """CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN NEW.task = 'other'; RETURN NEW; END $$;
        CREATE TRIGGER spoil BEFORE INSERT ON job FOR EACH ROW EXECUTE FUNCTION spoil()"""
    )

    done = await copy_store(sqlite_source(str(filled)), postgres_target(postgres_store_url), ignore)

    assert [each.table for each in done if not each.is_equal] == ["job"]
    assert await admin.fetchval("SELECT count(*) FROM job") == 0


async def test_a_store_that_a_server_has_is_not_copied(
    filled: Path, postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "LOCK_S", 0.05)
    store = SqliteStore(filled)
    await store.open()
    with pytest.raises(StoreLocked):
        await copy_store(sqlite_source(str(filled)), postgres_target(postgres_store_url), ignore)
    await store.close()

    other = PostgresStore(postgres_store_url)
    await other.open()
    with pytest.raises(StoreLocked, match=r"stop it first: schedo \S+ \d+ \(PostgreSQL session"):
        await copy_store(sqlite_source(str(filled)), postgres_target(postgres_store_url), ignore)
    await other.close()


async def test_a_server_that_starts_during_a_copy_is_told_so(postgres_store_url: str) -> None:
    async with postgres_target(postgres_store_url):
        with pytest.raises(StoreLocked, match=r"is being copied; .*: schedo \S+ \d+ copies"):
            await PostgresStore(postgres_store_url).open()


async def test_a_target_must_be_empty_and_a_source_must_have_no_jobs_of_sql(
    filled: Path, postgres_store_url: str, admin: asyncpg.Connection
) -> None:
    await PostgresStore(postgres_store_url).migrate()
    await admin.fetchval("SELECT enqueue('mail')")

    with pytest.raises(StoreUnsuitable, match=r"rows in the table inbox; .*\?schema=NAME"):
        await copy_store(sqlite_source(str(filled)), postgres_target(postgres_store_url), ignore)
    other = str(filled.with_name("back.db"))
    with pytest.raises(StoreUnsuitable, match="1 jobs of SQL clients wait in the inbox"):
        await copy_store(postgres_source(postgres_store_url), sqlite_target(other), ignore)
    await admin.execute("DELETE FROM inbox")
    with pytest.raises(StoreUnsuitable, match=f"there is a store at {filled} already"):
        await copy_store(postgres_source(postgres_store_url), sqlite_target(str(filled)), ignore)
    with pytest.raises(StoreUnsuitable, match="there is no store"):
        await copy_store(sqlite_source(other), postgres_target(postgres_store_url), ignore)
    assert not {each.name for each in filled.parent.iterdir()} & {"back.db"}


async def test_a_schema_in_which_a_server_only_had_minutes_counts_as_empty(
    filled: Path, postgres_store_url: str, admin: asyncpg.Connection
) -> None:
    await PostgresStore(postgres_store_url).migrate()
    await admin.execute("INSERT INTO minute (server, at, figures) VALUES (1, 1, '{}')")

    done = await copy_store(sqlite_source(str(filled)), postgres_target(postgres_store_url), ignore)

    assert all(each.is_equal for each in done)
    assert [*await admin.fetch("SELECT at FROM minute WHERE at = 1")] == []


async def test_jobs_of_sql_that_come_during_a_copy_leave_the_target_empty(
    path: Path, postgres_store_url: str, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server would take them any more: the operator starts none on the old store."""
    monkeypatch.setattr(copying, "_END_READING", copying._END_READING.replace("2s", "10ms"))
    await PostgresStore(postgres_store_url).migrate()
    transaction = admin.transaction()
    await transaction.start()
    await admin.fetchval("SELECT enqueue('mail')")

    with pytest.raises(StoreUnsuitable, match="in open transactions; end them"):
        await copy_store(postgres_source(postgres_store_url), sqlite_target(str(path)), ignore)
    async with postgres_source(postgres_store_url) as source:
        await transaction.commit()
        with pytest.raises(StoreUnsuitable, match="1 jobs of SQL clients wait in the inbox"):
            await source.end()

    assert "a.db" not in {each.name for each in path.parent.iterdir()}


async def test_large_rows_are_read_a_few_at_a_time(postgres_store_url: str) -> None:
    store = PostgresStore(postgres_store_url)
    await store.open()
    megabyte = b"x" * 1_048_576
    await put(store, *(make_job(id=64 * at, result=megabyte) for at in range(1, 41)))
    await store.close()

    async with postgres_source(postgres_store_url) as source:
        pages = [len(rows) async for rows in source.read("job", ["id", "result"], ["id"])]

    assert sum(pages) == 40
    assert max(pages) <= 16


async def test_what_a_killed_copy_has_left_is_removed_by_the_next_one(
    filled: Path, postgres_store_url: str
) -> None:
    await copy_store(sqlite_source(str(filled)), postgres_target(postgres_store_url), ignore)
    back = filled.with_name("back.db")
    (back.parent / f"{back.name}{UNFINISHED_SUFFIX}").write_bytes(b"half")

    await copy_store(postgres_source(postgres_store_url), sqlite_target(str(back)), ignore)

    store = SqliteStore(back)
    await store.open()
    job = await store.get_job(ID + 128)
    await store.close()
    assert job is not None
    assert job.payload == LARGE
    assert not [each for each in back.parent.iterdir() if UNFINISHED_SUFFIX in each.name]


async def test_a_store_with_other_columns_is_not_copied(
    filled: Path, postgres_store_url: str, admin: asyncpg.Connection
) -> None:
    await PostgresStore(postgres_store_url).migrate()
    await admin.execute("ALTER TABLE output ADD COLUMN more text")

    with pytest.raises(StoreError, match=r"the table output has other columns .* more"):
        await copy_store(sqlite_source(str(filled)), postgres_target(postgres_store_url), ignore)
