"""The loads of the core, carried out in the writer's thread; core/loads.py has them as values."""

from __future__ import annotations

import sqlite3
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from schedo.core import loads
from schedo.core.model import Job
from schedo.store import rows
from schedo.store.sqlite import queries, reads
from schedo.store.sqlite.connection import transaction, unsynced
from schedo.store.sqlite.write_buffer import WriteBuffer

_encode_list = msgspec.json.Encoder().encode


def carry_out(
    connection: sqlite3.Connection, buffer: WriteBuffer, load: loads.Load, offset_us: int
) -> Any:
    """Return the result of the load; base.Store defines it for each kind."""
    buffer.is_bypassed = False  # the recovery is written
    if not _is_in_tables(connection, buffer, load):
        buffer.flush(connection)
    if isinstance(load, loads.LoadReady):
        return _ready(connection, buffer, load, offset_us)
    if isinstance(load, loads.LoadExpired):
        return _expired(connection, buffer, load, offset_us)
    return _read(connection, load, offset_us)


def _is_in_tables(connection: sqlite3.Connection, buffer: WriteBuffer, load: loads.Load) -> bool:
    """Return whether the tables have all that the load may find, whatever else is buffered."""
    match load:
        case loads.LoadJob():
            return not buffer.holds(load.job_id)
        case loads.LoadJobs():
            return not any(map(buffer.holds, load.job_ids))
        case loads.LoadUniqueHolders():
            if any(map(buffer.holds_key, load.keys)):
                return False
            holders = reads.fetch_all(connection, queries.UNIQUE_IDS, (_keys(load),))
            return not any(buffer.holds(job_id) for (job_id,) in holders)
        case loads.LoadReady() | loads.LoadExpired():
            return True  # it is read together with the buffer
        case _:
            return not buffer


def _keys(load: loads.LoadUniqueHolders) -> str:
    return _encode_list(load.keys).decode()


def _read(  # noqa: C901  # one arm for each kind of load
    connection: sqlite3.Connection, load: loads.Load, offset_us: int
) -> Any:
    match load:
        case loads.LoadTimers():
            return reads.page_of_timers(connection, offset_us, load)
        case loads.LoadSchedules():
            return reads.page_of_schedules(connection, offset_us, load)
        case loads.LoadBlocked():
            return reads.page_of_blocked(connection, offset_us, load)
        case loads.LoadJob():
            return reads.job(connection, offset_us, queries.JOB, load.job_id)
        case loads.LoadJobs(job_ids):
            ids = _encode_list(job_ids).decode()
            return {job.id: job for job in reads.jobs(connection, offset_us, queries.JOBS, (ids,))}
        case loads.LoadUniqueHolders():
            found = reads.jobs(connection, offset_us, queries.UNIQUE, (_keys(load),))
            return {job.unique_key: job for job in found}
        case loads.LoadSchedule():
            return reads.schedule(connection, offset_us, load.which)
        case loads.PromoteDue():
            return _promote_due(connection, load, offset_us)


def _ready(
    connection: sqlite3.Connection, buffer: WriteBuffer, load: loads.LoadReady, offset_us: int
) -> list[Job]:
    """Read a page through the write buffer.

    Most jobs of a backlog have not ended yet when its next page is read. If the buffer was flushed
    then, they would be written to the tables twice.
    """
    jobs = reads.page_of_ready(connection, offset_us, load)
    buffered = buffer.find_queued(load)
    if buffered is None or buffer.holds_any(job.id for job in jobs):
        buffer.flush(connection)
        return reads.page_of_ready(connection, offset_us, load)
    if not buffered:
        return jobs
    jobs += [rows.job_from_new_row(row, offset_us) for row in buffered]
    return sorted(jobs, key=attrgetter("rank", "id"))[: load.limit]


def _expired(
    connection: sqlite3.Connection, buffer: WriteBuffer, load: loads.LoadExpired, offset_us: int
) -> list[Job]:
    """Read the expired jobs, and flush only if the buffer may have some or a newer row of one.

    The core asks each second. To flush the buffer of a busy store each time would hold its commits
    up for 10 ms.
    """
    jobs = reads.expired(connection, offset_us, load.now, load.limit)
    latest = max(load.now, load.now - offset_us)  # on either timeline
    if buffer.may_expire(latest) or buffer.holds_any(job.id for job in jobs):
        buffer.flush(connection)
        return reads.expired(connection, offset_us, load.now, load.limit)
    return jobs


def _promote_due(
    connection: sqlite3.Connection, load: loads.PromoteDue, offset_us: int
) -> loads.Promoted:
    """Queue the jobs with one statement.

    The transaction is not synced: if it is lost, the jobs are still due and are queued again.
    """
    key = itemgetter(0, 1)
    page = reads.page_of_timelines(connection, offset_us, queries.DUE, load, key, load.until)
    if page:
        ids = _encode_list([job_id for (_, job_id), _ in page]).decode()
        with unsynced(connection), transaction(connection):
            connection.execute(queries.QUEUE_JOBS, {"ids": ids, "offset_us": offset_us})
    last = page[-1][0] if len(page) == load.limit else None
    return loads.Promoted(
        [(rows.ready_key_from_row(row[4:]), (row[2], job_id)) for (_, job_id), row in page],
        last,
        frozenset(job_id for (_, job_id), row in page if row[3] == "retrying"),
    )
