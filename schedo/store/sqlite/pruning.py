"""Deletes jobs past their retention with all their records, a few rows at a time."""

from __future__ import annotations

import sqlite3

from schedo.core.states import State
from schedo.store.base import Retention
from schedo.store.sqlite import queries
from schedo.store.sqlite.connection import transaction


def kept_us(retention: Retention) -> dict[State, int]:
    """Return how long jobs of each final state are kept."""
    return {
        State.COMPLETED: retention.completed_us,
        State.CANCELLED: retention.cancelled_us,
        State.EXPIRED: retention.cancelled_us,
        State.FAILED: retention.failed_us,
    }


def prune(connection: sqlite3.Connection, now: int, retention: Retention, limit: int) -> int:
    """Delete up to `limit` ended jobs and idempotency records in one transaction.

    Return the number of deleted records.
    """
    jobs: list[tuple[int]] = []
    for state, kept in kept_us(retention).items():
        parameters = (str(state.value), now - kept, limit - len(jobs))
        jobs += connection.execute(queries.ENDED, parameters).fetchall()
    with transaction(connection):
        for statement in queries.DELETE_JOB:
            connection.executemany(statement, jobs)
        oldest = now - retention.idempotency_us
        records = connection.execute(
            queries.DELETE_IDEMPOTENCY_RECORDS, (oldest, limit - len(jobs))
        ).rowcount
    return len(jobs) + records
