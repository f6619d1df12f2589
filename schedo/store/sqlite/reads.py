"""The reads of a SQLite file, as functions that run in a connection's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from heapq import merge
from itertools import starmap
from operator import attrgetter, itemgetter

import msgspec

from schedo.core import limits
from schedo.core.ids import first_id
from schedo.core.loads import (
    BlockedRun,
    LoadBlocked,
    LoadReady,
    LoadSchedules,
    LoadTimers,
    PromoteDue,
)
from schedo.core.model import Job, Schedule
from schedo.core.run_history import NO_RUNS, RunHistory, ScheduleStatus
from schedo.core.states import State
from schedo.store import rows
from schedo.store.base import (
    RUNNING_PAGE,
    ClockMark,
    OutputPiece,
    OutputSize,
    ScheduleRule,
    Snapshot,
)
from schedo.store.columns import Row
from schedo.store.sqlite import queries

OWNED_AT_ONCE = 5_000  # schedules that one part of a search for an owner's looks at
_INTEGER_MIN = -(2**63)
_INTEGER_MAX = 2**63 - 1
_BEFORE_ALL = (_INTEGER_MIN, _INTEGER_MIN)
_DUE = itemgetter(rows.JOB.names.index("due_at"), rows.JOB.names.index("id"))
_decode_names = msgspec.json.Decoder(list[str]).decode
_encode_ids = msgspec.json.Encoder().encode
_CLOCK_NAMES = [f"clock_{name}" for name in ClockMark._fields]


def read_snapshot(connection: sqlite3.Connection) -> Snapshot:
    """Return the snapshot that a server needs before its first turn."""
    (epoch,) = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
    (store_id,) = connection.execute("SELECT value FROM meta WHERE name = 'store'").fetchone()
    (last_id,) = connection.execute(queries.LAST_ID).fetchone()
    (decided_at,) = connection.execute(queries.DECIDED_AT).fetchone()
    clock = load_clock(connection)
    expectations = [
        rows.expectation_from_row(row, clock.offset_us)
        for row in connection.execute(queries.EXPECTATIONS)
    ]
    return Snapshot(
        epoch=epoch,
        last_id=max(last_id, first_id(decided_at), *(each.id for each in expectations)),
        queues=[rows.queue_from_row(row) for row in connection.execute(queries.QUEUES)],
        pauses=[rows.pause_from_row(row) for row in connection.execute(queries.PAUSES)],
        cordons=[rows.cordon_from_row(row) for row in connection.execute(queries.CORDONS)],
        bulk_operations=[
            rows.decode_bulk_operation(record)
            for (record,) in connection.execute(queries.BULK_OPERATIONS)
        ],
        ready_keys=[rows.ready_key_from_row(row) for row in connection.execute(queries.READY_KEYS)],
        has_blocked=bool(connection.execute(queries.BLOCKED, (0, 1)).fetchall()),
        clock=clock,
        expectations=expectations,
        store_id=store_id,
        running=jobs(connection, clock.offset_us, queries.RUNNING, (0, RUNNING_PAGE)),
    )


def load_clock(connection: sqlite3.Connection) -> ClockMark:
    """Return the state of the previous server's clock, with the newest instant of the store."""
    stored = dict(connection.execute(queries.CLOCK))
    mark = ClockMark(*(stored.get(name, 0) for name in _CLOCK_NAMES))
    newest = connection.execute(queries.NEWEST_AT).fetchone()
    return mark if newest is None else mark._replace(seen_at=max(mark.seen_at, newest[0]))


def fetch_all(
    connection: sqlite3.Connection, query: str, parameters: Sequence[object]
) -> list[Row]:
    """Return the rows of a query."""
    return connection.execute(query, parameters).fetchall()


def names(connection: sqlite3.Connection, query: str, limit: int) -> list[str]:
    """Return the names of a query that has them as JSON in one row."""
    ((found,),) = connection.execute(query, (limit,)).fetchall()
    return _decode_names(found)


def owned(connection: sqlite3.Connection, owner: str, after: int) -> tuple[list[str], int | None]:
    """Return the owner's names among the next schedules, and their last id; None: there is none."""
    parameters = (owner, after, OWNED_AT_ONCE)
    ((last, found),) = connection.execute(queries.OWNED, parameters).fetchall()
    return _decode_names(found), last


def output_sizes(connection: sqlite3.Connection, job_id: int) -> list[OutputSize]:
    """Return the sizes of a job's captured streams."""
    return [OutputSize(*row) for row in fetch_all(connection, queries.OUTPUT_SIZES, (job_id,))]


def output_piece(connection: sqlite3.Connection, job_id: int, piece: OutputPiece) -> bytes:
    """Return a range of bytes of a captured stream; empty if it is gone."""
    parameters = (piece.at, piece.length, job_id, piece.attempt, piece.stream)
    found = fetch_all(connection, queries.OUTPUT_PARTS[piece.part], parameters)
    return bytes(found[0][0]) if found else b""


def page_of_rows(
    connection: sqlite3.Connection,
    query: queries.Paged,
    after: tuple[int, int],
    limit: int,
    **named: str | int,
) -> list[Row]:
    """Return the rows of a page in the order of the query."""
    return list(_iterate_rows(connection, query, after, limit, **named))


def _iterate_rows(
    connection: sqlite3.Connection,
    query: queries.Paged,
    after: tuple[int, int],
    limit: int,
    **named: str | int,
) -> Generator[Row, None, None]:
    value, last_id = after
    parameters: dict[str, str | int] = {"value": value, "id": last_id, "limit": limit, **named}
    count = 0
    for row in connection.execute(query.same, parameters):
        count += 1
        yield row
    if count < limit:
        parameters["limit"] = limit - count
        yield from connection.execute(query.later, parameters)


def page_of_ready(connection: sqlite3.Connection, offset_us: int, load: LoadReady) -> list[Job]:
    """Return the jobs of a page of one ready key in the tables, in order of (rank, id)."""
    key, (rank, last_id) = load.ready_key, load.after
    parameters: dict[str, str | int] = {
        **{"queue": key.queue, "task": key.task, "value": rank, "id": last_id, "limit": load.limit},
        "requirements": rows.requirements_text(key.requirements),
    }
    jobs: list[Job] = []
    for query in queries.READY:
        ((page,),) = connection.execute(query, parameters).fetchall()
        jobs += rows.jobs_from_json(page, offset_us)
        if len(jobs) == load.limit:
            break
        parameters["limit"] = load.limit - len(jobs)
    return jobs


def page_of_timelines(
    connection: sqlite3.Connection,
    offset_us: int,
    query: queries.Paged,
    load: LoadTimers | PromoteDue,
    key: Callable[[Row], tuple[int, int]],
    until: int = _INTEGER_MAX,
) -> list[tuple[tuple[int, int], Row]]:
    """Return a page of both timelines, the wall clock's and the elapsed one, in one order.

    Each row comes with its (key, id); the key is an instant of the wall clock.
    """
    fields = {"elapsed": 0, "until": until, "offset_us": offset_us}
    found = page_of_rows(connection, query, load.after, load.limit, **fields)
    page = [(key(row), row) for row in found]
    value, last_id = load.after
    moved = (max(value - offset_us, _INTEGER_MIN), last_id)
    fields |= {"elapsed": 1, "until": min(until - offset_us, _INTEGER_MAX)}
    for row in page_of_rows(connection, query, moved, load.limit, **fields):
        at, row_id = key(row)
        page.append(((at + offset_us, row_id), row))
    page.sort(key=itemgetter(0))
    return page[: load.limit]


def page_of_timers(connection: sqlite3.Connection, offset_us: int, load: LoadTimers) -> list[Job]:
    """Return a page of jobs that wait for an instant, in order of (due_at, id)."""
    page = page_of_timelines(connection, offset_us, queries.TIMERS, load, _DUE)
    return rows.jobs_from_rows([row for _, row in page], offset_us)


def expired(connection: sqlite3.Connection, offset_us: int, now: int, limit: int) -> list[Job]:
    """Return waiting jobs whose expires_at is not after `now`."""
    found = connection.execute(queries.EXPIRED, (0, now, limit)).fetchall()
    left = limit - len(found)
    found += connection.execute(queries.EXPIRED, (1, now - offset_us, left)).fetchall()
    return rows.jobs_from_rows(found, offset_us)


def count_timed(
    connection: sqlite3.Connection, after: tuple[int, int, int] | None, limit: int
) -> tuple[list[tuple[str, str, int]], tuple[int, int, int] | None]:
    """Count about `limit` jobs that wait for an instant; return also the next `after`, or None.

    after: the timeline (0: wall clock, 1: elapsed), and a due instant and an id on it.
    """
    elapsed, *pair = after or (0, *_BEFORE_ALL)
    counted, following = _count_timeline(connection, elapsed, (pair[0], pair[1]), limit)
    if following is not None:
        return counted, (elapsed, *following)
    return counted, (1, *_BEFORE_ALL) if elapsed == 0 else None


def _count_timeline(
    connection: sqlite3.Connection, elapsed: int, after: tuple[int, int], limit: int
) -> tuple[list[tuple[str, str, int]], tuple[int, int] | None]:
    value, last_id = after
    parameters = {"elapsed": elapsed, "value": value, "id": last_id, "limit": limit}
    same = connection.execute(queries.COUNT_SAME, parameters).fetchall()
    counted = [(queue, state, count) for queue, state, count, _ in same]
    if sum(count for _, _, count in counted) == limit:
        return counted, (value, max(row[3] for row in same))
    bound = connection.execute(queries.COUNT_BOUND, parameters).fetchone()
    parameters["bound"] = bound[0] if bound is not None else _INTEGER_MAX
    counted += connection.execute(queries.COUNT_BELOW, parameters).fetchall()
    return counted, None if bound is None else (bound[0], _INTEGER_MIN)


def page_of_schedules(
    connection: sqlite3.Connection, offset_us: int, load: LoadSchedules
) -> list[Schedule]:
    """Return a page of schedules by their next fire, with their active jobs."""

    def timeline(elapsed: int, value: int) -> Generator[Row, None, None]:
        after = (value, load.after[1])
        return _iterate_rows(connection, queries.SCHEDULES, after, load.limit, elapsed=elapsed)

    def schedules_of(found: Iterable[Row]) -> Iterator[Schedule]:
        return (rows.schedule_from_row(row, offset_us) for row in found)

    # One row at a time is read, because payloads may be large. A page may end before its rows do.
    with (
        closing(timeline(0, load.after[0])) as wall,
        closing(timeline(1, max(load.after[0] - offset_us, _INTEGER_MIN))) as elapsed,
    ):
        found = merge(
            schedules_of(wall), schedules_of(elapsed), key=attrgetter("next_fire_at", "id")
        )
        page = load.take_page(found)
    return _with_active(connection, page)


def jobs(
    connection: sqlite3.Connection, offset_us: int, query: str, parameters: Sequence[object]
) -> list[Job]:
    """Return the jobs of a query."""
    return rows.jobs_from_rows(connection.execute(query, parameters), offset_us)


def job(connection: sqlite3.Connection, offset_us: int, query: str, which: int | str) -> Job | None:
    """Return the only job of a query with one parameter, or None."""
    row = connection.execute(query, (which,)).fetchone()
    return None if row is None else rows.job_from_row(row, offset_us)


def schedules(
    connection: sqlite3.Connection, offset_us: int, query: str, parameters: Sequence[object]
) -> list[Schedule]:
    """Return the schedules of a query, with their active jobs."""
    found = connection.execute(query, parameters)
    return _with_active(connection, [rows.schedule_from_row(row, offset_us) for row in found])


def schedule(connection: sqlite3.Connection, offset_us: int, which: str | int) -> Schedule | None:
    """Return the schedule with this name (or this id), with its active jobs, or None."""
    found = schedule_alone(connection, offset_us, which)
    return None if found is None else _with_active(connection, [found])[0]


def schedule_alone(
    connection: sqlite3.Connection, offset_us: int, which: str | int
) -> Schedule | None:
    """Return the schedule with this name (or this id), without its active jobs, or None."""
    by_name = isinstance(which, str)
    query = queries.SCHEDULE_BY_NAME if by_name else queries.SCHEDULE_BY_ID
    row = connection.execute(query, (which,)).fetchone()
    return None if row is None else rows.schedule_from_row(row, offset_us)


def histories(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, RunHistory]:
    """Return the histories of schedules, by id."""
    found = connection.execute(queries.HISTORIES, (_encode_ids(ids).decode(),))
    return {row[0]: rows.history_from_row(row[1:]) for row in found}


def schedule_statuses(
    connection: sqlite3.Connection, after: int, limit: int
) -> list[ScheduleStatus]:
    """Return what monitoring shows of schedules, in order of id."""
    found = connection.execute(queries.SCHEDULE_STATUSES, (after, limit))
    return [
        ScheduleStatus(
            *(ident, name, created_at, paused == 1),
            NO_RUNS if history[0] is None else rows.history_from_row(history),
        )
        for ident, name, created_at, paused, *history in found
    ]


def rules(
    connection: sqlite3.Connection, offset_us: int, after: int, limit: int
) -> list[ScheduleRule]:
    """Return the rules of schedules that are not paused; large payloads end the page."""
    found: list[ScheduleRule] = []
    size = 0
    with closing(connection.execute(queries.RULES, (after, limit))) as cursor:
        for ident, name, text, phase_us, elapsed, length in cursor:
            rule = rows.rule_from(text, phase_us + (offset_us if elapsed else 0))
            found.append(ScheduleRule(ident, name, rule))
            size += length
            if size > limits.SCHEDULE_PAGE_PAYLOADS_BYTES_MAX:
                break
    return found


def _with_active(connection: sqlite3.Connection, found: list[Schedule]) -> list[Schedule]:
    by_id = {schedule.id: schedule for schedule in found}
    ids = msgspec.json.encode([*by_id]).decode()
    for schedule_id, job_id, state in connection.execute(queries.ACTIVE, {"ids": ids}):
        schedule = by_id[schedule_id]
        schedule.active.append(job_id)
        if state == State.BLOCKED:
            schedule.blocked = job_id  # the latest
    for schedule in found:
        if len(schedule.active) == limits.ACTIVE_RUNS_KNOWN_MAX:
            schedule.blocked = connection.execute(
                queries.LATEST_BLOCKED, (schedule.id,)
            ).fetchone()[0]
    return found


def page_of_blocked(
    connection: sqlite3.Connection, offset_us: int, load: LoadBlocked
) -> list[BlockedRun]:
    """Return a page of blocked runs with their schedules, in order of their ids."""
    known: dict[int, Schedule | None] = {}

    def blocked_run(job_id: int, ident: int) -> BlockedRun:
        if ident not in known:
            row = connection.execute(queries.SCHEDULE_BY_ID, (ident,)).fetchone()
            known[ident] = None if row is None else rows.schedule_from_row(row, offset_us)
        return BlockedRun(job_id, ident, known[ident])

    # One schedule at a time is read, because payloads may be large.
    found = connection.execute(queries.BLOCKED, (load.after, load.limit)).fetchall()
    page = load.take_page(starmap(blocked_run, found))
    _with_active(connection, [each for each in known.values() if each is not None])
    return page
