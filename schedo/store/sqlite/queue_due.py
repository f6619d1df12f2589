"""The bulk move of due jobs to their queues: one statement a page, in the writer's thread."""

from __future__ import annotations

import sqlite3
from operator import itemgetter

import msgspec

from schedo.core.loads import Promoted
from schedo.store.sqlite import queries, rows
from schedo.store.sqlite.connection import transaction, unsynced
from schedo.store.sqlite.reads import page_of_timelines

_encode_ids = msgspec.json.Encoder().encode


def promote_due(
    connection: sqlite3.Connection,
    offset_us: int,
    after: tuple[int, int],
    until: int,
    limit: int,
) -> Promoted:
    """Queue the first `limit` jobs after the pair `after` that are due up to `until`.

    The transaction is not synced: if it is lost, the jobs are still due and are queued again.
    """
    page = page_of_timelines(
        connection, queries.DUE, after, limit, offset_us, itemgetter(0, 1), until
    )
    if page:
        ids = _encode_ids([job_id for (_, job_id), _ in page]).decode()
        with unsynced(connection), transaction(connection):
            connection.execute(queries.QUEUE_JOBS, (ids,))
    last = page[-1][0] if len(page) == limit else None
    return Promoted(
        [(rows.ready_key_from_row(row[3:]), (row[2], job_id)) for (_, job_id), row in page],
        last,
    )
