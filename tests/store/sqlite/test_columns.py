"""Every field of a record has a column that keeps its value."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import pytest

from schedo.core.model import Failure, Job, Options, Trigger
from schedo.core.states import State
from schedo.store import rows
from schedo.store.columns import Codec, Columns
from schedo.store.sqlite.schema import migrate
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.steps import put

# The tables, and the columns that number their rows.
TABLES = {
    "job": (rows.JOB, ("released",)),
    "schedule": (rows.SCHEDULE, ()),
    "queue": (rows.QUEUE, ()),
    "attempt": (rows.ATTEMPT, ("number",)),
    "decision": (rows.DECISION, ("number",)),
    "idempotency_record": (rows.IDEMPOTENCY_RECORD, ()),
}
# Another value of each type than the default of any field.
SAMPLES: dict[str, Any] = {
    "int": 77,
    "str": "x",
    "bool": True,
    "bytes": b"[7]",
    "Options": Options(timeout_us=5),
    "State": State.CANCELLED,
    "Trigger": Trigger.MANUAL,
    "Failure": Failure("boom", "it broke", exit_code=1),
}


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


def sample(name: str) -> Any:
    hint = str(Job.__annotations__[name])
    return SAMPLES[hint.removesuffix(" | None")]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_a_column_for_each_field(table: str, connection: sqlite3.Connection) -> None:
    columns, numbers = TABLES[table]
    found = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}

    assert found == {*columns.inserted, *numbers}


@pytest.mark.parametrize("buffered", [True, False], ids=["buffered", "in the table"])
@pytest.mark.parametrize("name", [name for name in rows.JOB.names if name != "id"])
async def test_each_field_of_a_new_job_is_stored(
    store: SqliteStore, name: str, buffered: bool
) -> None:
    job = make_job(id=1, **{name: sample(name)})

    await put(store, job)
    if not buffered:
        await store.snapshot()  # flushes

    assert getattr(await store.get_job(1), name) == sample(name)


@pytest.mark.parametrize("buffered", [True, False], ids=["buffered", "in the table"])
@pytest.mark.parametrize("name", [name for name in rows.JOB.names if name != "id"])
async def test_a_field_of_a_known_job_changes_unless_it_is_fixed(
    store: SqliteStore, name: str, buffered: bool
) -> None:
    job = make_job(id=1)
    before = getattr(job, name)
    await put(store, job)
    if not buffered:
        await store.snapshot()

    setattr(job, name, sample(name))
    await put(store, job)

    expected = sample(name) if name in rows.JOB.mutable else before
    assert getattr(await store.get_job(1), name) == expected


class Colour(StrEnum):
    RED = "red"


class Inner(msgspec.Struct):
    n: int


@dataclasses.dataclass
class Record:
    id: int
    colour: Colour | None = Colour.RED
    flag: bool = False
    inner: Inner | None = None
    cache: str = "memory only"


class Frozen(NamedTuple):
    id: int
    colour: Colour = Colour.RED


def test_the_type_of_a_field_decides_how_it_is_stored() -> None:
    columns = Columns(
        Record, memory_only=("cache",), fixed=("id",), derived={"twice": "2 * record.id"}
    )
    record = Record(4, flag=True, inner=Inner(7))
    row = columns.compile_row(columns.inserted)(record)

    assert columns.names == ("id", "colour", "flag", "inner")
    assert columns.mutable == ("colour", "flag", "inner")
    assert row == (4, "red", 1, '{"n":7}', 8)
    assert type(row[1]) is str
    assert columns.compile_record()(row[:-1]) == record


def test_a_value_that_is_none_stays_none() -> None:
    columns = Columns(Record, memory_only=("cache",))
    record = Record(4, colour=None)
    row = columns.compile_row(columns.names)(record)

    assert row == (4, None, 0, None)
    assert columns.compile_record()(row) == record


def test_a_frozen_record_is_read_from_its_row() -> None:
    columns = Columns(Frozen, codecs={"id": Codec("record.id + 1", "{} - 1")})

    assert columns.compile_row(columns.names)(Frozen(1)) == (2, "red")
    assert columns.compile_record()((2, "red")) == Frozen(1, Colour.RED)
