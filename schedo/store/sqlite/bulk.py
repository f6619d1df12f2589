"""Bulk statements, which write many rows in one step.

Each step of a statement releases the interpreter's lock to the event loop's thread, and the wait to
get it back can take ten times as long as writing one row.

To bind a value takes time with the interpreter's lock, and to bind NULL takes sqlite3 seven times
as long as to bind a number, because it looks for an adapter first. Most jobs have the same value in
half of the columns, NULL in most of these. So a shape names the usual values of some columns, which
are in the text of its statements, and these bind only the other values.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, compress, repeat
from operator import eq, itemgetter, not_
from typing import Any, NamedTuple

Values = tuple[Any, ...]

# The numbers of rows that one statement writes. The rows that are left are written one by one.
# Larger statements would be a little faster, and each takes 2 to 3 kB of memory for a row.
COUNTS = (200, 50, 10, 3)


class Shape(NamedTuple):
    """The bulk statements for rows that have the usual values in some columns.

    statements: by the number of rows that each writes. bound: returns the values of a row that they
    bind, and omitted: its other values, which must equal `usual`; None: they bind all.
    """

    statements: dict[int, str]
    bound: Callable[[Values], Values] = tuple
    omitted: Callable[[Values], Values] | None = None
    usual: Values = ()


def make_shape(
    names: Sequence[str],
    usual: Mapping[str, str | int | None],
    statement: Callable[[Mapping[str, str], int], str],
) -> Shape:
    """Return the shape of the rows of `names` that have the usual values, in at least two columns.

    statement: returns the SQL that writes a number of rows, given the values of the columns as SQL:
    a question mark or a literal.
    """
    bound = [at for at, name in enumerate(names) if name not in usual]
    omitted = [at for at, name in enumerate(names) if name in usual]
    values = {name: _literal(usual[name]) if name in usual else "?" for name in names}
    return Shape(
        {count: statement(values, count) for count in COUNTS},
        itemgetter(*bound),
        itemgetter(*omitted),
        tuple(usual[names[at]] for at in omitted),
    )


def _literal(value: str | int | None) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)


def write(
    connection: sqlite3.Connection, shapes: Sequence[Shape], rows: Sequence[Any]
) -> tuple[int, list[Any]]:
    """Write most of the rows; return the number of changed rows, and the rows that are left."""
    changed = 0
    left: list[Any] = []
    for shape in shapes:
        matching, rows = _split(shape, rows)
        at = 0
        for count, sql in shape.statements.items():
            while len(matching) - at >= count:
                values = map(shape.bound, matching[at : at + count])
                changed += connection.execute(sql, [*chain.from_iterable(values)]).rowcount
                at += count
        left += matching[at:]
    return changed, [*left, *rows]


def _split(shape: Shape, rows: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    if shape.omitted is None:
        return rows, ()
    fits = [*map(eq, map(shape.omitted, rows), repeat(shape.usual))]
    if False not in fits:  # as for most
        return rows, ()
    if True not in fits:
        return (), rows
    return [*compress(rows, fits)], [*compress(rows, map(not_, fits))]
