"""Common steps of the store tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schedo.core.changes import Changes
from schedo.core.job_filter import JobFilter, Order
from schedo.core.model import Job, Schedule
from schedo.core.states import State
from schedo.store.base import Reader, Snapshot, Store, Waiting

MINUTE = 60_000_000
LARGE = b'"' + b"x" * 5_000 + b'"'  # above PAYLOAD_INLINE_BYTES_MAX


class Claims:
    """The claims about a store; a store that does not outlive its close has another `reopen`."""

    async def reopen(self, store: Store) -> Snapshot:
        """Close and open the store, as the next server does."""
        await store.close()
        return await store.open()


def of_jobs(*jobs: Job) -> Changes:
    """Return changes with the jobs alone."""
    return Changes(jobs={job.id: job for job in jobs})


def of_schedules(*schedules: Schedule) -> Changes:
    """Return changes with the schedules alone."""
    return Changes(schedules={schedule.id: schedule for schedule in schedules})


async def put(store: Store, *jobs: Job) -> None:
    """Commit new jobs; from then on the store knows them."""
    await store.commit(of_jobs(*jobs))
    for job in jobs:
        job.is_new = False


async def listed(
    store: Store, before: int | None = None, limit: int = 100, **which: Any
) -> list[int]:
    """Return the ids of the jobs that the filter lists, up to the limit.

    A page may end before it, because a search gives way to others after some milliseconds.
    """
    found: list[int] = []
    while True:
        page, before, _ = await store.list_jobs(JobFilter(**which), before, limit - len(found))
        found += ids(page)
        if before is None or len(found) == limit:
            return found


async def counted(store: Store) -> Waiting:
    """Return the numbers of the waiting jobs."""
    return await store.count_waiting((await store.snapshot()).epoch)


async def all_jobs(store: Reader, order: Order = Order.NEWEST, **which: Any) -> list[Job]:
    """Return all jobs that the filter lists, from all pages."""
    jobs: list[Job] = []
    after: int | None = None
    while True:
        page, after, _ = await store.list_jobs(JobFilter(**which), after, 1_000_000, order)
        jobs += page
        if after is None:
            return jobs


def ids(found: Iterable[Job | Schedule]) -> list[int]:
    """Return the ids in order."""
    return [each.id for each in found]


def ended(job: Job, result: bytes = b"null") -> Job:
    """Return the job, completed."""
    job.state, job.ended_at, job.result = State.COMPLETED, 9, result
    return job
