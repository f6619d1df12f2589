"""The search for the jobs of a list, newest or oldest first, in parts of LOOKED_AT_ONCE jobs.

As in the SQLite store (see its job_search.py), a part looks at the next entries of one index: of
the one whose entries reach furthest. A part is a subquery that only this index can answer in order,
so the planner cannot choose to filter other jobs. The other conditions apply to the jobs of a part.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import asyncpg

from schedo.core import limits
from schedo.core.built_in import MASK, SECRETS
from schedo.core.ids import ID_MAX, first_id, prefix_range
from schedo.core.job_filter import JobFilter, Order, PayloadCondition, lower
from schedo.core.model import Job
from schedo.core.shards import SHARDS
from schedo.core.states import State
from schedo.store import rows
from schedo.store.conditions import LISTED_STATE, TIMED, is_one_of_tasks
from schedo.store.job_indexes import By, usable_indexes
from schedo.store.pages import IdPage, JobPage
from schedo.store.postgres.reads import JOB_COLUMNS

LOOKED_AT_ONCE = 2_000  # jobs: some milliseconds
LOOKED_AT_FIRST = 500  # the next part has twice as many
# When a search has looked at this number of jobs, or for this time, a page ends and says where.
LOOKED_AT_MAX = 50_000
SEARCH_S = 0.025
_WAYS = {Order.NEWEST: "DESC", Order.OLDEST: "ASC"}

# A list omits large results too: a page of them could be a gigabyte.
LISTED_JOB = JOB_COLUMNS.replace(
    "job.result",
    f"CASE WHEN octet_length(job.result) <= {limits.PAYLOAD_INLINE_BYTES_MAX}"
    " THEN job.result END AS result",
)


class Parameters(list[Any]):
    """The parameters of a statement, in the order in which it names them."""

    def add(self, value: Any) -> str:
        """Return the placeholder of an integer, a text or a number with a fraction."""
        self.append(value)
        kinds = {int: "bigint", float: "float8", Decimal: "numeric"}
        return f"${len(self)}::{kinds.get(type(value), 'text')}"


class Index(NamedTuple):
    """An index in which jobs can be searched.

    key: of a query for its entries, in the form that the index has. condition: of a partial index.
    fields: those of the filter that its entries meet by an equality. is_sorted: the entries are in
    order of id; otherwise the index can be used only if a part can look at all of them. states: if
    its entries are in order of id for each of these states only.
    """

    key: str
    condition: str = "TRUE"
    fields: tuple[str, ...] = ()
    is_sorted: bool = True
    states: tuple[State, ...] = ()

    @property
    def table(self) -> str:
        return "job_tag" if self.key == "job_id" else "job"

    def where(self, which: JobFilter, given: Parameters) -> str:
        """Return the condition of its entries."""
        terms = [f"{name} = {given.add(_value(which, name))}" for name in self.fields]
        if self.states:
            terms.append(_one_of(self.states))
        return " AND ".join([self.condition, *terms])


_BY_TAG = Index("job_id", fields=("tag",))
_READY = Index("id", "state = 'queued'", ("state",), is_sorted=False)
# The index begins with the shard. With all of them it is searched for the queue in each; without,
# all its entries would be looked at.
_READY_IN_SHARDS = f"{_READY.condition} AND shard = ANY('{{{','.join(map(str, range(SHARDS)))}}}')"
_INDEXES = {
    By.ALL: Index("id"),
    By.UNIQUE_KEY: Index("id", "unique_key IS NOT NULL", ("unique_key",), is_sorted=False),
    By.TAG: _BY_TAG,
    By.SCHEDULE: Index("id + 0", "schedule_id IS NOT NULL", ("schedule_id",)),
    By.TASK: Index("id + 0", fields=("task",)),
    By.QUEUE: Index("id + 0", f"queue <> '{limits.DEFAULT_QUEUE}'", ("queue",)),
    By.STATE: Index("id + 0", LISTED_STATE, ("state",)),
    By.INSTANT: Index("id", TIMED, is_sorted=False),
    By.READY: _READY,
    By.READY_IN_QUEUE: _READY._replace(condition=_READY_IN_SHARDS, fields=("state", "queue")),
    By.READY_OF_TASK: _READY._replace(
        condition=_READY_IN_SHARDS, fields=("state", "queue", "task")
    ),
}


def indexes_of(which: JobFilter) -> Iterator[Index]:
    """Return the indexes that have all jobs of the filter."""
    for by in usable_indexes(which):
        yield (
            Index("id + 0", LISTED_STATE, states=which.states) if by is By.STATES else _INDEXES[by]
        )


async def search(
    connection: asyncpg.Connection,
    offset_us: int,
    which: JobFilter,
    position: tuple[int | None, Order],
    limit: int,
) -> JobPage[int]:
    """Return the next jobs of the filter, after one part at least."""
    until = time.perf_counter() + SEARCH_S
    after, order = position
    jobs: list[Job] = []
    looked_at, part = 0, LOOKED_AT_FIRST
    while True:
        ids, reached, given = await _next_ids(
            connection, offset_us, which, (after, order), (limit - len(jobs), part)
        )
        query = f"""
WITH found AS MATERIALIZED ({ids})
SELECT {LISTED_JOB} FROM found JOIN job ON job.id = found.id ORDER BY job.id {_WAYS[order]}"""
        jobs += rows.jobs_from_rows(await connection.fetch(query, *given), offset_us)
        if len(jobs) == limit:
            return JobPage(jobs, jobs[-1].id)
        if reached is None:
            return JobPage(jobs, None)  # it was not limited
        after, looked_at = reached, looked_at + part
        if looked_at >= LOOKED_AT_MAX or time.perf_counter() > until:
            return JobPage(jobs, reached, looked_at)
        part = min(2 * part, LOOKED_AT_ONCE, LOOKED_AT_MAX - looked_at)


async def search_ids(
    connection: asyncpg.Connection,
    offset_us: int,
    which: JobFilter,
    part: tuple[int | None, int],
) -> IdPage:
    """Look at one part; return the ids of the jobs, and where the search goes on.

    part: the id before which it begins, and how many jobs it finds at most. The jobs are those of
    all servers that share the store.
    """
    before, limit = part
    ids, reached, given = await _next_ids(
        connection, offset_us, which, (before, Order.NEWEST), (limit, LOOKED_AT_ONCE)
    )
    query = f"""
WITH found AS MATERIALIZED ({ids})
SELECT job.id FROM found JOIN job ON job.id = found.id ORDER BY job.id DESC"""
    found = [row["id"] for row in await connection.fetch(query, *given)]
    return IdPage(found, found[-1] if len(found) == limit else reached)


async def _next_ids(
    connection: asyncpg.Connection,
    offset_us: int,
    which: JobFilter,
    position: tuple[int | None, Order],
    bounds: tuple[int, int],
) -> tuple[str, int | None, Parameters]:
    """Return the query for the next ids, where its part ends (None: at no limit), its parameters.

    bounds: how many ids it returns at most, and at how many entries it looks.
    """
    (after, order), (limit, looked) = position, bounds
    oldest, newest = _range(which)
    if after is not None and order is Order.NEWEST:
        newest = min(newest, after - 1)
    elif after is not None:
        oldest = max(oldest, after + 1)
    index, reached = await _widest(connection, which, (oldest, newest), order, looked)
    if reached is not None:
        oldest, newest = (reached, newest) if order is Order.NEWEST else (oldest, reached)
    given = Parameters()
    entries = f"{index.where(which, given)} AND {_between(index, (oldest, newest), given)}"
    part = f"SELECT {index.key} AS id FROM {index.table} WHERE {entries}"
    terms = [*_terms(which, index, offset_us, given)]
    if terms:
        part = (
            f"WITH part AS MATERIALIZED ({part}) SELECT job.id"
            f" FROM part JOIN job ON job.id = part.id WHERE {' AND '.join(terms)}"
        )
    return f"{part} ORDER BY 1 {_WAYS[order]} LIMIT {limit:d}", reached, given


def _between(index: Index, ids: tuple[int, int], given: Parameters) -> str:
    return f"{index.key} BETWEEN {given.add(ids[0])} AND {given.add(ids[1])}"


def _range(which: JobFilter) -> tuple[int, int]:
    newest, oldest = ID_MAX, 0
    if which.created_before is not None:
        newest = min(newest, first_id(which.created_before) - 1)
    if which.created_after is not None:
        oldest = first_id(which.created_after)
    return oldest, newest


async def _widest(
    connection: asyncpg.Connection,
    which: JobFilter,
    ids: tuple[int, int],
    order: Order,
    looked: int,
) -> tuple[Index, int | None]:
    """Return the index whose next entries reach furthest, and where they end.

    None: the part looks at all of the index.
    """
    ends: dict[int, Index] = {}
    for index in indexes_of(which):
        given = Parameters()
        end = await connection.fetchval(_probe(which, index, ids, order, looked, given), *given)
        if end is None:
            return index, None
        if index.is_sorted:
            ends.setdefault(end, index)
    furthest = min(ends) if order is Order.NEWEST else max(ends)
    return ends[furthest], furthest


def _probe(  # what a part depends on
    which: JobFilter,
    index: Index,
    ids: tuple[int, int],
    order: Order,
    looked: int,
    given: Parameters,
) -> str:
    """Return the query for the entry after the first `looked` ones of the range.

    Of several states each gets its share, and the first of them to end ends the part.
    """
    select, way = f"SELECT {index.key} AS id FROM {index.table}", _WAYS[order]
    if not index.is_sorted:
        return f"{select} WHERE {index.where(which, given)} LIMIT 1 OFFSET {looked:d}"
    runs = [index._replace(states=(state,)) for state in index.states] or [index]
    ends = [
        f"(SELECT * FROM ({select} WHERE {run.where(which, given)} AND {_between(run, ids, given)}"
        f" ORDER BY {run.key} {way} LIMIT 1 OFFSET {looked // len(runs):d}) AS run)"
        for run in runs
    ]
    return f"{' UNION ALL '.join(ends)} ORDER BY 1 {way} LIMIT 1"


def _value(which: JobFilter, name: str) -> Any:
    return getattr(which, name)


def _one_of(states: tuple[State, ...]) -> str:
    if len(states) == 1:
        return f"state = '{states[0].value}'"
    return "state IN (" + ", ".join(f"'{state.value}'" for state in states) + ")"


_EQUAL = ("state", "unique_key", "schedule_id", "task", "queue", "worker")
_FAILURE = "parse_json(failure)"
# What a search for a text sees of a payload: not the secret of a built-in task.
_SEARCHED = "CASE {} ELSE as_text(payload) END".format(
    " ".join(
        f"WHEN task = '{task}' THEN CASE WHEN parse_json(as_text(payload)) IS NOT NULL THEN"
        f" replace(as_text(payload), coalesce((as_text(payload)::json -> '{secret}')::text, ''),"
        f" '{MASK.decode()}') END"
        for task, secret in SECRETS.items()
    )
)
_FLOAT_MIN = "3e-324"  # a smaller number is 0 as a float


def conditions(which: JobFilter, offset_us: int, given: Parameters) -> str:
    """Return the condition on a row of the table `job`; add its parameters."""
    every = _INDEXES[By.ALL]
    return " AND ".join(
        [_between(every, _range(which), given), *_terms(which, every, offset_us, given)]
    )


def _terms(which: JobFilter, index: Index, offset_us: int, given: Parameters) -> Iterator[str]:
    """Return the conditions that the entries of the index need not meet."""
    for name in _EQUAL:
        if getattr(which, name) is not None and name not in index.fields:
            yield f"{name} = {given.add(getattr(which, name))}"
    if which.tag is not None and index is not _BY_TAG:
        tag = given.add(which.tag)
        yield f"EXISTS (SELECT 1 FROM job_tag WHERE tag = {tag} AND job_id = job.id)"
    if which.states and not index.states:
        yield _one_of(which.states)
    if which.ended_after is not None:
        yield f"ended_at >= {given.add(which.ended_after)}"
    if which.ended_before is not None:
        yield f"ended_at < {given.add(which.ended_before)}"
    if which.late_over_us is not None:
        yield (
            f"coalesce(started_at, CASE WHEN ended_at IS NULL THEN {given.add(which.late_at)} END)"
            f" - due_at - due_elapsed * {given.add(offset_us)} > {given.add(which.late_over_us)}"
        )
    yield from _terms_of_contents(which, given)


def _terms_of_contents(which: JobFilter, given: Parameters) -> Iterator[str]:
    if which.error is not None:
        error = given.add(which.error)
        parts = [f"strpos({_FAILURE} ->> '{name}', {error}) > 0" for name in ("type", "message")]
        yield f"(failure IS NOT NULL AND ({' OR '.join(parts)}))"
    for condition in which.payload:
        yield f"(payload IS NOT NULL AND ({' OR '.join(_meanings(condition, given))}))"
        if condition.hides_in:
            yield f"NOT {is_one_of_tasks(condition.hides_in)}"
    if which.text is not None:
        low, high = prefix_range(which.text)
        text, kept = given.add(lower(which.text)), 'COLLATE "C"'
        has = f"strpos(lower(({{}}) {kept}), {text}) > 0".format
        failed = " OR ".join(has(f"{_FAILURE} ->> '{name}'") for name in ("type", "message"))
        yield (
            f"(job.id BETWEEN {given.add(low)} AND {given.add(high)} OR {has('task')}"
            f" OR {has(_SEARCHED)} OR (failure IS NOT NULL AND ({failed}))"
            f" OR (options IS NOT NULL AND EXISTS ("
            f"SELECT 1 FROM job_tag WHERE job_id = job.id AND {has('tag')})))"
        )


def _meanings(condition: PayloadCondition, given: Parameters) -> Iterator[str]:
    """Return what the payload may have at the path, for each meaning of the path and the value.

    In strict mode a name is of an object only, and a place of an array only.
    """
    for path in condition.paths:
        parts = (f"[{part}]" if isinstance(part, int) else f".{json.dumps(part)}" for part in path)
        place = f"{given.add('strict $' + ''.join(parts))}::jsonpath"
        found = f"jsonb_path_query_first(parse_json(as_text(payload)), {place}, '{{}}', true)"
        text = f"({found} #>> '{{}}')"
        kind = f"jsonb_typeof({found})"
        yield f"({kind} = 'string' AND {text} = {given.add(condition.value)})"
        if condition.value in ("true", "false"):
            yield f"({kind} = 'boolean' AND {text} = {given.add(condition.value)})"
        elif condition.value == "null":
            yield f"{kind} = 'null'"
        elif condition.number is not None:
            equals = _equals(text, condition.number, given)
            yield f"CASE WHEN {kind} = 'number' THEN {equals} END"


def _equals(text: str, number: int | float, given: Parameters) -> str:
    """Return the comparison with a number of the payload: an integer of 64 bits, or a float.

    A number that no float can be has no cast: PostgreSQL would end the search with an error.
    """
    is_float = float(number) == number  # else no float has its value
    value, exact = f"{text}::numeric", given.add(Decimal(number))
    rounded = given.add(float(number) if is_float else math.nan)
    return (
        f"CASE WHEN abs({value}) <= {limits.INTEGER_MAX} AND scale({value}) = 0"
        f" THEN {value} = {exact} WHEN abs({value}) < {_FLOAT_MIN} THEN {rounded} = 0"
        f" WHEN abs({value}) <= {sys.float_info.max!r} THEN {text}::float8 = {rounded} END"
    )
