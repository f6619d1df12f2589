"""The lists of schedules by name: a filter is searched in parts of LOOKED_AT_ONCE schedules.

A part looks at the next schedules of one index: of the rarest condition that has one, or of all
names. The conditions of partial indexes are repeated literally, as in reads.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from schedo.core import limits
from schedo.core.job_filter import lower
from schedo.core.model import Schedule
from schedo.core.schedule_filter import Health, ScheduleCounts, ScheduleFilter
from schedo.store import rows
from schedo.store.pages import SchedulePage
from schedo.store.postgres.reads import bounded
from schedo.store.schedule_health import (
    FAILS,
    HAS_ENDED,
    IS_PAUSED,
    health_conditions,
    is_well,
)

LOOKED_AT_ONCE = 250  # schedules
STEP_S = 0.025
_AFTER_ALL_NAMES = "~"
_COLUMNS = ", ".join(rows.SCHEDULE.names)

_IS_OVERDUE = "schedule.id = ANY($1::bigint[])"
_TEXT = (
    "lower((schedule.name || ' ' || (schedule.spec::json #>> '{job,task}')"
    " || ' ' || (schedule.spec::json #>> '{job,queue}')) COLLATE \"C\")"
)
_WELL = is_well(_IS_OVERDUE)
_HEALTHS = health_conditions(_IS_OVERDUE)


class Index(NamedTuple):
    """An index by name that has all schedules which meet a condition."""

    tables: str
    name: str
    condition: str = "TRUE"


_ALL = Index("schedule", "schedule.name")
_FAILING = Index(
    "run_history AS failing JOIN schedule ON schedule.id = failing.schedule_id",
    "failing.name",
    "failing.failed_in_row > 0",
)
_BY_HEALTH = {
    Health.OVERDUE: Index("schedule", "schedule.name", _IS_OVERDUE),  # sorts a few
    Health.FAILING: _FAILING,
    Health.PAUSED: Index("schedule", "schedule.name", IS_PAUSED),
    Health.ENDED: Index("schedule", "schedule.name", HAS_ENDED),
}


def index_of(which: ScheduleFilter) -> Index:
    """Return the index in which the schedules of the filter are searched."""
    if which.health in _BY_HEALTH:
        return _BY_HEALTH[which.health]
    if which.failing:
        return _FAILING
    return _BY_HEALTH[Health.PAUSED] if which.paused else _ALL


async def search(
    connection: asyncpg.Connection,
    offset_us: int,
    which: ScheduleFilter,
    after: str | None,
    limit: int,
) -> SchedulePage:
    """Return the next schedules of the filter, after one part at least, or STEP_S."""
    step_ends = time.perf_counter() + STEP_S
    index, query = index_of(which), _query(which)
    found: list[Schedule] = []
    looked_at = size = 0
    position = after or ""
    overdue, words = list(which.overdue), [*map(lower, which.words)]
    while True:
        end = await connection.fetchval(_probe(index), overdue, position)
        until = _AFTER_ALL_NAMES if end is None else end
        left = limit - len(found)
        for row in await connection.fetch(query, overdue, position, until, left, *words):
            found.append(rows.schedule_from_row(row, offset_us))
            size += len(found[-1].spec.job.payload)
            if len(found) == limit or size > limits.SCHEDULE_PAGE_PAYLOADS_BYTES_MAX:
                return SchedulePage(found, found[-1].name, looked_at)
        if end is None:
            return SchedulePage(found, None, looked_at)
        position, looked_at = end, looked_at + LOOKED_AT_ONCE
        if time.perf_counter() > step_ends:
            return SchedulePage(found, position, looked_at)


def _probe(index: Index) -> str:
    """Return the query for the last name of the next part, if others follow it."""
    return (
        f"SELECT {index.name} FROM {index.tables} WHERE {index.condition} AND {index.name} > $2"
        f" AND $1::bigint[] IS NOT NULL ORDER BY {index.name} LIMIT 1 OFFSET {LOOKED_AT_ONCE - 1}"
    )


def _query(which: ScheduleFilter) -> str:
    """Return the query for the first schedules of the filter in a range of names."""
    index = index_of(which)
    terms = [index.condition, f"{index.name} > $2", f"{index.name} <= $3"]
    terms += _HEALTHS[which.health] if which.health is not None else ("$1::bigint[] IS NOT NULL",)
    terms += [FAILS] if which.failing else []
    terms += [f"schedule.paused = {int(which.paused)}"] if which.paused is not None else []
    terms += [f"strpos({_TEXT}, ${at}::text) > 0" for at, _ in enumerate(which.words, 5)]
    page = (
        f"SELECT schedule.* FROM {index.tables} WHERE {' AND '.join(terms)}"
        f" ORDER BY {index.name} LIMIT $4"
    )
    return bounded(_COLUMNS, page, "name")


async def count(connection: asyncpg.Connection, overdue: Sequence[int]) -> ScheduleCounts:
    """Return how many schedules there are; overdue: as for ScheduleFilter."""
    total = await connection.fetchval("SELECT count(*) FROM schedule")
    late = await connection.fetchval(f"SELECT count(*) FROM schedule WHERE {_IS_OVERDUE}", overdue)
    counts = []
    for health in (Health.FAILING, Health.PAUSED, Health.ENDED):
        seen, counted = await connection.fetchrow(_count_query(health), overdue)
        counts.append(None if seen > limits.SCHEDULES_COUNTED_MAX else counted)
    return ScheduleCounts(total, late, *counts)


def _count_query(health: Health) -> str:
    """Return the query that counts some entries of the index, and those in the health."""
    index = _BY_HEALTH[health]
    some = (
        f"SELECT schedule.id FROM {index.tables} WHERE {index.condition}"
        f" LIMIT {limits.SCHEDULES_COUNTED_MAX + 1}"
    )
    others = " AND ".join(_WELL if index is not _FAILING else _WELL[:1])
    return f"SELECT count(*), count(*) FILTER (WHERE {others}) FROM ({some}) AS schedule"
