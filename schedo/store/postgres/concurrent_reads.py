"""The reads of a store in PostgreSQL, which run concurrently with commits on other sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import asyncpg

from schedo.core.action_log import LogFilter, NumberedEntry
from schedo.core.bulk import BulkOperation
from schedo.core.bulk_undo import BulkStep
from schedo.core.changes import AttemptRecord, IdempotencyRecord
from schedo.core.expectations import Expectation
from schedo.core.job_filter import JobFilter, Order
from schedo.core.limits import INTEGER_MAX
from schedo.core.model import Job, Schedule
from schedo.core.paged_index import Pair
from schedo.core.run_history import RunHistory, ScheduleStatus
from schedo.core.schedule_filter import ANY_SCHEDULE, ScheduleCounts, ScheduleFilter
from schedo.core.tallies import Dimension, Period
from schedo.errors import StoreError
from schedo.store import rows
from schedo.store.base import OutputPiece, OutputSize, ScheduleRule, StoredNames
from schedo.store.database_health import DatabaseHealth
from schedo.store.pages import DecisionPage, IdPage, JobPage, SchedulePage
from schedo.store.postgres import due_search, job_search, reads, schedule_search, tallies
from schedo.store.postgres.address import Address
from schedo.store.postgres.health import read_health
from schedo.store.postgres.owned import Owned
from schedo.store.postgres.replica import Replica
from schedo.store.postgres.session import Readers

T = TypeVar("T")


class ConcurrentReads:
    """The concurrent reads of base.Store; PostgresStore opens and closes their sessions."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._offset_us = 0  # added to stored instants that count elapsed time
        self._readers: Readers | None = None
        self._owned = Owned(0)
        self._replica: Replica | None = None  # which answers lists and searches

    def _require_readers(self) -> Readers:
        if self._readers is None:
            raise StoreError(f"the store {self._address.shown} is not open")
        return self._readers

    async def _list(self, read: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Return what a list or a search finds: on the replica, or else on the primary."""
        primary = self._require_readers()
        if self._replica is not None and self._replica.is_fresh():
            try:
                async with self._replica.readers.search() as session:
                    return await read(session)
            except StoreError as error:
                self._replica.note_failure(error)
        async with primary.search() as session:
            return await read(session)

    async def get_job(self, job_id: int) -> Job | None:
        async with self._require_readers().session() as session:
            return await reads.job(session, self._offset_us, reads.WHOLE_JOB, job_id)

    async def list_jobs(
        self, which: JobFilter, after: int | None, limit: int, order: Order = Order.NEWEST
    ) -> JobPage[int]:
        place = after, order
        return await self._list(
            lambda session: job_search.search(session, self._offset_us, which, place, limit)
        )

    async def list_due(self, which: JobFilter, after: Pair | None, limit: int) -> JobPage[Pair]:
        return await self._list(
            lambda session: due_search.search(session, self._offset_us, which, after, limit)
        )

    async def find_job_ids(self, which: JobFilter, before: int | None, limit: int) -> IdPage:
        async with self._require_readers().search() as session:
            return await job_search.search_ids(session, self._offset_us, which, (before, limit))

    async def settle(self) -> None:
        """Do nothing: each read sees every commit that returned before it."""
        self._require_readers()

    async def list_attempts(self, job_id: int) -> list[AttemptRecord]:
        async with self._require_readers().session() as session:
            found = await session.fetch(reads.ATTEMPTS, job_id)
        return [rows.attempt_from_row(row) for row in found]

    async def list_output_sizes(self, job_id: int) -> list[OutputSize]:
        async with self._require_readers().session() as session:
            return await reads.output_sizes(session, job_id)

    async def read_output(self, job_id: int, piece: OutputPiece) -> bytes:
        async with self._require_readers().session() as session:
            return await reads.output_piece(session, job_id, piece)

    async def get_schedule(self, which: str | int) -> Schedule | None:
        async with self._require_readers().session() as session:
            return await reads.schedule_alone(session, self._offset_us, which)

    async def list_schedules(
        self, after: str | None, limit: int, which: ScheduleFilter = ANY_SCHEDULE
    ) -> SchedulePage:
        return await self._list(
            lambda session: schedule_search.search(session, self._offset_us, which, after, limit)
        )

    async def count_schedules(self, overdue: Sequence[int]) -> ScheduleCounts:
        return await self._list(lambda session: schedule_search.count(session, overdue))

    async def list_overdue(self) -> list[int]:
        async with self._require_readers().session() as session:
            return [ident for (ident,) in await session.fetch(reads.OVERDUE)]

    async def list_expectations(self, schedule_ids: Sequence[int]) -> list[Expectation]:
        async with self._require_readers().session() as session:
            found = await session.fetch(reads.EXPECTATIONS_OF, schedule_ids)
        return [rows.expectation_from_row(row, self._offset_us) for row in found]

    async def get_histories(self, schedule_ids: Sequence[int]) -> dict[int, RunHistory]:
        async with self._require_readers().session() as session:
            return await reads.histories(session, schedule_ids)

    async def list_schedule_statuses(self, after: int, limit: int) -> list[ScheduleStatus]:
        async with self._require_readers().session() as session:
            return await reads.schedule_statuses(session, after, limit)

    async def list_rules(self, after: int, limit: int) -> list[ScheduleRule]:
        async with self._require_readers().session() as session:
            return await reads.rules(session, self._offset_us, after, limit)

    async def list_owned(self, owner: str) -> list[str]:
        async with self._require_readers().session() as session:
            return [name for (name,) in await session.fetch(reads.OWNED, owner)]

    async def list_names(self, schedules_max: int, tags_max: int) -> StoredNames:
        async with self._require_readers().session() as session:
            schedules = await session.fetch(reads.SCHEDULE_NAMES, schedules_max)
            tags = await session.fetch(reads.TAGS, tags_max)
        return StoredNames([name for (name,) in schedules], [tag for (tag,) in tags])

    async def list_decisions(
        self, schedule_id: int, limit: int, before: int | None = None
    ) -> DecisionPage:
        first = INTEGER_MAX if before is None else before
        async with self._require_readers().session() as session:
            found = await session.fetch(reads.DECISIONS, schedule_id, first, limit + 1)
        page = [rows.decision_from_row(tuple(row)[1:]) for row in found[:limit]]
        return DecisionPage(page, found[limit - 1][0] if len(found) > limit else None)

    async def list_log(
        self, which: LogFilter, before: int | None, limit: int
    ) -> list[NumberedEntry]:
        return await self._list(lambda session: reads.log_entries(session, which, before, limit))

    async def load_bulk_step(self, operation: int, before: int) -> BulkStep | None:
        async with self._require_readers().session() as session:
            return await reads.next_step(session, operation, before)

    async def list_bulk_changes(self, job_id: int) -> list[tuple[BulkOperation, int]]:
        async with self._require_readers().session() as session:
            return await reads.bulk_changes(session, job_id)

    async def load_minutes(self, after: int) -> list[tuple[int, str]]:
        async with self._require_readers().session() as session:
            return [
                (at, figures)
                for at, figures in await session.fetch(reads.MINUTES, after, self._owned.no)
            ]

    async def load_tallies(
        self, dimension: Dimension, period: Period, after: int, before: int, limit: int
    ) -> list[tuple[int, str]]:
        wanted = dimension.value, period.value, after, before, limit
        found = await self._list(lambda session: session.fetch(tallies.ROWS, *wanted))
        return [(at, figures) for at, figures in found]

    async def find_idempotency_record(
        self, scope: str, fingerprint: bytes
    ) -> IdempotencyRecord | None:
        async with self._require_readers().session() as session:
            found = await session.fetchrow(reads.IDEMPOTENCY_RECORD, scope, fingerprint)
        return IdempotencyRecord(*found) if found is not None else None

    async def size_bytes(self) -> int:
        async with self._require_readers().session() as session:
            return int(await session.fetchval(reads.SIZE))

    async def database_health(self) -> DatabaseHealth:
        async with self._require_readers().session() as session:
            return await read_health(session)
