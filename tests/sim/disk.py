"""A disk that outlives the servers, and the faulty access of one server to it.

Commits and ordered loads run one after the other, each after a delay; other reads run in parallel.
A commit may fail before or after it is written, or the whole server may die during it. If the disk
breaks during a commit, that commit may still appear when the store is opened again.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

from schedo.core.changes import Changes
from schedo.core.job_filter import JobFilter, Order
from schedo.core.model import Job, LeaseKey
from schedo.core.states import State
from schedo.errors import SchedoError, StoreBroken, StoreError, StoreFull
from schedo.store.base import ClockMark, Retention, Snapshot
from schedo.store.pages import JobPage
from schedo.testing.loop import VirtualLoop
from tests.sim.trace import Broke, Marked, Pruned, Stored, StoreFailed
from tests.store.model import ModelStore

ORDERED = frozenset({"snapshot", "load", "load_running", "load_payload"})
# Monitoring: no job depends on it, and it must not change what a seed does.
UNHARMED = frozenset({"save_minute", "load_minutes", "session_key"})


@dataclasses.dataclass(frozen=True, slots=True)
class Faults:
    """The probability of each fault at one access, and the duration of an access."""

    commit_fails: float = 0.0  # half of the failures before the write and half after it
    load_fails: float = 0.0
    breaks: float = 0.0  # the disk breaks: the outcome of the commit is unknown
    dies: float = 0.0  # the server dies during the access, before or after its effect
    power_fails: float = 0.0  # the power fails just after a transaction that is not synced
    stalls: float = 0.0
    delay_s: float = 0.001
    stall_s: float = 20.0


NO_FAULTS = Faults()


class Rows(ModelStore):
    """A model that finds waiting and running jobs without a scan of the ended ones."""

    def __init__(self) -> None:
        super().__init__()
        self._unfinished: dict[int, Job] = {}

    async def list_jobs(
        self, which: JobFilter, after: int | None, limit: int, order: Order = Order.NEWEST
    ) -> JobPage[int]:
        unfinished, self._unfinished = self._unfinished, self._jobs
        try:
            return await super().list_jobs(which, after, limit, order)
        finally:
            self._unfinished = unfinished

    def _put_job(self, job: Job) -> None:
        super()._put_job(job)
        if job.is_final:
            self._unfinished.pop(job.id, None)
        else:
            self._unfinished[job.id] = self._jobs[job.id]

    def _page(
        self,
        is_wanted: Callable[[Job], bool],
        order: Callable[[Job], tuple[int, int]],
        after: tuple[int, int] | None,
        limit: int,
    ) -> list[Job]:
        jobs, self._jobs = self._jobs, self._unfinished
        try:
            return super()._page(is_wanted, order, after, limit)
        finally:
            self._jobs = jobs


class Disk:
    """The durable data, and the faults of the accesses to it."""

    def __init__(self, loop: VirtualLoop, random: Random, record: Callable[..., None]) -> None:
        self.loop = loop
        self.random = random
        self.record: Callable[..., None] = record
        self.faults = NO_FAULTS
        self.memory = Rows()
        self.returning: Changes | None = None  # a failed commit that may appear later
        self.begun: set[LeaseKey] = set()  # attempts whose start is on disk
        self.ended: set[LeaseKey] = set()  # attempts whose end is on disk
        self.was_killed = False  # the last server

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    async def write(self, changes: Changes) -> None:
        await self.memory.commit(changes)
        for job in changes.jobs.values():
            self.begun.add(job.key)
            if job.state is not State.RUNNING:
                self.ended.add(job.key)
        self.record(Stored, changes)

    async def save_clock(self, mark: ClockMark) -> None:
        await self.memory.save_clock(mark)
        self.record(Marked, mark.offset_us, mark.base_us)

    async def pass_time(self) -> None:
        faults = self.faults
        delay = faults.delay_s * self.random.expovariate(1.0)
        if self.chance(faults.stalls):
            delay += self.random.uniform(0, faults.stall_s)
        await self.loop.pass_time(delay)


class ServerStore:
    """A schedo.store.base.Store of one server; after its death nothing reaches the disk."""

    cluster = None  # the disk has one server at a time; __getattr__ would return a call

    def __init__(self, disk: Disk, die: Callable[[], None]) -> None:
        self._disk = disk
        self._die = die
        self._turn = asyncio.Lock()
        self.is_dead = False
        self.is_passed = False  # another server has the disk now
        self._is_broken = False
        self._is_open = False

    def die(self) -> None:
        """Stop all further writes to the disk."""
        self.is_dead = True
        if self._is_open and not self.is_passed:
            self._disk.was_killed = True

    def pass_on(self) -> None:
        """Leave the disk to the next server, after it was closed for it."""
        self.is_passed = True

    def abandon(self) -> None:
        """Release the resources of a dead process."""

    def _call(self, name: str) -> Callable[..., Awaitable[Any]]:
        call: Callable[..., Awaitable[Any]] = getattr(self._disk.memory, name)
        return call

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = self._call(name)
        if name in UNHARMED:
            return call

        async def ordered(*args: Any, **options: Any) -> Any:
            async with self._turn:
                await self._access()
                return await call(*args, **options)

        async def beside(*args: Any, **options: Any) -> Any:
            await self._access()
            return await call(*args, **options)

        return ordered if name in ORDERED else beside

    async def open(self) -> Snapshot:
        """Lock the disk; the changes of a broken commit may appear now."""
        await self._access()
        disk = self._disk
        if disk.returning is not None:
            await disk.memory.open()
            if disk.chance(0.5):
                await disk.write(disk.returning)
            disk.returning = None
            await disk.memory.close()
        opening = await disk.memory.open()
        await self._access()
        return self._opened(opening)

    def _opened(self, opening: Snapshot) -> Snapshot:
        self._is_open = True
        return dataclasses.replace(opening, was_killed=self._disk.was_killed)

    async def close(self, *, keep_log: bool = False) -> None:
        """Unlock the disk."""
        if not self.is_dead:
            self._is_open = self._disk.was_killed = False
            await self._disk.memory.close()

    async def recovered(self) -> None:
        """The disk notes deaths itself."""

    async def commit(self, changes: Changes) -> None:
        """Write the changes, unless a fault occurs before or after."""
        frozen = freeze(changes)
        disk = self._disk
        async with self._turn:
            await self._access(disk.faults.commit_fails / 2)
            if disk.chance(disk.faults.breaks):
                self._is_broken = True
                disk.returning = frozen
                self._fail(StoreBroken("the disk failed"))
            try:
                await disk.write(frozen)
            except StoreError as error:
                disk.record(Broke, f"the store failed without a fault: {error}")
                raise
            await self._access(disk.faults.commit_fails / 2)

    async def save_clock(self, mark: ClockMark) -> None:
        """Write the clock's position, unless a fault occurs before or after."""
        disk = self._disk
        async with self._turn:
            await self._access(disk.faults.commit_fails / 2)
            await disk.save_clock(mark)
            await self._access(disk.faults.commit_fails / 2)

    async def prune(self, now: int, retention: Retention, limit: int) -> int:
        """Delete the records whose retention has passed."""
        async with self._turn:
            await self._access()
            return await self._pruned(partial(self._disk.memory.prune, now, retention, limit))

    async def _pruned(self, prune: Callable[[], Awaitable[int]]) -> int:
        before = set(self._disk.memory._jobs)
        try:
            return await prune()
        finally:
            gone = before.difference(self._disk.memory._jobs)
            if gone:
                self._disk.record(Pruned, tuple(sorted(gone)))

    async def _access(self, fails: float | None = None) -> None:
        """Let time pass; perhaps let the server die or the access fail."""
        disk = self._disk
        await disk.pass_time()
        if not self.is_dead and disk.chance(disk.faults.dies):
            self._die()
        if self.is_dead:
            raise asyncio.CancelledError  # the caller is dead, too
        if self._is_broken:
            raise StoreBroken("the disk has failed")
        if disk.chance(disk.faults.load_fails if fails is None else fails):
            full = disk.chance(0.3) and fails is not None
            self._fail(StoreFull("no room") if full else StoreError("it flickered"))

    def _fail(self, error: SchedoError) -> None:
        self._disk.record(StoreFailed, error.code)
        raise error


def freeze(changes: Changes) -> Changes:
    """Return a copy of the changes, because a store reads them before its first await."""
    return dataclasses.replace(
        changes,
        jobs={ident: job.copy() for ident, job in changes.jobs.items()},
        schedules={ident: schedule.copy() for ident, schedule in changes.schedules.items()},
        schedules_deleted=list(changes.schedules_deleted),
        queues=dict(changes.queues),
        attempts=list(changes.attempts),
        outputs=list(changes.outputs),
        decisions=list(changes.decisions),
        ended_runs=list(changes.ended_runs),
        expectations={ident: each and each.copy() for ident, each in changes.expectations.items()},
        idempotency_records=list(changes.idempotency_records),
    )
