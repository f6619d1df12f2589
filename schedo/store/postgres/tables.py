"""The statements that write the records of a table, many rows in one statement.

A statement takes one array for each column. The types of the arrays follow from the fields of the
class whose records the table has (see store/columns.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from schedo.core.bulk_undo import BulkStep
from schedo.core.changes import AttemptRecord, IdempotencyRecord
from schedo.core.cordoned_worker import CordonedWorker
from schedo.core.expectations import Expectation
from schedo.core.model import DecisionRecord, Job, Pause, Queue, Schedule
from schedo.store import rows
from schedo.store.columns import Row

INTEGER, TEXT, BYTES = "bigint", "text", "bytea"


class Statement(NamedTuple):
    """A statement with its parameters; each: it runs for each of them in their order."""

    sql: str
    parameters: Sequence[Any]
    each: bool = False


def types_of(kind: type, **derived: str) -> dict[str, str]:
    """Return the type of each column of the records of a class, by the name of the field."""
    return {name: _type(hint) for name, hint in get_type_hints(kind).items()} | derived


def _type(hint: Any) -> str:
    kinds = [each for each in get_args(hint) or (hint,) if each is not NoneType]
    kind = kinds[0] if kinds and isinstance(kinds[0], type) else object
    if issubclass(kind, bytes):
        return BYTES
    is_list = ... in get_args(hint)  # a tuple of any length, as JSON
    return TEXT if is_list or issubclass(kind, str | msgspec.Struct) else INTEGER


class Table:
    """A table and the types of its columns, in the order of its rows."""

    def __init__(self, name: str, types: Mapping[str, str], names: Sequence[str]) -> None:
        self.name, self.names = name, tuple(names)
        self._types = types

    def arrays(self, names: Iterable[str], first: int = 1) -> str:
        """Return the source of the rows whose columns the parameters from `first` on have."""
        casts = (f"${at}::{self._types[name]}[]" for at, name in enumerate(names, first))
        return f"unnest({', '.join(casts)})"

    @property
    def insert(self) -> str:
        """The statement that inserts rows of `names`."""
        columns = ", ".join(self.names)
        return f"INSERT INTO {self.name} ({columns}) SELECT * FROM {self.arrays(self.names)}"

    def upsert(self, key: str) -> str:
        """Return the statement that inserts rows, or replaces those with the same key."""
        changed = ", ".join(f"{name} = excluded.{name}" for name in self.names if name != key)
        return f"{self.insert} ON CONFLICT ({key}) DO UPDATE SET {changed}"


def columns_of(rows_: Sequence[Row], width: int) -> tuple[Any, ...]:
    """Return the arrays of the columns of rows with this number of values."""
    return tuple(zip(*rows_, strict=True)) if rows_ else ((),) * width


JOB_TYPES = types_of(Job, requirements=TEXT, shard="smallint")
JOB = Table("job", JOB_TYPES, (*rows.JOB.inserted, "shard"))
CHANGED_JOB = (*rows.JOB.mutable, "id")
SCHEDULE = Table("schedule", types_of(Schedule, name=TEXT, elapsed=INTEGER), rows.SCHEDULE.inserted)
QUEUE = Table("queue", types_of(Queue), rows.QUEUE.names)
PAUSE = Table("pause", types_of(Pause), rows.PAUSE.names)
CORDON = Table("cordon", types_of(CordonedWorker), rows.CORDON.names)
EXPECTATION = Table("expectation", types_of(Expectation), rows.EXPECTATION.names)
IDEMPOTENCY_RECORD = Table(
    "idempotency_record", types_of(IdempotencyRecord), rows.IDEMPOTENCY_RECORD.names
)
ATTEMPT = Table("attempt", types_of(AttemptRecord), rows.ATTEMPT.names)
DECISION = Table("decision", types_of(DecisionRecord), rows.DECISION.names)
STEP = Table("bulk_step", {**types_of(BulkStep), "jobs": TEXT}, BulkStep._fields)
