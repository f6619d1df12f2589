"""The statements of a commit.

A commit of jobs alone, as most are, is one statement and so one round trip and one transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import asyncpg
import msgspec

from schedo.core.action_log import LogEntry
from schedo.core.bulk import BulkOperation
from schedo.core.changes import Changes
from schedo.core.ids import newest_at
from schedo.core.model import DecisionRecord
from schedo.errors import StoreError, StoreRefused
from schedo.store import rows
from schedo.store.columns import Row
from schedo.store.postgres import histories, tables, taken_in
from schedo.store.postgres.errors import DRIVER_ERRORS, is_refusal
from schedo.store.postgres.evidence import Evidence, keep_decisions
from schedo.store.postgres.job_rows import WRITE_JOBS, WRITE_USUAL_JOBS, JobRows, encode_jobs
from schedo.store.postgres.owned import Owned
from schedo.store.postgres.session import Writer, transaction
from schedo.store.postgres.tables import Statement, columns_of
from schedo.store.unencodable import UNFIT, find_unencodable

_encode = msgspec.json.Encoder().encode

# For the ids of jobs.
DELETE_JOBS = (
    "DELETE FROM job WHERE id = ANY($1::bigint[])",
    "DELETE FROM job_payload WHERE job_id = ANY($1::bigint[])",
    "DELETE FROM job_tag WHERE job_id = ANY($1::bigint[])",
    "DELETE FROM attempt WHERE job_id = ANY($1::bigint[])",
    "DELETE FROM output WHERE job_id = ANY($1::bigint[])",
)
# An instant that made no job leaves no id, nor does what is deleted. After the clock was set back,
# this mark keeps a later rule from deciding the instant again, and a new record from the id. Each
# server has a mark of its own, so that none waits for the commit of another one.
MARK_DECIDED = """
INSERT INTO meta (name, value) VALUES ('decided_at_' || $2::bigint, $1)
ON CONFLICT (name) DO UPDATE SET value = greatest(meta.value, excluded.value)"""
# The version of the queues, pauses and cordons. Each heartbeat of another server looks at it.
_RAISE_SETTINGS = """
INSERT INTO meta (name, value) VALUES ('settings', 1)
ON CONFLICT (name) DO UPDATE SET value = meta.value + 1"""
SETTINGS = "SELECT value FROM meta WHERE name = 'settings'"
_DELETE_SCHEDULES = (
    "DELETE FROM schedule WHERE id = ANY($1::bigint[])",
    "DELETE FROM decision WHERE schedule_id = ANY($1::bigint[])",
    "DELETE FROM run_history WHERE schedule_id = ANY($1::bigint[])",
)
_DELETE_PAUSES = "DELETE FROM pause WHERE scope = ANY($1::text[])"
_DELETE_CORDONS = "DELETE FROM cordon WHERE name = ANY($1::text[])"
_DELETE_EXPECTATIONS = "DELETE FROM expectation WHERE id = ANY($1::bigint[])"
_UPSERT_OPERATIONS = """
INSERT INTO bulk_operation (id, record, shard)
SELECT id, record, $3::smallint FROM unnest($1::bigint[], $2::text[]) AS put (id, record)
ON CONFLICT (id) DO UPDATE SET record = excluded.record"""
_DELETE_OPERATIONS = (
    "DELETE FROM bulk_operation WHERE id = ANY($1::bigint[])",
    "DELETE FROM bulk_step WHERE operation = ANY($1::bigint[])",
)
_DELETE_STEPS = """
DELETE FROM bulk_step USING unnest($1::bigint[], $2::bigint[]) AS kept (operation, number)
WHERE bulk_step.operation = kept.operation AND bulk_step.number = kept.number"""
_INSERT_LOG = (
    f"INSERT INTO action_log ({', '.join(LogEntry._fields)}) SELECT * FROM unnest($1::bigint[],"
    " $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],"
    " $9::bigint[])"
)


class Commit(NamedTuple):
    """The writes of one commit, in the order of writing; no: of the server."""

    no: int
    deletes: Sequence[Statement]
    jobs: JobRows
    evidence: Evidence = Evidence()
    others: Sequence[Statement] = ()
    taken_in: Sequence[int] = ()  # rows of the inbox that it deletes

    def statements(self) -> list[Statement]:
        """Return all statements."""
        dropped = delete_jobs(self.jobs.unkept, self.no) if self.jobs.unkept else ()
        jobs = (*self.jobs.statements(), *self.evidence.statements())
        return [*self.deletes, *dropped, *jobs, *self.others]


def encode(changes: Changes, offset_us: int, owned: Owned) -> Commit:
    """Return the writes that make the changes durable; the records may change afterwards.

    Raise StoreRefused if a value cannot be encoded.
    """
    try:
        return _encode_changes(changes, offset_us, owned)
    except UNFIT as error:
        encode_single = partial(_encode_changes, offset_us=offset_us, owned=owned)
        raise StoreRefused.of_commit(error, find_unencodable(changes, encode_single)) from error


def _encode_changes(changes: Changes, offset_us: int, owned: Owned) -> Commit:
    jobs = encode_jobs([*changes.jobs.values()], offset_us, owned.place)
    if not changes.has_others:
        return Commit(owned.no, (), jobs)
    deletes = delete_jobs(changes.jobs_deleted, owned.no) if changes.jobs_deleted else ()
    others = [*_encode_others(changes, offset_us, owned)]
    evidence = Evidence.of(changes, owned.shards)
    return Commit(owned.no, deletes, jobs, evidence, others, changes.taken_in)


def delete_jobs(job_ids: Sequence[int], no: int) -> list[Statement]:
    """Return the statements that delete all records of the jobs. no: of the server.

    The jobs leave no id behind, so the mark keeps a later job from getting one of theirs.
    """
    mark = Statement(MARK_DECIDED, (newest_at(max(job_ids)) + 1, no))
    return [*(Statement(sql, (job_ids,)) for sql in DELETE_JOBS), mark]


def _encode_others(changes: Changes, offset_us: int, owned: Owned) -> Iterator[Statement]:
    deleted = set(changes.schedules_deleted)
    if deleted:
        for sql in _DELETE_SCHEDULES:
            yield Statement(sql, (list(deleted),))
    yield from histories.mark_runs(changes)
    schedules = [
        rows.schedule_row(each, offset_us)
        for each in changes.schedules.values()
        if each.id not in deleted
    ]
    yield from _rows_of(tables.SCHEDULE, tables.SCHEDULE.upsert("id"), schedules)
    if changes.ended_runs:
        added = [rows.ended_run_row(run) for run in changes.ended_runs]
        yield Statement(histories.ADD_ENDED_RUN, added, each=True)
    yield from _encode_settings(changes, offset_us)
    yield from _encode_operations(changes, owned)
    decisions = [each for each in changes.decisions if each.schedule_id not in deleted]
    yield from keep_decisions(decisions)
    marks = _marks(changes, decisions)
    if marks:
        yield Statement(MARK_DECIDED, (max(marks), owned.no))
    records = {each.scope: each for each in changes.idempotency_records}  # the last of each scope
    yield from _rows_of(
        tables.IDEMPOTENCY_RECORD,
        tables.IDEMPOTENCY_RECORD.upsert("scope"),
        [*records.values()],
    )
    if changes.taken_in:
        yield taken_in.delete(changes.taken_in)
    if changes.log:
        entries = [(*entry[:-1], int(entry.is_job)) for entry in changes.log]
        yield Statement(_INSERT_LOG, columns_of(entries, len(LogEntry._fields)))
    if has_settings(changes):
        yield taken_in.WAIT_AGAIN
        yield Statement(_RAISE_SETTINGS, ())  # the last one: other servers wait for this row


def has_settings(changes: Changes) -> bool:
    """Whether there are changes that all servers follow."""
    return bool(changes.queues or changes.pauses or changes.cordons)


def _encode_settings(changes: Changes, offset_us: int) -> Iterator[Statement]:
    queues = [*map(rows.queue_row, changes.queues.values())]
    yield from _rows_of(tables.QUEUE, tables.QUEUE.upsert("name"), queues)
    pauses = [rows.pause_row(each) for each in changes.pauses.values() if each is not None]
    yield from _rows_of(tables.PAUSE, tables.PAUSE.upsert("scope"), pauses)
    ended = [scope.value for scope, each in changes.pauses.items() if each is None]
    if ended:
        yield Statement(_DELETE_PAUSES, (ended,))
    cordons = [rows.cordon_row(each) for each in changes.cordons.values() if each is not None]
    yield from _rows_of(tables.CORDON, tables.CORDON.upsert("name"), cordons)
    uncordoned = [name for name, each in changes.cordons.items() if each is None]
    if uncordoned:
        yield Statement(_DELETE_CORDONS, (uncordoned,))
    expectations = [
        rows.expectation_row(each, offset_us)
        for each in changes.expectations.values()
        if each is not None
    ]
    yield from _rows_of(tables.EXPECTATION, tables.EXPECTATION.upsert("id"), expectations)
    deleted = [ident for ident, each in changes.expectations.items() if each is None]
    if deleted:
        yield Statement(_DELETE_EXPECTATIONS, (deleted,))


def _encode_operations(changes: Changes, owned: Owned) -> Iterator[Statement]:
    put = [each for each in changes.bulk_operations.values() if each is not None]
    if put:
        shard = owned.shards[0] if owned.shards else 0
        yield Statement(_UPSERT_OPERATIONS, (*columns_of([*map(_operation_row, put)], 2), shard))
    steps = [(step.operation, step.number, _encode(step.jobs).decode()) for step in changes.steps]
    yield from _rows_of(tables.STEP, tables.STEP.insert, steps)
    if changes.steps_deleted:
        yield Statement(_DELETE_STEPS, columns_of(changes.steps_deleted, 2))
    deleted = [ident for ident, each in changes.bulk_operations.items() if each is None]
    if deleted:
        for sql in _DELETE_OPERATIONS:
            yield Statement(sql, (deleted,))


def _operation_row(operation: BulkOperation) -> Row:
    return rows.bulk_operation_row(operation)


def _rows_of(table: tables.Table, sql: str, found: Sequence[Row]) -> Iterator[Statement]:
    if found:
        yield Statement(sql, columns_of(found, len(table.names)))


def _marks(changes: Changes, decisions: Sequence[DecisionRecord]) -> list[int]:
    """Return instants after which all new ids must be: of decisions, and of deleted ids."""
    kept_by_id = (changes.expectations, changes.bulk_operations)
    deleted = [ident for each in kept_by_id for ident, record in each.items() if record is None]
    deleted += changes.schedules_deleted
    return [
        *(decision.decided_at for decision in decisions),
        *(newest_at(ident) + 1 for ident in deleted),
    ]


async def carry_out(
    writer: Writer, commit: Commit, leave_held: Callable[[Sequence[int]], Awaitable[None]]
) -> None:
    """Make the commit durable; raise StoreRefused with the jobs that cannot be written.

    leave_held: called with its rows of the inbox if others hold some of them.
    """
    statements = commit.statements()
    if not statements:
        return
    try:
        await writer.run(lambda connection: run(connection, statements))
    except StoreRefused as error:
        faults = await writer.run(lambda connection: find_unwritable(connection, commit))
        raise StoreRefused.of_commit(error, faults) from error
    except StoreError as error:
        if taken_in.has_waited(error):
            await leave_held(commit.taken_in)
        raise


async def run(connection: asyncpg.Connection, statements: Sequence[Statement]) -> None:
    """Run the statements in one transaction."""
    if len(statements) == 1 and not statements[0].each:
        await connection.execute(statements[0].sql, *statements[0].parameters)
        return
    async with transaction(connection):
        await _run_all(connection, statements)


async def rehearse(connection: asyncpg.Connection) -> None:
    """Write no job by the statement for jobs.

    The first use of a statement in a session takes some 14 ms: its plan, and the driver asks for
    the columns of its rows. After a take-over the first results would wait for that.
    """
    await connection.execute(WRITE_USUAL_JOBS, 0, [], [])
    await connection.execute(WRITE_JOBS, 0, [], [], [], [])


async def _run_all(connection: asyncpg.Connection, statements: Iterable[Statement]) -> None:
    for sql, parameters, each in statements:
        if each:
            await connection.executemany(sql, parameters)
        else:
            await connection.execute(sql, *parameters)


async def find_unwritable(connection: asyncpg.Connection, commit: Commit) -> dict[int, str]:
    """Return the error of each job whose rows the database refuses, by job id.

    So it does those of a SQL client whose row of the inbox someone else has deleted.
    """
    faults: dict[int, str] = {}
    try:
        async with connection.transaction():
            gone = await taken_in.find_gone(connection, commit.taken_in) if commit.taken_in else ()
            faults |= dict.fromkeys(gone, "its row is not in the inbox any more")
            await _run_all(connection, commit.deletes)
            singles: Iterator[tuple[int, JobRows | Evidence]] = chain(
                commit.jobs.of_each_job(), commit.evidence.of_each_job()
            )
            for job_id, single in singles:
                fault = await _try(connection, [*single.statements()])
                if fault is not None:
                    faults.setdefault(job_id, fault)
            raise taken_in.Undo
    except (taken_in.Undo, StoreRefused, *DRIVER_ERRORS):  # if the check fails, no job is blamed
        return faults


async def _try(connection: asyncpg.Connection, statements: Sequence[Statement]) -> str | None:
    try:
        async with connection.transaction():
            await _run_all(connection, statements)
    except DRIVER_ERRORS as error:
        if not is_refusal(error):
            raise
        return str(error)
    return None
