"""The load of `schedo bench`: submits jobs at a rate, waits for their ends, collects the times.

All jobs carry one tag, by which the list API finds them. The list is newest first, and no job joins
it once all are submitted, so each page keeps its jobs. A page whose jobs have all ended is not
requested again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from schedo.client import operations
from schedo.client.aio import AsyncClient
from schedo.client.messages import Operation, Record
from schedo.client.records import is_final
from schedo.client.rest import Page
from schedo.core.states import State
from schedo.errors import Invalid, Overloaded, SchedoError
from schedo.protocol.times import parse_instant

_PAGE_JOBS = 500
_POLL_S = 1.0  # how long one request waits for the oldest unfinished job
_RETRY_DELAY_S = 0.05  # until a submit is repeated after a 429
_JSON = {"Content-Type": "application/json"}
_ENDED = ("completed_at", "failed_at", "cancelled_at", "expired_at")

Progress = Callable[[int], None]  # it receives the number of jobs submitted or ended since then


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The jobs to submit, and the rate at which they are submitted."""

    job: Record  # task, payload and options
    count: int
    batch: int  # jobs in a request
    concurrency: int  # requests under way at a time
    rate: float | None  # jobs a second; None: as fast as the server accepts them
    idle_timeout_s: float  # when no job ends for this time, the unfinished ones count as lost
    tag: str

    def requests(self) -> Iterator[int]:
        """Yield the number of jobs in each request."""
        for start in range(0, self.count, self.batch):
            yield min(self.batch, self.count - start)


@dataclass(slots=True)
class LoadResult:
    """The times and ends of the jobs. Instants and durations are in microseconds."""

    accepted_us: list[int] = field(default_factory=list)  # for each job: from request to response
    ids: set[str] = field(default_factory=set)  # of the accepted jobs
    refused: list[SchedoError] = field(default_factory=list)
    submitting_us: int = 0
    ended: dict[str, Record] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """The number of accepted jobs whose end was not observed."""
        return len(self.ids - self.ended.keys())

    def count(self, state: State) -> int:
        """Return the number of jobs that ended in this state."""
        return sum(record["state"] == state for record in self.ended.values())

    def started_us(self) -> list[int]:
        """Return the time from due to start, by the server's clock, of each job that started."""
        return [
            _between(record, "scheduled_at", "started_at")
            for record in self.ended.values()
            if "started_at" in record
        ]

    def finished_us(self) -> list[int]:
        """Return the time from due to end, by the server's clock, of each job."""
        return [
            parse_instant(_ended_at(record)) - parse_instant(record["scheduled_at"])
            for record in self.ended.values()
        ]

    def total_us(self) -> int:
        """Return the time from the first creation to the last end, by the server's clock."""
        if not self.ended:
            return 0
        first = min(parse_instant(record["created_at"]) for record in self.ended.values())
        return max(parse_instant(_ended_at(each)) for each in self.ended.values()) - first


def _between(record: Record, first: str, then: str) -> int:
    return parse_instant(record[then]) - parse_instant(record[first])


def _ended_at(record: Record) -> str:
    return next(str(record[name]) for name in _ENDED if name in record)


async def run_load(
    client: AsyncClient, plan: LoadPlan, submitted: Progress, ended: Progress
) -> LoadResult:
    """Submit all jobs; return when all have ended, or after the plan's idle timeout."""
    result = LoadResult()
    await _submit_all(client, plan, result, submitted)
    await _Follower(client, plan, result, ended).follow()
    return result


async def _submit_all(
    client: AsyncClient, plan: LoadPlan, result: LoadResult, on_progress: Progress
) -> None:
    began = time.monotonic()
    sizes = plan.requests()
    sent = 0

    async def send_some() -> None:
        nonlocal sent
        for size in sizes:
            due, sent = sent / plan.rate if plan.rate else 0.0, sent + size
            await asyncio.sleep(max(0.0, began + due - time.monotonic()))
            await _submit(client, plan, size, result)
            on_progress(size)

    senders = min(plan.concurrency, -(-plan.count // plan.batch))
    await asyncio.gather(*(send_some() for _ in range(senders)))
    result.submitting_us = round((time.monotonic() - began) * 1_000_000)


async def _submit(client: AsyncClient, plan: LoadPlan, size: int, result: LoadResult) -> None:
    operation = _make_submit({**plan.job, "tags": [plan.tag]}, size)
    began = time.monotonic()
    try:
        records = await _send_until_accepted(client, operation)
    except SchedoError as error:
        if error.code == "unreachable":
            raise
        records = [error] * size
    took_us = round((time.monotonic() - began) * 1_000_000)
    for record in records:
        if isinstance(record, SchedoError):
            result.refused.append(record)
        else:
            result.ids.add(record["id"])
            result.accepted_us.append(took_us)


async def _send_until_accepted(
    client: AsyncClient, operation: Operation[Any]
) -> list[Record | SchedoError]:
    """Send the request, and repeat it as long as the server answers 429."""
    while True:
        try:
            record = await client.send(operation)
        except Overloaded:
            await asyncio.sleep(_RETRY_DELAY_S)
        else:
            return [record] if isinstance(record, dict) else record


def _make_submit(request: Record, size: int) -> Operation[Any]:
    """Return a submit without an idempotency key, because the server would store the key."""
    if size == 1:
        made: Operation[Any] = operations.submit(request)
    else:
        made, *more = operations.submit_many([request] * size)
        if more:
            raise Invalid(f"{size} of these jobs are too large for one request: lower --batch")
    return replace(made, headers=_JSON, is_repeatable=False)


class _Follower:
    """Requests the pages of the list of jobs until all jobs have ended."""

    def __init__(
        self, client: AsyncClient, plan: LoadPlan, result: LoadResult, on_progress: Progress
    ) -> None:
        self._client = client
        self._plan = plan
        self._result = result
        self._on_progress = on_progress
        self._oldest: str | None = None  # the unfinished job to wait for

    async def follow(self) -> None:
        pages: list[str | None] = await self._find_pages()
        last_news = time.monotonic()
        while self._result.lost and time.monotonic() - last_news < self._plan.idle_timeout_s:
            if self._oldest is not None:
                for wait in operations.wait_job(self._oldest, _POLL_S, time.monotonic):
                    began = time.monotonic()
                    if is_final(await self._client.send(wait)):
                        break
                    await asyncio.sleep(wait.early_s(time.monotonic() - began))
            before = self._result.lost
            self._oldest = None
            pages = [page for page in pages if not await self._refresh_page(page)]
            if self._result.lost < before:
                last_news = time.monotonic()

    async def _find_pages(self) -> list[str | None]:
        """Read the whole list once; return the pages with unfinished jobs, oldest first."""
        pages: list[str | None] = []
        cursor: str | None = None
        while True:
            page = await self._list(cursor)
            if not self._record_ended(page["items"]):
                pages.append(cursor)
            cursor = page["next_cursor"]
            if cursor is None:
                return pages[::-1]

    async def _refresh_page(self, cursor: str | None) -> bool:
        """Return whether all jobs of the page have ended."""
        return self._record_ended((await self._list(cursor))["items"])

    async def _list(self, cursor: str | None) -> Page:
        filters = {"tag": self._plan.tag}
        return await self._client.send(operations.list_jobs(filters, _PAGE_JOBS, cursor))

    def _record_ended(self, records: list[Record]) -> bool:
        result = self._result
        before = len(result.ended)
        open_ids = [record["id"] for record in records if not is_final(record)]
        result.ended |= {each["id"]: each for each in records if is_final(each)}
        self._on_progress(len(result.ended) - before)
        if open_ids and self._oldest is None:
            self._oldest = open_ids[-1]
        return not open_ids
