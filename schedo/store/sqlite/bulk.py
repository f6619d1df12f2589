"""Bulk statements, which write many rows in one step.

Each step of a statement releases the interpreter's lock to the event loop's thread, and the wait to
get it back can take ten times as long as writing one row.

To bind NULL takes sqlite3 seven times as long as to bind a number, because it looks for an adapter
first. A job has many NULLs, most of them in the same few columns. So a shape names columns that are
NULL in most rows, and its statements bind only the other values.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from itertools import chain, repeat
from operator import eq, itemgetter
from typing import Any, NamedTuple

Values = tuple[Any, ...]

# The numbers of rows that one statement writes. The rows that are left are written one by one.
COUNTS = (100, 10)


class Shape(NamedTuple):
    """The bulk statements for rows that are NULL in some columns.

    statements: by the number of rows that each writes. bound: returns the values of a row that they
    bind, and omitted: its other values, which must equal `nulls`; None: they bind all.
    """

    statements: dict[int, str]
    bound: Callable[[Values], Values] = tuple
    omitted: Callable[[Values], Values] | None = None
    nulls: Values = ()


def make_shape(
    names: Sequence[str], nulls: Collection[str], statement: Callable[[list[str], int], str]
) -> Shape:
    """Return the shape of the rows of `names` that are NULL in `nulls`, at least two columns.

    statement: returns the SQL that writes a number of rows, given the names of their bound values.
    """
    bound = [at for at, name in enumerate(names) if name not in nulls]
    omitted = [at for at, name in enumerate(names) if name in nulls]
    return Shape(
        {count: statement([names[at] for at in bound], count) for count in COUNTS},
        itemgetter(*bound),
        itemgetter(*omitted),
        (None,) * len(omitted),
    )


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
    omitted, nulls = shape.omitted, shape.nulls
    if omitted is None or all(map(eq, map(omitted, rows), repeat(nulls))):  # as most are
        return rows, ()
    matching: list[Any] = []
    others: list[Any] = []
    for row in rows:
        (matching if omitted(row) == nulls else others).append(row)
    return matching, others
