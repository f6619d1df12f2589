"""The callers that wait for the end of a job, or for the decision about an invocation."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager

from schedo.core.changes import Changes, Output
from schedo.core.keep import NOT_KEPT
from schedo.core.model import Job
from schedo.core.worker_messages import Decided
from schedo.engine.dropped_jobs import DroppedJobs
from schedo.engine.failures import OutcomeUnknown
from schedo.errors import NotFound, SchedoError, Unavailable


class EndWaiters:
    """The futures of the waiting callers, by job id."""

    def __init__(self) -> None:
        self._waiters: dict[int, list[asyncio.Future[Job]]] = {}
        self._unsure: set[int] = set()  # jobs whose ends a commit has on its way, or had
        self.dropped = DroppedJobs()

    @contextmanager
    def expect(self, job_id: int) -> Iterator[asyncio.Future[Job]]:
        """Yield a future of the job's final record."""
        waiter: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(job_id, []).append(waiter)
        try:
            yield waiter
        finally:
            waiters = self._waiters.get(job_id, [])
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters:
                self._waiters.pop(job_id, None)

    def has_ended(self, uncommitted: Set[int], find: Callable[[int], Job | None]) -> bool:
        """Whether a caller waits for the end of one of these jobs, and it has ended."""
        waiters = self._waiters
        if not waiters or waiters.keys().isdisjoint(uncommitted):
            return False
        ended = map(find, waiters.keys() & uncommitted)
        return any(job is not None and job.is_final for job in ended)

    def copy_ended(self, changes: Changes) -> list[Job]:
        """Return copies of the jobs that have ended and that a caller waits for, or may ask for."""
        waiters, jobs = self._waiters, changes.jobs.values() if self._waiters else ()
        ended = [job.copy() for job in jobs if job.id in waiters and job.is_final]
        self._unsure.update([job.id for job in ended])
        return ended + [job.copy() for job in changes.dropped if job.id not in waiters]

    def release(self, jobs: Sequence[Job], outputs: Sequence[Output]) -> None:
        """Complete the futures of the ended jobs, whose records are durable now, or dropped."""
        for job in jobs:
            self._unsure.discard(job.id)
            for waiter in self._waiters.pop(job.id, ()):
                if not waiter.done():
                    waiter.set_result(job)
        dropped = [job for job in jobs if job.kept_until == NOT_KEPT]
        if dropped:
            self.dropped.add(dropped, outputs, asyncio.get_running_loop().time())

    async def recovered(self, get: Callable[[int], Awaitable[Job | None]]) -> None:
        """Complete the waits for jobs whose ends a commit that failed has made durable after all.

        No later commit has these ends. get: reads a job of the store.
        """
        for job_id in self._unsure & self._waiters.keys():
            job = await get(job_id)
            if job is None:  # it is not kept
                self.end(job_id)
            elif job.is_final:
                self.release([job], ())
        self._unsure.clear()

    @property
    def awaited(self) -> Set[int]:
        """The ids of the jobs for whose ends callers wait."""
        return self._waiters.keys()

    def end(self, job_id: int) -> None:
        """End the waits for the job, with its present record."""
        for waiter in self._waiters.get(job_id, ()):
            waiter.cancel()

    def end_all(self) -> None:
        """End all waits, with the present records of their jobs."""
        for job_id in self._waiters:
            self.end(job_id)

    def fail_all(self, error: SchedoError) -> None:
        """Fail all waits: no end of a job comes any more, and nothing can be read of it."""
        for waiter in itertools.chain.from_iterable(self._waiters.values()):
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # retrieved: who waited may have gone


@contextmanager
def after_job_is_made() -> Iterator[None]:
    """Turn an error that says that nothing has happened into one that says that a job was made.

    Otherwise the client, or the router of a cluster, would make another job.
    """
    try:
        yield
    except (NotFound, Unavailable) as error:
        raise OutcomeUnknown(f"the job was made, but its end is not known here: {error}") from error


async def wait_for_end(
    waiter: asyncio.Future[Job],
    get: Callable[[], Awaitable[Job]],
    flush: Callable[[], Awaitable[None]],
    timeout_s: float,
) -> Job:
    """Return the job when it has ended, or its current record after the timeout.

    An end is durable before it is returned, also if it comes when the time is up. A job that is not
    kept is gone after the commit of its end, and only the waiter has it then.
    """
    try:
        if not _has_job(waiter):
            job = await get()
            if job.is_final:
                await flush()
                return job
            del job  # its payload may be large, and the wait long
            await asyncio.wait((waiter,), timeout=timeout_s)
        if _has_job(waiter):
            return waiter.result()
        job = await get()
        if job.is_final:
            await flush()
        return job
    except NotFound:
        await flush()
        if _has_job(waiter):
            return waiter.result()
        raise


def _has_job(waiter: asyncio.Future[Job]) -> bool:
    return waiter.done() and not waiter.cancelled()


class Decisions:
    """The futures of the callers that wait until it is decided whether invoked jobs begin."""

    def __init__(self) -> None:
        self._futures: dict[str, asyncio.Future[Decided]] = {}
        self._decided: list[Decided] = []

    @contextmanager
    def expect(self, id_: str) -> Iterator[asyncio.Future[Decided]]:
        """Yield a future of the decision about the invocation with this id."""
        future: asyncio.Future[Decided] = asyncio.get_running_loop().create_future()
        self._futures[id_] = future
        try:
            yield future
        finally:
            del self._futures[id_]

    def note(self, decided: Iterable[Decided]) -> None:
        """Note decisions; during a recovery the states of their jobs are not known yet."""
        self._decided += decided

    def release(self) -> None:
        """Complete the futures of the invocations that are decided."""
        decided, self._decided = self._decided, []
        for each in decided:
            future = self._futures.get(each.id)
            if future is not None and not future.done():
                future.set_result(each)
