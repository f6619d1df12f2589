"""Reading from a SQLite file: plain functions that run in a connection's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from schedo.core.lifecycle import State
from schedo.core.model import Job, Schedule
from schedo.store import queries, rows
from schedo.store.base import Opening, OutputPiece, OutputSize

_INTEGER_MIN = -(2**63)
_INTEGER_MAX = 2**63 - 1
_BEFORE_ALL = (_INTEGER_MIN, _INTEGER_MIN)


def take_stock(connection: sqlite3.Connection) -> Opening:
    """Return what a server must know before its first turn."""
    (epoch,) = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
    (last_id,) = connection.execute(queries.LAST_ID).fetchone()
    return Opening(
        epoch=epoch,
        last_id=last_id,
        queues=[rows.queue_from_row(row) for row in connection.execute(queries.QUEUES)],
        lanes=[rows.lane_from_row(row) for row in connection.execute(queries.LANES)],
        blocked=connection.execute(queries.BLOCKED).fetchall(),
    )


def rows_of(
    connection: sqlite3.Connection, query: str, parameters: Sequence[object]
) -> list[rows.Row]:
    """Return the rows of a query."""
    return connection.execute(query, parameters).fetchall()


def output_sizes(connection: sqlite3.Connection, job_id: int) -> list[OutputSize]:
    """Return how large a job's captured streams are."""
    return [OutputSize(*row) for row in rows_of(connection, queries.OUTPUT_SIZES, (job_id,))]


def output_piece(connection: sqlite3.Connection, job_id: int, piece: OutputPiece) -> bytes:
    """Return some bytes of a captured stream; none if it is gone."""
    place = (piece.at, piece.length, job_id, piece.attempt, piece.stream)
    found = rows_of(connection, queries.OUTPUT_PARTS[piece.part], place)
    return bytes(found[0][0]) if found else b""


def page_of_rows(
    connection: sqlite3.Connection,
    query: queries.Paged,
    after: tuple[int, int] | None,
    limit: int,
    **named: str | int,
) -> list[rows.Row]:
    """Return the rows of a page in the order of the query."""
    value, last_id = after or _BEFORE_ALL
    parameters: dict[str, str | int] = {"value": value, "id": last_id, "limit": limit, **named}
    found = connection.execute(query.same, parameters).fetchall()
    if len(found) < limit:
        parameters["limit"] = limit - len(found)
        found += connection.execute(query.later, parameters).fetchall()
    return found


def count_timed(
    connection: sqlite3.Connection, after: tuple[int, int] | None, limit: int
) -> tuple[list[tuple[str, str, int]], tuple[int, int] | None]:
    """Count about limit jobs that wait for an instant; return also where to go on, or None."""
    value, last_id = after or _BEFORE_ALL
    parameters = {"value": value, "id": last_id, "limit": limit}
    same = connection.execute(queries.COUNT_SAME, parameters).fetchall()
    counted = [(queue, state, count) for queue, state, count, _ in same]
    if sum(count for _, _, count in counted) == limit:
        return counted, (value, max(row[3] for row in same))
    bound = connection.execute(queries.COUNT_BOUND, parameters).fetchone()
    parameters["bound"] = bound[0] if bound is not None else _INTEGER_MAX
    counted += connection.execute(queries.COUNT_BELOW, parameters).fetchall()
    return counted, None if bound is None else (bound[0], _INTEGER_MIN)


def page_of_jobs(
    connection: sqlite3.Connection,
    /,
    query: queries.Paged,
    after: tuple[int, int] | None,
    limit: int,
    **named: str,
) -> list[Job]:
    """Return a page of jobs in the order of the query."""
    return rows.jobs_from_rows(page_of_rows(connection, query, after, limit, **named))


def page_of_schedules(
    connection: sqlite3.Connection,
    query: queries.Paged,
    after: tuple[int, int] | None,
    limit: int,
) -> list[Schedule]:
    """Return a page of schedules in the order of the query, with their active jobs."""
    return _with_active(connection, page_of_rows(connection, query, after, limit))


def jobs(connection: sqlite3.Connection, query: str, parameters: Sequence[object]) -> list[Job]:
    """Return the jobs of a query."""
    return rows.jobs_from_rows(connection.execute(query, parameters))


def schedules(
    connection: sqlite3.Connection, query: str, parameters: Sequence[object]
) -> list[Schedule]:
    """Return the schedules of a query, with their active jobs."""
    return _with_active(connection, connection.execute(query, parameters).fetchall())


def _with_active(connection: sqlite3.Connection, found_rows: list[rows.Row]) -> list[Schedule]:
    found = [rows.schedule_from_row(row) for row in found_rows]
    by_id = {schedule.id: schedule for schedule in found}
    ids = msgspec.json.encode([*by_id]).decode()
    for schedule_id, job_id, state in connection.execute(queries.ACTIVE, {"ids": ids}):
        schedule = by_id[schedule_id]
        schedule.active.append(job_id)
        if state == State.BLOCKED and schedule.blocked is None:
            schedule.blocked = job_id
    return found
