"""The search for the jobs of a list, newest or oldest first, in parts of LOOKED_AT_ONCE jobs.

Each condition of a filter has an index, but a combination of conditions has none: the jobs in the
state `failed` may be in any other queue. So a part looks at the next jobs of one index (see
store/job_indexes.py), and tells where it stopped. It takes the index whose next LOOKED_AT_ONCE
entries reach furthest back: that is the one of the rarest condition. Other reads run between two
parts.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from schedo.core import limits
from schedo.core.ids import ID_MAX, first_id, prefix_range
from schedo.core.job_filter import JobFilter, Order, PayloadCondition
from schedo.core.model import Job
from schedo.core.states import State
from schedo.store import rows
from schedo.store.conditions import LISTED_STATE, TIMED, is_one_of_tasks
from schedo.store.job_indexes import By, usable_indexes
from schedo.store.pages import JobPage
from schedo.store.sqlite import queries
from schedo.store.sqlite.plain_names import PLAIN_PAYLOAD, SEARCHED_PAYLOAD, has_escapes

LOOKED_AT_ONCE = 2_000  # jobs: some milliseconds
# Entries of an index that is not in order of id, if they decide on the filter without the jobs.
LOOKED_AT_ALONE = 50_000
LOOKED_AT_FIRST = 500  # the next part has twice as many, unless the pages of this one were on disk
STEP_S = 0.005  # after which other searches go on
_WAYS = {Order.NEWEST: "DESC", Order.OLDEST: "ASC"}


class Index(NamedTuple):
    """An index in which jobs can be searched.

    tables, key and condition: of a query for its entries. is_sorted: they are in order of id;
    otherwise the index can be used only if a part can look at all its entries. runs: conditions of
    which each entry meets one, if only the entries of each are in order of id.
    """

    tables: str
    key: str
    condition: str
    is_sorted: bool = True
    runs: tuple[str, ...] = ()

    def probe(self, order: Order = Order.NEWEST) -> str:
        """Return the statement that finds the entry after the first :looked ones of the range.

        Of several runs each gets its share, and the first of them to end ends the part.
        """
        if not self.runs:
            return self._find_end(self.condition, ":looked", order)
        share = f":looked / {len(self.runs)}"
        ends = (f"SELECT * FROM ({self._find_end(run, share, order)})" for run in self.runs)
        way = _WAYS[order]
        return f"SELECT {self.key} FROM ({' UNION ALL '.join(ends)}) ORDER BY 1 {way} LIMIT 1"

    def _find_end(self, condition: str, looked: str, order: Order) -> str:
        select = f"SELECT {self.key} FROM {self.tables} WHERE {condition}"
        if self.is_sorted:
            way = f"ORDER BY {self.key} {_WAYS[order]}"
            select += f" AND {self.key} BETWEEN :oldest AND :newest {way}"
        return f"{select} LIMIT 1 OFFSET {looked}"


def _of_job(name: str, condition: str, *, is_sorted: bool = True) -> Index:
    return Index(f"job INDEXED BY {name}", "id", condition, is_sorted)


_STATE = f"state = :state AND {LISTED_STATE}"
_QUEUED = "state = 'queued'"
_SCHEDULED = f"state = 'scheduled' AND {TIMED}"
_QUEUE = f"queue = :queue AND queue <> '{limits.DEFAULT_QUEUE}'"
_TAG = "job.id IN (SELECT job_id FROM job_tag WHERE tag = :tag AND job_id = job.id)"

_BY_TAG = Index("job_tag", "job_id", "tag = :tag")
_READY = _of_job("job_ready", _QUEUED, is_sorted=False)
_INDEXES = {
    By.ALL: Index("job NOT INDEXED", "id", "TRUE"),
    By.UNIQUE_KEY: _of_job("job_unique", "unique_key = :unique_key"),
    By.TAG: _BY_TAG,
    By.SCHEDULE: _of_job("job_schedule", "schedule_id = :schedule_id"),
    By.TASK: _of_job("job_task", "task = :task"),
    By.QUEUE: _of_job("job_queue", _QUEUE),
    By.STATE: _of_job("job_state", _STATE),
    By.INSTANT: _of_job("job_timers", TIMED, is_sorted=False),
    By.READY: _READY,
    By.READY_IN_QUEUE: _READY._replace(condition=f"{_QUEUED} AND queue = :queue"),
    By.READY_OF_TASK: _READY._replace(condition=f"{_QUEUED} AND queue = :queue AND task = :task"),
}


def indexes_of(which: JobFilter) -> Iterator[Index]:
    """Return the indexes that have all jobs of the filter."""
    for by in usable_indexes(which):
        yield _by_states(which.states) if by is By.STATES else _INDEXES[by]


def _by_states(states: Sequence[State]) -> Index:
    """Return the index of states for the jobs in one of these."""
    runs = tuple(f"state = '{state}' AND {LISTED_STATE}" for state in states)
    condition = f"{_one_of(states)} AND {LISTED_STATE}"
    return _of_job("job_state", condition)._replace(runs=runs)


def _one_of(states: Sequence[State]) -> str:
    return "state IN (" + ", ".join(f"'{state}'" for state in states) + ")"


def search_query(which: JobFilter, index: Index, order: Order = Order.NEWEST) -> str:
    """Return the statement for the first :limit jobs of the filter in a range of ids."""
    ids = ids_query(which, index, order)
    return f"SELECT {queries.LISTED_JOB} FROM job WHERE id IN ({ids}) ORDER BY id {_WAYS[order]}"


def ids_query(which: JobFilter, index: Index, order: Order = Order.NEWEST) -> str:
    """Return the statement for the ids of the jobs that search_query finds, in their order."""
    tables = index.tables
    if index is _BY_TAG:
        tables += " CROSS JOIN job ON job.id = job_id"
    terms = [*_conditions(which)]
    terms += [_TAG] if which.tag is not None and index is not _BY_TAG else []
    terms += [index.condition, f"{index.key} BETWEEN :oldest AND :newest"]
    where, way = " AND ".join(dict.fromkeys(terms)), f"{index.key} {_WAYS[order]}"
    return f"SELECT {index.key} FROM {tables} WHERE {where} ORDER BY {way} LIMIT :limit"


def conditions(which: JobFilter) -> str:
    """Return the condition on a row of the table `job`; parameters_of has its values."""
    terms = [*_conditions(which), *([_TAG] if which.tag is not None else [])]
    return " AND ".join([*terms, "job.id BETWEEN :oldest AND :newest"])


def _conditions(which: JobFilter) -> Iterator[str]:
    """Yield the conditions on the columns of the table."""
    yield from (term for field, term in _TERMS.items() if getattr(which, field) is not None)
    if which.state is not None:
        yield _STATE_TERMS.get(which.state, _STATE)
    yield from _payload_terms(which)
    if which.states:
        yield _one_of(which.states)


_PAYLOAD = "CAST(payload AS TEXT)"
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
    "worker": "worker = :worker",
    "late_over_us": (
        "coalesce(started_at, CASE WHEN ended_at IS NULL THEN :late_at END)"
        " - due_at - due_elapsed * :offset_us > :late_over_us"
    ),
    "text": (
        f"(id BETWEEN :text_low AND :text_high OR task LIKE :text ESCAPE '\\'"
        f" OR ({SEARCHED_PAYLOAD}) LIKE :text ESCAPE '\\'"
        " OR (failure IS NOT NULL AND (failure ->> '$.type' LIKE :text ESCAPE '\\'"
        " OR failure ->> '$.message' LIKE :text ESCAPE '\\'))"
        " OR (options IS NOT NULL AND EXISTS (SELECT 1 FROM job_tag AS tags"
        " WHERE tags.job_id = job.id AND tags.tag LIKE :text ESCAPE '\\')))"
    ),
}


def _payload_terms(which: JobFilter) -> list[str]:
    """Return the terms of the payload; the parameters have the values and the paths."""
    terms = []
    for number, condition in enumerate(which.payload):
        plain, written = (
            _is_value(condition, number, payload) for payload in (PLAIN_PAYLOAD, _PAYLOAD)
        )
        either = f"CASE WHEN {has_escapes(condition.path)} THEN {plain} ELSE {written} END"
        terms.append(f"(payload IS NOT NULL AND {either})")
        terms += [f"NOT {is_one_of_tasks(condition.hides_in)}"] if condition.hides_in else []
    return terms


def _is_value(condition: PayloadCondition, number: int, payload: str) -> str:
    """Return the term that a payload, as JSON text, has the value at the path in one meaning."""
    value, meanings = f":value_{number}", []
    for meaning in range(len(condition.paths)):
        found = f"{payload} ->> :path_{number}_{meaning}"
        kind = f"json_type({payload}, :path_{number}_{meaning})"
        meanings.append(f"({kind} = 'text' AND {found} = {value})")
        if condition.value in ("true", "false", "null"):
            meanings.append(f"{kind} = {value}")
        elif condition.number is not None:
            meanings.append(f"({kind} IN ('integer', 'real') AND {found} = :number_{number})")
    return f"({' OR '.join(meanings)})"


def _payload_parameters(which: JobFilter) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, condition in enumerate(which.payload):
        found[f"value_{number}"], found[f"number_{number}"] = condition.value, condition.number
        for meaning, path in enumerate(condition.paths):
            parts = (f"[{part}]" if isinstance(part, int) else f'."{part}"' for part in path)
            found[f"path_{number}_{meaning}"] = "$" + "".join(parts)
    return found


_STATE_TERMS: dict[str | None, str] = {
    State.QUEUED.value: _QUEUED,
    State.SCHEDULED.value: _SCHEDULED,
}


class Position(NamedTuple):
    """Where a list goes on: after this id, in this order; None: at its begin."""

    after: int | None
    order: Order = Order.NEWEST


def search(
    connection: sqlite3.Connection,
    offset_us: int,
    which: JobFilter,
    position: Position,
    limit: int,
    looked_max: int = LOOKED_AT_ONCE,
) -> JobPage[int]:
    """Look at the next jobs; return up to `limit` of the filter.

    Look at one part at least, and at others for STEP_S, up to `looked_max` jobs.
    """
    until = time.perf_counter() + STEP_S
    jobs: list[Job] = []
    looked_at, part = 0, min(LOOKED_AT_FIRST, LOOKED_AT_ONCE, looked_max)
    while True:
        left = limit - len(jobs)
        index, parameters, reached = _next_part(connection, offset_us, which, position, left, part)
        found = connection.execute(search_query(which, index, position.order), parameters)
        jobs += rows.jobs_from_rows(found, offset_us)
        if len(jobs) == limit:
            return JobPage(jobs, jobs[-1].id)
        if reached is None:
            return JobPage(jobs, None)  # it was not limited
        position, looked_at = position._replace(after=reached), looked_at + part
        if looked_at >= looked_max or time.perf_counter() > until:
            return JobPage(jobs, reached, looked_at)
        part = min(2 * part, LOOKED_AT_ONCE, looked_max - looked_at)


def search_ids(
    connection: sqlite3.Connection, offset_us: int, which: JobFilter, before: int | None, limit: int
) -> tuple[list[int], int | None]:
    """Look at one part; return the ids of the jobs only, and where the search goes on."""
    index, parameters, reached = _next_part(
        connection, offset_us, which, Position(before), limit, LOOKED_AT_ONCE
    )
    found = [job_id for (job_id,) in connection.execute(ids_query(which, index), parameters)]
    return found, found[-1] if len(found) == limit else reached


def _next_part(
    connection: sqlite3.Connection,
    offset_us: int,
    which: JobFilter,
    position: Position,
    limit: int,
    looked: int,
) -> tuple[Index, dict[str, Any], int | None]:
    """Return the index of the next part, the parameters of its query, and where the part ends."""
    parameters, (after, order) = parameters_of(which), position
    if after is not None and order is Order.NEWEST:
        parameters["newest"] = min(parameters["newest"], after - 1)
    elif after is not None:
        parameters["oldest"] = max(parameters["oldest"], after + 1)
    parameters |= {"offset_us": offset_us, "looked": looked}
    index, reached = _widest(connection, which, parameters, order)
    if reached is not None:
        parameters["oldest" if order is Order.NEWEST else "newest"] = reached
    return index, {**parameters, "limit": limit}, reached


def parameters_of(which: JobFilter) -> dict[str, Any]:
    """Return the values that the conditions of a filter name, and its range of ids."""
    newest, oldest = ID_MAX, 0
    if which.created_before is not None:
        newest = min(newest, first_id(which.created_before) - 1)
    if which.created_after is not None:
        oldest = first_id(which.created_after)
    filters = {name: getattr(which, name) for name in which.__struct_fields__}
    filters |= _payload_parameters(which) | _text_parameters(which.text)
    return {**filters, "newest": newest, "oldest": oldest}


def _text_parameters(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    low, high = prefix_range(text)
    return {"text": like_pattern(text), "text_low": low, "text_high": high}


def like_pattern(text: str) -> str:
    """Return the pattern of LIKE, with ESCAPE '\\', for texts that contain the text."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def _is_decided_by(index: Index, which: JobFilter) -> bool:
    """Return whether the entries of an index of waiting jobs have all that the filter asks for."""
    task = None if index is _INDEXES[By.INSTANT] else which.task
    entry = JobFilter(
        state=which.state,
        queue=which.queue,
        task=task,
        created_after=which.created_after,
        created_before=which.created_before,
        late_at=which.late_at,
    )
    return which == entry


def _widest(
    connection: sqlite3.Connection, which: JobFilter, parameters: dict[str, Any], order: Order
) -> tuple[Index, int | None]:
    """Return the index whose next entries reach furthest, and where they end.

    None: the part looks at all of the index.
    """
    ends: dict[int, Index] = {}
    for index in indexes_of(which):
        whole = max(LOOKED_AT_ALONE, parameters["looked"])
        is_alone = not index.is_sorted and _is_decided_by(index, which)
        looked = {"looked": whole} if is_alone else {}
        end = connection.execute(index.probe(order), parameters | looked).fetchone()
        if end is None:
            return index, None
        if index.is_sorted:
            ends.setdefault(end[0], index)
    furthest = min(ends) if order is Order.NEWEST else max(ends)
    return ends[furthest], furthest
