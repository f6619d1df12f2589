"""What `schedo bench` does: submits jobs at a pace, follows them to their ends, keeps the times.

All jobs carry one tag, by which they are found again with the list API. The list is newest first
and gets no new members once all are submitted, so its pages stay what they are: a page whose jobs
have all ended is not asked for again.
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
from schedo.core.states import State
from schedo.errors import Overloaded, SchedoError
from schedo.protocol.times import parse_instant

_PAGE_JOBS = 500
_LOOK_S = 1.0  # how long one look waits for the oldest job that has not ended
_PAUSE_S = 0.05  # before a submit that was refused for now is sent again
_JSON = {"Content-Type": "application/json"}
_ENDED = ("completed_at", "failed_at", "cancelled_at", "expired_at")

Progress = Callable[[int], None]  # told how many more were submitted, or have ended


@dataclass(frozen=True, slots=True)
class Plan:
    """What to submit, and how."""

    job: Record  # task, payload and options
    count: int
    batch: int  # jobs in a request
    concurrency: int  # requests on their way at a time
    rate: float | None  # jobs a second; None: as fast as the server takes them
    patience_s: float  # how long nothing may end before the rest counts as lost
    tag: str

    def requests(self) -> Iterator[int]:
        """Yield the size of each request."""
        for start in range(0, self.count, self.batch):
            yield min(self.batch, self.count - start)


@dataclass(slots=True)
class Course:
    """How it went. Instants and durations are microseconds; ids are those that were accepted."""

    accepted_us: list[int] = field(default_factory=list)  # by job: request sent to answer
    ids: set[str] = field(default_factory=set)
    refused: list[SchedoError] = field(default_factory=list)
    submitting_us: int = 0
    ended: dict[str, Record] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """How many accepted jobs were not seen to end."""
        return len(self.ids - self.ended.keys())

    def count(self, state: State) -> int:
        """Return how many ended like this."""
        return sum(record["state"] == state for record in self.ended.values())

    def started_us(self) -> list[int]:
        """Return from due to start, by the server's clock, for each job that started."""
        return [
            _between(record, "scheduled_at", "started_at")
            for record in self.ended.values()
            if "started_at" in record
        ]

    def finished_us(self) -> list[int]:
        """Return from due to end, by the server's clock."""
        return [
            parse_instant(_ended_at(record)) - parse_instant(record["scheduled_at"])
            for record in self.ended.values()
        ]

    def whole_us(self) -> int:
        """Return from the first job's creation to the last one's end, by the server's clock."""
        if not self.ended:
            return 0
        first = min(parse_instant(record["created_at"]) for record in self.ended.values())
        return max(parse_instant(_ended_at(each)) for each in self.ended.values()) - first


def _between(record: Record, first: str, then: str) -> int:
    return parse_instant(record[then]) - parse_instant(record[first])


def _ended_at(record: Record) -> str:
    return next(str(record[name]) for name in _ENDED if name in record)


async def run_load(client: AsyncClient, plan: Plan, submitted: Progress, ended: Progress) -> Course:
    """Submit all jobs and return when all have ended, or nothing ends any more."""
    course = Course()
    await _submit_all(client, plan, course, submitted)
    await _Follower(client, plan, course, ended).follow()
    return course


async def _submit_all(client: AsyncClient, plan: Plan, course: Course, told: Progress) -> None:
    began = time.monotonic()
    sizes = plan.requests()
    sent = 0

    async def send_some() -> None:
        nonlocal sent
        for size in sizes:
            due, sent = sent / plan.rate if plan.rate else 0.0, sent + size
            await asyncio.sleep(max(0.0, began + due - time.monotonic()))
            await _submit(client, plan, size, course)
            told(size)

    senders = min(plan.concurrency, -(-plan.count // plan.batch))
    await asyncio.gather(*(send_some() for _ in range(senders)))
    course.submitting_us = round((time.monotonic() - began) * 1_000_000)


async def _submit(client: AsyncClient, plan: Plan, size: int, course: Course) -> None:
    operation = _make_submit({**plan.job, "tags": [plan.tag]}, size)
    began = time.monotonic()
    try:
        answers = await _insist(client, operation)
    except SchedoError as error:
        if error.code == "unreachable":
            raise
        answers = [error] * size
    took_us = round((time.monotonic() - began) * 1_000_000)
    for answer in answers:
        if isinstance(answer, SchedoError):
            course.refused.append(answer)
        else:
            course.ids.add(answer["id"])
            course.accepted_us.append(took_us)


async def _insist(client: AsyncClient, operation: Operation[Any]) -> list[Record | SchedoError]:
    """Send it until the server has room for it."""
    while True:
        try:
            answer = await client.send(operation)
        except Overloaded:
            await asyncio.sleep(_PAUSE_S)
        else:
            return [answer] if isinstance(answer, dict) else answer


def _make_submit(request: Record, size: int) -> Operation[Any]:
    """Return a submit without a key to repeat it by, which the server would store with the job."""
    if size == 1:
        made: Operation[Any] = operations.submit(request)
    else:
        (made,) = operations.submit_many([request] * size)
    return replace(made, headers=_JSON, is_repeatable=False)


class _Follower:
    """Looks at the pages of the run's jobs until all of them have ended."""

    def __init__(self, client: AsyncClient, plan: Plan, course: Course, told: Progress) -> None:
        self._client = client
        self._plan = plan
        self._course = course
        self._told = told
        self._oldest: str | None = None  # a job that has not ended, to wait for

    async def follow(self) -> None:
        pages: list[str | None] = await self._find_pages()
        last_news = time.monotonic()
        while self._course.lost and time.monotonic() - last_news < self._plan.patience_s:
            if self._oldest is not None:
                for wait in operations.wait_job(self._oldest, _LOOK_S, time.monotonic):
                    if is_final(await self._client.send(wait)):
                        break
            before = self._course.lost
            self._oldest = None
            pages = [page for page in pages if not await self._look(page)]
            if self._course.lost < before:
                last_news = time.monotonic()

    async def _find_pages(self) -> list[str | None]:
        """Go through the whole list once; return the pages that have not ended, oldest first."""
        pages: list[str | None] = []
        cursor: str | None = None
        while True:
            page = await self._list(cursor)
            if not self._take(page["items"]):
                pages.append(cursor)
            cursor = page["next_cursor"]
            if cursor is None:
                return pages[::-1]

    async def _look(self, cursor: str | None) -> bool:
        """Return whether all jobs of the page have ended."""
        return self._take((await self._list(cursor))["items"])

    async def _list(self, cursor: str | None) -> operations.Page:
        filters = {"tag": self._plan.tag}
        return await self._client.send(operations.list_jobs(filters, _PAGE_JOBS, cursor))

    def _take(self, records: list[Record]) -> bool:
        course = self._course
        before = len(course.ended)
        open_ids = [record["id"] for record in records if not is_final(record)]
        course.ended |= {each["id"]: each for each in records if is_final(each)}
        self._told(len(course.ended) - before)
        if open_ids and self._oldest is None:
            self._oldest = open_ids[-1]
        return not open_ids
