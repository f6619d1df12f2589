"""The search for the jobs of a list: newest first, in parts of at most LOOKED_AT_ONCE jobs each.

Each condition of a filter has an index, but a combination of conditions has none: the jobs in the
state `failed` may be in any other queue. So a part looks at the next jobs of one index, and tells
where it stopped. It takes the index whose next LOOKED_AT_ONCE entries reach furthest back: that is
the one of the rarest condition. Other reads run between two parts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from schedo.core import limits
from schedo.core.ids import ID_MAX, first_id
from schedo.core.job_filter import JobFilter
from schedo.core.model import Job
from schedo.core.states import State
from schedo.store.sqlite import queries, rows

LOOKED_AT_ONCE = 500  # jobs: about a millisecond, or some more if their pages come from the disk


class Index(NamedTuple):
    """An index in which jobs can be searched.

    tables, key and condition: of a query for its entries. is_sorted: they are in order of id;
    otherwise the index can be used only if a part can look at all its entries.
    """

    tables: str
    key: str
    condition: str
    is_sorted: bool = True

    @property
    def probe(self) -> str:
        """The statement that returns the entry after the first :looked ones of the range."""
        select = f"SELECT {self.key} FROM {self.tables} WHERE {self.condition}"
        if self.is_sorted:
            select += f" AND {self.key} BETWEEN :oldest AND :newest ORDER BY {self.key} DESC"
        return f"{select} LIMIT 1 OFFSET :looked"


def _of_job(name: str, condition: str, *, is_sorted: bool = True) -> Index:
    return Index(f"job INDEXED BY {name}", "id", condition, is_sorted)


# The conditions of partial indexes are repeated literally, as in queries.py. Queued and scheduled
# jobs are not in job_state, because almost every job passes through these states.
_STATE = f"state = :state AND {queries.LISTED_STATE}"
_QUEUED = "state = 'queued'"
_SCHEDULED = f"state = 'scheduled' AND {queries.TIMED}"
_QUEUE = f"queue = :queue AND queue <> '{limits.DEFAULT_QUEUE}'"
_TAG = "job.id IN (SELECT job_id FROM job_tag WHERE tag = :tag AND job_id = job.id)"

_ALL = Index("job NOT INDEXED", "id", "TRUE")
_BY_TAG = Index("job_tag", "job_id", "tag = :tag")
_BY_UNIQUE_KEY = _of_job("job_unique", "unique_key = :unique_key")
_BY_SCHEDULE = _of_job("job_schedule", "schedule_id = :schedule_id")
_BY_TASK = _of_job("job_task", "task = :task")
_BY_QUEUE = _of_job("job_queue", _QUEUE)
_BY_STATE = _of_job("job_state", _STATE)
_BY_INSTANT = _of_job("job_timers", queries.TIMED, is_sorted=False)
_READY = _of_job("job_ready", _QUEUED, is_sorted=False)
_READY_IN_QUEUE = _READY._replace(condition=f"{_QUEUED} AND queue = :queue")
_READY_OF_TASK = _READY._replace(condition=f"{_QUEUED} AND queue = :queue AND task = :task")


def usable_indexes(which: JobFilter) -> Iterator[Index]:
    """Return the indexes that have all jobs of the filter."""
    if which.unique_key is not None:
        yield _BY_UNIQUE_KEY
    if which.tag is not None:
        yield _BY_TAG
    if which.schedule_id is not None:
        yield _BY_SCHEDULE
    if which.queue not in (None, limits.DEFAULT_QUEUE):
        yield _BY_QUEUE
    yield from _indexes_of_state(which)
    if which.task is not None:
        yield _BY_TASK
    yield _ALL


def _indexes_of_state(which: JobFilter) -> Iterator[Index]:
    if which.state == State.QUEUED:
        in_queue = _READY_IN_QUEUE if which.task is None else _READY_OF_TASK
        yield _READY if which.queue is None else in_queue
    elif which.state == State.SCHEDULED:
        yield _BY_INSTANT
    elif which.state is not None:
        yield _BY_STATE


def search_query(which: JobFilter, index: Index) -> str:
    """Return the statement for the newest :limit jobs of the filter in a range of ids."""
    ids = ids_query(which, index)
    return f"SELECT {queries.LISTED_JOB} FROM job WHERE id IN ({ids}) ORDER BY id DESC"


def ids_query(which: JobFilter, index: Index) -> str:
    """Return the statement for the ids of the jobs that search_query finds, newest first."""
    tables = index.tables
    if index is _BY_TAG:
        tables += " CROSS JOIN job ON job.id = job_id"
    terms = [term for field, term in _TERMS.items() if getattr(which, field) is not None]
    terms += [_TAG] if which.tag is not None and index is not _BY_TAG else []
    terms += [_STATE_TERMS.get(which.state, _STATE)] if which.state is not None else []
    if which.states:
        terms += [" OR ".join(f"state = '{state}'" for state in which.states).join("()")]
    terms += [index.condition, f"{index.key} BETWEEN :oldest AND :newest"]
    where = " AND ".join(dict.fromkeys(terms))
    return f"SELECT {index.key} FROM {tables} WHERE {where} ORDER BY {index.key} DESC LIMIT :limit"


_TERMS = {
    "unique_key": "unique_key = :unique_key",
    "schedule_id": "schedule_id = :schedule_id",
    "task": "task = :task",
    "queue": "queue = :queue",
    "ended_after": "ended_at >= :ended_after",
    "ended_before": "ended_at < :ended_before",
    "error": (
        "(instr(failure ->> '$.type', :error) > 0 OR instr(failure ->> '$.message', :error) > 0)"
    ),
}
_STATE_TERMS: dict[str | None, str] = {
    State.QUEUED.value: _QUEUED,
    State.SCHEDULED.value: _SCHEDULED,
}


def search(
    connection: sqlite3.Connection,
    offset_us: int,
    which: JobFilter,
    before: int | None,
    limit: int,
) -> tuple[list[Job], int | None]:
    """Look at the next jobs with an id below `before`; return up to `limit` jobs of the filter.

    Return also the id below which the search continues, or None if there are no more jobs.
    """
    index, parameters, reached = _next_part(connection, which, before, limit)
    found = connection.execute(search_query(which, index), parameters)
    jobs = rows.jobs_from_rows(found, offset_us)
    return jobs, jobs[-1].id if len(jobs) == limit else reached


def search_ids(
    connection: sqlite3.Connection, which: JobFilter, before: int | None, limit: int
) -> tuple[list[int], int | None]:
    """As `search`, but return the ids of the jobs only."""
    index, parameters, reached = _next_part(connection, which, before, limit)
    found = [job_id for (job_id,) in connection.execute(ids_query(which, index), parameters)]
    return found, found[-1] if len(found) == limit else reached


def _next_part(
    connection: sqlite3.Connection, which: JobFilter, before: int | None, limit: int
) -> tuple[Index, dict[str, Any], int | None]:
    """Return the index of the next part, the parameters of its query, and where the part ends."""
    parameters = _parameters(which, before)
    index, reached = _widest(connection, which, parameters)
    if reached is not None:
        parameters["oldest"] = reached
    return index, {**parameters, "limit": limit}, reached


def _parameters(which: JobFilter, before: int | None) -> dict[str, Any]:
    newest, oldest = ID_MAX if before is None else before - 1, 0
    if which.created_before is not None:
        newest = min(newest, first_id(which.created_before) - 1)
    if which.created_after is not None:
        oldest = first_id(which.created_after)
    filters = {name: getattr(which, name) for name in which.__struct_fields__}
    return {**filters, "newest": newest, "oldest": oldest, "looked": LOOKED_AT_ONCE}


def _widest(
    connection: sqlite3.Connection, which: JobFilter, parameters: dict[str, Any]
) -> tuple[Index, int | None]:
    """Return the index whose next entries reach furthest back, and where they end.

    None: the part looks at all of the index.
    """
    widest: tuple[Index, int] | None = None
    for index in usable_indexes(which):
        end = connection.execute(index.probe, parameters).fetchone()
        if end is None:
            return index, None
        if index.is_sorted and (widest is None or end[0] < widest[1]):
            widest = index, end[0]
    assert widest is not None, "the table itself is in order"
    return widest
