"""Deletes jobs past their retention with all their records, a few hundred at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import msgspec

from schedo.core.states import State
from schedo.store.base import Retention
from schedo.store.sqlite import queries
from schedo.store.sqlite.connection import transaction, unsynced

# Free pages are used again: the file keeps these, and a fourth of its pages.
FREE_PAGES_MIN = 1_024
FREED_AT_ONCE = 64  # pages: about a millisecond

_encode_ids = msgspec.json.Encoder().encode


def kept_us(retention: Retention) -> dict[State, int]:
    """Return how long jobs of each final state are kept."""
    return {
        State.COMPLETED: retention.completed_us,
        State.CANCELLED: retention.cancelled_us,
        State.EXPIRED: retention.cancelled_us,
        State.FAILED: retention.failed_us,
    }


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
    jobs = _find_ended(connection, now, retention, limit, is_buffered)
    ids = _encode_ids(jobs).decode()
    with unsynced(connection), transaction(connection):
        for statement in queries.DELETE_JOBS:
            connection.execute(statement, (ids,))
        oldest = now - retention.idempotency_us
        records = connection.execute(
            queries.DELETE_IDEMPOTENCY_RECORDS, (oldest, limit - len(jobs))
        ).rowcount
    return len(jobs) + records or _give_back(connection)


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
    return jobs


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
