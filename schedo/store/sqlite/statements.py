"""Builds the statements that write records, from the names of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def insert(table: str, names: Sequence[str], count: int = 1) -> str:
    """Return an insert of `count` rows whose values are all bound."""
    return insert_rows(table, dict.fromkeys(names, "?"), count)


def insert_rows(table: str, values: Mapping[str, str], count: int) -> str:
    """Return an insert of `count` rows; values: by column, `?` if it is bound.

    A value that is not bound is written once, not in each row, because every value in a row makes
    the compiled statement larger.
    """
    given = {name: value for name, value in values.items() if value != "NULL"}
    head = f"INSERT INTO {table} ({', '.join(given)})"
    bound = [name for name, value in given.items() if value == "?"]
    if len(bound) == len(given):
        return f"{head} VALUES {value_rows('?' * len(bound), count)}"
    columns = given | {name: f"column{at}" for at, name in enumerate(bound, start=1)}
    rows = value_rows("?" * len(bound), count)
    return f"{head} SELECT {', '.join(columns.values())} FROM (VALUES {rows})"


def value_rows(values: Iterable[str], count: int) -> str:
    """Return `count` rows for VALUES."""
    row = f"({', '.join(values)})"
    return ", ".join([row] * count)


def or_update(key: str, names: Sequence[str]) -> str:
    """Return what follows an insert, so that it updates the row that has the same key."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name != key)
    return f" ON CONFLICT ({key}) DO UPDATE SET {changed}"
