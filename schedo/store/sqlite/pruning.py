"""Deletes jobs past their retention with all their records, a few hundred at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import msgspec

from schedo.store.base import Retention
from schedo.store.retention import RELEASE_AFTER_US, RUNS_LOOKED_AT_ONCE, kept_us
from schedo.store.sqlite import queries, unkept
from schedo.store.sqlite.action_log import prune_log
from schedo.store.sqlite.connection import transaction, unsynced

# Free pages are used again: the file keeps these, and a fourth of its pages.
FREE_PAGES_MIN = 1_024
FREED_AT_ONCE = 64  # pages: about a millisecond

_encode_ids = msgspec.json.Encoder().encode


def prune(
    connection: sqlite3.Connection,
    now: int,
    retention: Retention,
    limit: int,
    is_buffered: Callable[[int], bool],
) -> int:
    """Delete up to `limit` ended jobs and idempotency records in one transaction.

    is_buffered: whether the write buffer has a newer row of a job; such a job stays. If there are
    none, give free pages back. Return the number of these records or pages. The transaction is not
    synced: if it is lost, the step is taken again.
    """
    with unsynced(connection), transaction(connection):
        effort = _release_runs(connection, now, retention.schedule_runs, limit)
        room = max(0, limit - effort)
        jobs = _find_ended(connection, now, retention, room, is_buffered)
        for statement, [parameters] in unkept.drop(jobs) if jobs else ():
            connection.execute(statement, parameters)
        oldest = now - retention.idempotency_us
        records = connection.execute(
            queries.DELETE_IDEMPOTENCY_RECORDS, (oldest, room - len(jobs))
        ).rowcount
        entries = prune_log(connection, now, max(0, room - len(jobs) - records))
    return effort + len(jobs) + records + entries or _give_back(connection)


def _release_runs(connection: sqlite3.Connection, now: int, kept: int, limit: int) -> int:
    """Release the runs that are not among the last ones of their schedules; return the effort.

    A released run is deleted like any other job. A schedule is looked at a while after a run of it
    has ended, when the write buffer has been flushed. To look at its runs takes as long as to
    delete some jobs, which counts, too.
    """
    until = now - RELEASE_AFTER_US
    effort = 0
    due = connection.execute(queries.RUNS_TO_RELEASE, (until, max(1, limit // RUNS_LOOKED_AT_ONCE)))
    for schedule_id, exists in due.fetchall():
        room = limit - effort
        if room <= 0:
            break
        skipped = kept if exists else 0
        found = connection.execute(queries.HELD_RUNS, (schedule_id, room, skipped)).fetchall()
        ids = _encode_ids([job_id for (job_id,) in found]).decode()
        connection.execute(queries.RELEASE_RUNS, (ids,))
        if len(found) < room:
            for statement in queries.RELEASED:
                connection.execute(statement, (schedule_id, until))
        effort += len(found) + 1 + skipped // RUNS_LOOKED_AT_ONCE
    return effort


def _find_ended(
    connection: sqlite3.Connection,
    now: int,
    retention: Retention,
    limit: int,
    is_buffered: Callable[[int], bool],
) -> list[int]:
    jobs: list[int] = []
    for state, kept in kept_us(retention).items():
        parameters = (str(state.value), now - kept, limit - len(jobs))
        found = connection.execute(queries.ENDED, parameters).fetchall()
        jobs += [job_id for (job_id,) in found if not is_buffered(job_id)]
    found = connection.execute(queries.KEPT_ENOUGH, (now, limit - len(jobs))).fetchall()
    return [*jobs, *(job_id for (job_id,) in found if not is_buffered(job_id))]


def _give_back(connection: sqlite3.Connection) -> int:
    """Give some free pages back to the file system, and return how many.

    The next checkpoint cuts the file. A file that an earlier version made keeps its size.
    """
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    free = _free_pages(connection)
    if free <= max(FREE_PAGES_MIN, pages // 4):
        return 0
    with unsynced(connection), transaction(connection):
        for _ in range(FREED_AT_ONCE):  # sqlite3 makes only the first step of this statement
            connection.execute("PRAGMA incremental_vacuum(1)").close()
    return free - _free_pages(connection)


def _free_pages(connection: sqlite3.Connection) -> int:
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return int(free)
