"""The reads of a SQLite store that run concurrently with commits, on read-only connections.

Searches have a connection of their own, so that no look-up waits for them.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from schedo.core.action_log import LogFilter, NumberedEntry
from schedo.core.bulk import BulkOperation
from schedo.core.bulk_undo import BulkStep
from schedo.core.changes import AttemptRecord, IdempotencyRecord
from schedo.core.job_filter import JobFilter, Order
from schedo.core.limits import INTEGER_MAX
from schedo.core.model import Job, Schedule
from schedo.core.paged_index import Pair
from schedo.core.run_history import RunHistory, ScheduleStatus
from schedo.core.schedule_filter import ANY_SCHEDULE, ScheduleCounts, ScheduleFilter
from schedo.store import rows
from schedo.store.base import OutputPiece, OutputSize, ScheduleRule, StoredNames
from schedo.store.pages import DecisionPage, IdPage, JobPage, Place, SchedulePage
from schedo.store.sqlite import action_log, bulk_steps, due_search, queries, reads, schedule_search
from schedo.store.sqlite.connection import MEMORY, Connection, connect_searcher
from schedo.store.sqlite.file_guard import DatabaseGuard
from schedo.store.sqlite.job_search import Position, search, search_ids
from schedo.store.sqlite.store_calls import StoreCalls

if TYPE_CHECKING:
    from schedo.core.tallies import Dimension, Period

P = ParamSpec("P")
T = TypeVar("T")

# When its search has looked at this number of jobs, or for this time, a page ends and says where.
LOOKED_AT_MAX = 50_000
SEARCH_S = 0.025


async def _take_steps(
    step: Callable[[Place | None, int, int], Awaitable[JobPage[Place]]],
    after: Place | None,
    limit: int,
) -> JobPage[Place]:
    """Return a page of a search; other searches run between two of its steps.

    step: searches on after a place, for a number of jobs, and looks at a number of them at most.
    """
    until = time.perf_counter() + SEARCH_S
    jobs: list[Job] = []
    looked_at = 0
    while True:
        page = await step(after, limit - len(jobs), LOOKED_AT_MAX - looked_at)
        jobs += page.jobs
        after, looked_at = page.after, looked_at + page.looked_at
        if after is None or len(jobs) == limit:
            return JobPage(jobs, after, looked_at)
        if looked_at >= LOOKED_AT_MAX or time.perf_counter() > until:
            return JobPage(jobs, after, looked_at)


class ConcurrentReads(StoreCalls):
    """The concurrent reads of base.Store; SqliteStore provides the flush before them."""

    def __init__(self, name: str, file_guard: DatabaseGuard) -> None:
        super().__init__(name, file_guard)
        self._offset_us = 0  # added to stored instants that count elapsed time
        self._searcher: Connection | None = None
        self._search_lock = asyncio.Lock()  # while it is opened or closed
        self._is_settled = True  # the disk had room for the last `settle`

    async def _flush_all(self) -> bool:
        """Flush the write buffer to the tables; return whether the disk had room for it."""
        raise NotImplementedError

    async def _read_unflushed(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """As _read, where the tables have the write buffer as well, for this call."""
        raise NotImplementedError

    async def _read_jobs(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """As _read, after the write buffer is flushed: _read alone misses the jobs in there."""
        read = self._read if await self._flush_all() else self._read_unflushed
        return await read(function, *args, **kwargs)

    async def _search(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """As _read, on a connection of its own, which the first search opens."""
        async with self._search_lock:
            connection = self._require_open(self._reader)
            if self._name != MEMORY:
                if self._searcher is None:
                    self._searcher = await self._connect(connect_searcher(self._name))
                connection = self._searcher
        return await self._run(connection, function, *args, **kwargs)

    async def _close_searcher(self) -> None:
        async with self._search_lock:
            searcher, self._searcher = self._searcher, None
        if searcher is not None:
            await searcher.close()

    def _is_buffered(self, job_id: int) -> bool:
        """Return whether the write buffer may have a newer row of the job than the table."""
        raise NotImplementedError

    async def database_health(self) -> None:
        return None

    async def get_job(self, job_id: int) -> Job | None:
        read = self._read_jobs if self._is_buffered(job_id) else self._read
        return await read(reads.job, self._offset_us, queries.WHOLE_JOB, job_id)

    async def list_jobs(
        self, which: JobFilter, after: int | None, limit: int, order: Order = Order.NEWEST
    ) -> JobPage[int]:
        read = self._search if await self._flush_all() else self._read_unflushed

        def step(place: int | None, left: int, looked_max: int) -> Awaitable[JobPage[int]]:
            position = Position(place, order)
            return read(search, self._offset_us, which, position, left, looked_max)

        return await _take_steps(step, after, limit)

    async def list_due(self, which: JobFilter, after: Pair | None, limit: int) -> JobPage[Pair]:
        read = self._search if await self._flush_all() else self._read_unflushed

        def step(place: Pair | None, left: int, looked_max: int) -> Awaitable[JobPage[Pair]]:
            return read(due_search.search, self._offset_us, which, place, left, looked_max)

        return await _take_steps(step, after, limit)

    async def find_job_ids(self, which: JobFilter, before: int | None, limit: int) -> IdPage:
        read = self._search if self._is_settled else self._read_unflushed
        return IdPage(*await read(search_ids, self._offset_us, which, before, limit))

    async def settle(self) -> None:
        self._is_settled = await self._flush_all()
        await self._read(lambda connection: None)  # a store that is broken says so

    async def list_attempts(self, job_id: int) -> list[AttemptRecord]:
        found = await self._read(reads.fetch_all, queries.ATTEMPTS, (job_id,))
        return [rows.attempt_from_row(row) for row in found]

    async def list_output_sizes(self, job_id: int) -> list[OutputSize]:
        return await self._read(reads.output_sizes, job_id)

    async def read_output(self, job_id: int, piece: OutputPiece) -> bytes:
        return await self._read(reads.output_piece, job_id, piece)

    async def get_schedule(self, which: str | int) -> Schedule | None:
        return await self._read(reads.schedule_alone, self._offset_us, which)

    async def list_schedules(
        self, after: str | None, limit: int, which: ScheduleFilter = ANY_SCHEDULE
    ) -> SchedulePage:
        # Texts have no index: their search may be long.
        read = self._search if which.words else self._read
        return await read(schedule_search.search, self._offset_us, which, after, limit)

    async def count_schedules(self, overdue: Sequence[int]) -> ScheduleCounts:
        return await self._read(schedule_search.count, overdue)

    async def get_histories(self, schedule_ids: Sequence[int]) -> dict[int, RunHistory]:
        return await self._read(reads.histories, schedule_ids)

    async def list_schedule_statuses(self, after: int, limit: int) -> list[ScheduleStatus]:
        return await self._read(reads.schedule_statuses, after, limit)

    async def list_rules(self, after: int, limit: int) -> list[ScheduleRule]:
        return await self._read(reads.rules, self._offset_us, after, limit)

    async def list_owned(self, owner: str) -> list[str]:
        found: list[str] = []
        after: int | None = 0
        while after is not None:
            names, after = await self._read(reads.owned, owner, after)
            found += names
        return sorted(found)

    async def list_names(self, schedules_max: int, tags_max: int) -> StoredNames:
        schedules = await self._read(reads.names, queries.SCHEDULE_NAMES, schedules_max)
        tags = await self._read_jobs(reads.names, queries.TAGS, tags_max)
        return StoredNames(schedules, tags)

    async def list_decisions(
        self, schedule_id: int, limit: int, before: int | None = None
    ) -> DecisionPage:
        parameters = (schedule_id, INTEGER_MAX if before is None else before, limit + 1)
        found = await self._read(reads.fetch_all, queries.DECISIONS, parameters)
        page = [rows.decision_from_row(row[1:]) for row in found[:limit]]
        return DecisionPage(page, found[limit - 1][0] if len(found) > limit else None)

    async def list_log(
        self, which: LogFilter, before: int | None, limit: int
    ) -> list[NumberedEntry]:
        return await self._read(action_log.list_entries, which, before, limit)

    async def load_bulk_step(self, operation: int, before: int) -> BulkStep | None:
        return await self._read(bulk_steps.next_step, operation, before)

    async def list_bulk_changes(self, job_id: int) -> list[tuple[BulkOperation, int]]:
        return await self._read(bulk_steps.changes_of, job_id)

    async def load_minutes(self, after: int) -> list[tuple[int, str]]:
        return await self._read(reads.fetch_all, queries.MINUTES, (after,))

    async def load_tallies(
        self, dimension: Dimension, period: Period, after: int, before: int, limit: int
    ) -> list[tuple[int, str]]:
        parameters = (dimension, period, after, before, limit)
        return await self._read(reads.fetch_all, queries.TALLIES, parameters)

    async def find_idempotency_record(
        self, scope: str, fingerprint: bytes
    ) -> IdempotencyRecord | None:
        parameters = (fingerprint, scope)
        found = await self._read(reads.fetch_all, queries.IDEMPOTENCY_RECORD, parameters)
        return IdempotencyRecord(*found[0]) if found else None
