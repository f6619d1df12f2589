"""The response of GET /v1/store."""

from __future__ import annotations

from typing import Self

from msgspec import Struct

from schedo.core.limits import SECOND
from schedo.protocol.fields import Instant
from schedo.protocol.operation import Operation
from schedo.protocol.times import render_instant
from schedo.store.database_health import DatabaseHealth, Holder, InboxHealth, TableHealth


class TableResponse(Struct, forbid_unknown_fields=True):
    """A table of the store; the database estimates the rows."""

    name: str
    size_bytes: int
    live_rows: int
    dead_rows: int
    vacuumed_at: Instant | None

    @classmethod
    def of(cls, table: TableHealth) -> Self:
        at = None if table.vacuumed_at is None else render_instant(table.vacuumed_at)
        return cls(table.name, table.size_bytes, table.live_rows, table.dead_rows, at)


class TransactionResponse(Struct, forbid_unknown_fields=True):
    """A transaction of the database that lasts, and whose it is."""

    kind: str
    name: str
    pid: int | None
    age_seconds: float | None
    transactions: int

    @classmethod
    def of(cls, holder: Holder | None) -> Self | None:
        if holder is None:
            return None
        age_s = None if holder.age_us is None else round(holder.age_us / SECOND, 3)
        return cls(holder.kind, holder.name, holder.pid, age_s, holder.transactions)


class InboxResponse(Struct, forbid_unknown_fields=True):
    """Jobs of SQL clients that no server has taken yet; at most 100,000 are counted."""

    rows: int
    oldest_at: Instant | None

    @classmethod
    def of(cls, inbox: InboxHealth) -> Self:
        at = None if inbox.oldest_at is None else render_instant(inbox.oldest_at)
        return cls(inbox.rows, at)


class StoreResponse(Struct, forbid_unknown_fields=True):
    """The store of the jobs, as of the last minute.

    `tables` is empty, and the rest is null, for a store in a file.
    """

    bytes: int
    tables: list[TableResponse]
    oldest_snapshot: TransactionResponse | None
    longest_transaction: TransactionResponse | None
    inbox: InboxResponse | None

    @classmethod
    def of(cls, size_bytes: int, health: DatabaseHealth | None) -> Self:
        if health is None:
            return cls(size_bytes, [], None, None, None)
        return cls(
            size_bytes,
            [TableResponse.of(each) for each in health.tables],
            TransactionResponse.of(health.oldest_snapshot),
            TransactionResponse.of(health.longest_transaction),
            InboxResponse.of(health.inbox),
        )


OPERATIONS = (
    Operation(
        "get_store",
        "GET /v1/store",
        "The size of the store and, in PostgreSQL, its tables and old transactions.",
        {200: StoreResponse},
    ),
)
