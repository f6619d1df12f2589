"""How a database server treats the tables of a store, for those who operate it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

INBOX_COUNTED_MAX = 100_000


class TableHealth(NamedTuple):
    """A table: its size with its indexes, and how many dead rows wait for a vacuum."""

    name: str
    size_bytes: int
    live_rows: int  # both as the database estimates them
    dead_rows: int
    vacuumed_at: int | None  # in microseconds UTC; None: never


class Holder(NamedTuple):
    """A transaction that lasts; while it does, no row that has died since can be removed.

    age_us: for how long; None if the database does not say so, as for a replication slot.
    transactions: how many have begun since it sees the tables.
    """

    kind: str  # session, prepared transaction, replication slot
    name: str  # of the application, of the transaction or of the slot
    pid: int | None
    age_us: int | None
    transactions: int

    def __str__(self) -> str:
        pid = f" (pid {self.pid})" if self.pid is not None else ""
        return f"the {self.kind} {self.name!r}{pid}"


class InboxHealth(NamedTuple):
    """Jobs of SQL clients that no server has taken yet, of at most INBOX_COUNTED_MAX."""

    rows: int
    oldest_at: int | None  # the instant of the first one, by the clock of the database; None: none


class DatabaseHealth(NamedTuple):
    """The tables of a store, the oldest snapshot that any transaction uses, and the longest one."""

    tables: Sequence[TableHealth]
    oldest_snapshot: Holder | None
    longest_transaction: Holder | None
    inbox: InboxHealth = InboxHealth(0, None)
