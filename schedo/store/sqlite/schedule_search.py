"""The lists of schedules by name: a filter is searched in parts of LOOKED_AT_ONCE schedules.

A part looks at the next schedules of one index: of the rarest condition that has one, or of all
names. The conditions of partial indexes are repeated literally, as in queries.py.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

import msgspec

from schedo.core import limits
from schedo.core.model import Schedule
from schedo.core.schedule_filter import Health, ScheduleCounts, ScheduleFilter
from schedo.store import rows
from schedo.store.pages import SchedulePage
from schedo.store.schedule_health import (
    FAILS,
    HAS_ENDED,
    IS_PAUSED,
    health_conditions,
    is_well,
)
from schedo.store.sqlite.job_search import like_pattern

LOOKED_AT_ONCE = 250  # schedules: a millisecond, unless their payloads are large
STEP_S = 0.005  # after which other reads go on
_AFTER_ALL_NAMES = "~"

_encode = msgspec.json.Encoder().encode
_COLUMNS = ", ".join(f"schedule.{name}" for name in rows.SCHEDULE.names)
_ROW = "CROSS JOIN schedule ON schedule.id = failing.schedule_id"
_IS_OVERDUE = "schedule.id IN (SELECT value FROM json_each(:overdue))"
_TEXT = (
    "schedule.name || ' ' || (schedule.spec ->> '$.job.task')"
    " || ' ' || (schedule.spec ->> '$.job.queue')"
)
_WELL = is_well(_IS_OVERDUE)
_HEALTHS = health_conditions(_IS_OVERDUE)


class Index(NamedTuple):
    """An index by name that has all schedules which meet a condition; row: joins their rows."""

    table: str
    name: str
    condition: str = "TRUE"
    row: str = ""

    @property
    def probe(self) -> str:
        """The statement that returns the last name of the next part, if others follow it."""
        return (
            f"SELECT {self.name} FROM {self.table} WHERE {self.condition} AND {self.name} > :after"
            f" ORDER BY {self.name} LIMIT 1 OFFSET {LOOKED_AT_ONCE - 1}"
        )


_ALL = Index("schedule INDEXED BY sqlite_autoindex_schedule_1", "schedule.name")
_FAILING = Index(
    "run_history AS failing INDEXED BY run_history_failing",
    "failing.name",
    "failing.failed_in_row > 0",
    _ROW,
)
_PAUSED = Index("schedule INDEXED BY schedule_paused", "schedule.name", IS_PAUSED)
_ENDED = Index("schedule INDEXED BY schedule_ended", "schedule.name", HAS_ENDED)
_OVERDUE = Index("schedule", "schedule.name", _IS_OVERDUE)  # sorts a few
_BY_HEALTH = {
    Health.OVERDUE: _OVERDUE,
    Health.FAILING: _FAILING,
    Health.PAUSED: _PAUSED,
    Health.ENDED: _ENDED,
}


def index_of(which: ScheduleFilter) -> Index:
    """Return the index in which the schedules of the filter are searched."""
    if which.health in _BY_HEALTH:
        return _BY_HEALTH[which.health]
    if which.failing:
        return _FAILING
    return _PAUSED if which.paused else _ALL


def search_query(which: ScheduleFilter) -> str:
    """Return the statement for the first :limit schedules of the filter in a range of names."""
    index = index_of(which)
    terms = [index.condition, f"{index.name} > :after", f"{index.name} <= :until"]
    terms += _HEALTHS[which.health] if which.health is not None else ()
    terms += [FAILS] if which.failing else []
    terms += ["schedule.paused = :paused"] if which.paused is not None else []
    # The spec has all three names: most schedules that do not match are not parsed as JSON.
    for number in range(len(which.words)):
        terms += [f"({text}) LIKE :word_{number} ESCAPE '\\'" for text in ("schedule.spec", _TEXT)]
    where = " AND ".join(dict.fromkeys(terms))
    tables = f"{index.table} {index.row}".rstrip()
    return f"SELECT {_COLUMNS} FROM {tables} WHERE {where} ORDER BY {index.name} LIMIT :limit"


def search(
    connection: sqlite3.Connection,
    offset_us: int,
    which: ScheduleFilter,
    after: str | None,
    limit: int,
) -> SchedulePage:
    """Return the next schedules of the filter, after one part at least, or STEP_S."""
    step_ends = time.perf_counter() + STEP_S
    probe, query, parameters = index_of(which).probe, search_query(which), _parameters(which)
    found: list[Schedule] = []
    looked_at = size = 0
    position = after or ""
    while True:
        parameters |= {"after": position, "limit": limit - len(found)}
        end = connection.execute(probe, parameters).fetchone()
        parameters["until"] = end[0] if end else _AFTER_ALL_NAMES
        with closing(connection.execute(query, parameters)) as cursor:
            for row in cursor:  # one at a time, because payloads may be large
                found.append(rows.schedule_from_row(row, offset_us))
                size += len(found[-1].spec.job.payload)
                if len(found) == limit or size > limits.SCHEDULE_PAGE_PAYLOADS_BYTES_MAX:
                    return SchedulePage(found, found[-1].name, looked_at)
        if end is None:
            return SchedulePage(found, None, looked_at)
        position, looked_at = end[0], looked_at + LOOKED_AT_ONCE
        if time.perf_counter() > step_ends:
            return SchedulePage(found, position, looked_at)


def _parameters(which: ScheduleFilter) -> dict[str, Any]:
    words = {f"word_{n}": like_pattern(word) for n, word in enumerate(which.words)}
    return {"overdue": _encode(which.overdue).decode(), "paused": which.paused, **words}


def count(connection: sqlite3.Connection, overdue: Sequence[int]) -> ScheduleCounts:
    """Return how many schedules there are; overdue: as for ScheduleFilter."""
    parameters = {"overdue": _encode(overdue).decode()}

    def number(query: str) -> int:
        return int(connection.execute(query, parameters).fetchone()[0])

    def number_in(health: Health) -> int | None:
        seen, counted = connection.execute(count_query(health), parameters).fetchone()
        return None if seen > limits.SCHEDULES_COUNTED_MAX else int(counted)

    return ScheduleCounts(
        number("SELECT count(*) FROM schedule"),
        number(f"SELECT count(*) FROM schedule WHERE {_IS_OVERDUE}"),
        *map(number_in, (Health.FAILING, Health.PAUSED, Health.ENDED)),
    )


def count_query(health: Health) -> str:
    """Return the statement that counts some entries of the index, and those in the health."""
    index = _BY_HEALTH[health]
    ident = "schedule_id" if index is _FAILING else "id"
    some = (
        f"SELECT {ident} AS id FROM {index.table} WHERE {index.condition}"
        f" LIMIT {limits.SCHEDULES_COUNTED_MAX + 1}"
    )
    others = " AND ".join(_WELL if index is not _FAILING else _WELL[:1])
    return f"SELECT count(*), count(*) FILTER (WHERE {others}) FROM ({some}) AS schedule"
