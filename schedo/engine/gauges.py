"""The engine's gauges for monitoring.

Most of them are read from memory. The store counts the waiting jobs, which takes half a second for
a million. So a count is made at most every few seconds, and takes at most a fixed share of the
time, however many jobs there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from typing import NamedTuple

from schedo.clock import Clock, elapsed_us
from schedo.core.limits import MILLISECOND, SECOND
from schedo.core.states import State
from schedo.engine.call_results import QueueStatus
from schedo.engine.clock_changes import behind_us
from schedo.engine.loop import EngineLoop
from schedo.engine.metrics import OTHER_QUEUES, Metrics
from schedo.engine.sharing import in_steps
from schedo.errors import SchedoError, StoreError
from schedo.store.base import Counts, Store

COUNT_AGE_MIN_US = 5 * SECOND
_COUNT_SHARE = 50  # a count may take one fiftieth of the time
CHEAP_COUNT_US = 5 * MILLISECOND  # a count that takes no longer is made for each request
_QUEUES_IN_A_STEP = 256
_SHARE_OF_READERS = 10  # a longer count may take one tenth of the time
WAITING_STATES = (State.SCHEDULED, State.BLOCKED, State.QUEUED, State.RETRYING)


class QueueGauges(NamedTuple):
    """The gauges of one queue, or of all queues that are counted as "other"."""

    running: int
    paused: int  # the number of paused queues
    waiting: dict[State, int]


class Gauges(NamedTuple):
    """The engine's gauges at one moment."""

    queues: dict[str, QueueGauges]
    count_age_us: int  # the age of the counts of waiting jobs
    index_entries: dict[str, int]  # of the paged indexes in memory
    backlogs_us: dict[str, int]  # how long the oldest overdue entry of each has been due
    records: int
    uncommitted: int
    workers: int
    slots: int
    slots_busy: int
    store_bytes: int
    lag_us: int
    clock_behind_us: int


class JobCounts:
    """The store's count of unfinished jobs; it is repeated only when it is old."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counts = Counts()
        self._counted_at = 0
        self._next_at = 0
        self._took_us = 0  # the last count
        self._counting: asyncio.Task[None] | None = None

    async def read(self) -> tuple[Counts, int]:
        """Return the counts and their age; the last ones if the store fails."""
        if elapsed_us(self._clock) >= self._next_at:
            self._start()
        if self._counting is not None:
            await asyncio.shield(self._counting)  # one count serves all callers
        return self._counts, elapsed_us(self._clock) - self._counted_at

    async def read_soon(self) -> tuple[Counts, int]:
        """Return the counts and their instant; they are current if counting is cheap.

        Else this returns the last counts at once and starts a count in the background, which takes
        at most a tenth of the time.
        """
        age_us = elapsed_us(self._clock) - self._counted_at
        if self._took_us <= CHEAP_COUNT_US:
            await asyncio.shield(self._start())
        elif age_us > _SHARE_OF_READERS * self._took_us:
            self._start()
        if self._counted_at == 0:
            raise StoreError("the jobs cannot be counted now")
        return self._counts, self._counted_at + self._clock.base_us

    def _start(self) -> asyncio.Task[None]:
        """Return the count that is under way, or a new one."""
        if self._counting is None:
            self._counting = asyncio.ensure_future(self._count())
        return self._counting

    async def _count(self) -> None:
        began_at = elapsed_us(self._clock)
        try:
            self._counts = await self._store.count_jobs()
            self._counted_at = elapsed_us(self._clock)
        except SchedoError:
            pass  # readiness reports that the store fails
        finally:
            now = elapsed_us(self._clock)
            self._took_us = now - began_at
            self._next_at = now + max(COUNT_AGE_MIN_US, _COUNT_SHARE * self._took_us)
            self._counting = None


async def list_queue_statuses(loop: EngineLoop, counts: JobCounts) -> Iterator[QueueStatus]:
    """Return the status of every queue with limits or unfinished jobs, by name; made one by one."""
    counted, counted_at = await counts.read_soon()
    names = sorted(counted.by_queue.keys() | set(loop.scheduler.queue_names()))
    return (_queue_status(loop, name, counted, counted_at) for name in names)


async def read_queue_status(loop: EngineLoop, counts: JobCounts, name: str) -> QueueStatus:
    """Return the status of a queue, also of one that has neither limits nor jobs."""
    return _queue_status(loop, name, *await counts.read_soon())


def _queue_status(loop: EngineLoop, name: str, counted: Counts, counted_at: int) -> QueueStatus:
    waiting = dict(counted.by_queue.get(name, {}))
    waiting.pop(State.RUNNING, None)
    return QueueStatus(*loop.scheduler.queue(name), waiting, counted_at)


async def read_gauges(loop: EngineLoop, store: Store, counts: JobCounts) -> Gauges:
    """Return the gauges at this moment."""
    counted, age_us = await counts.read()
    scheduler = loop.scheduler
    stats, delays = scheduler.stats(), scheduler.delays(loop.clock.now())
    return Gauges(
        await in_steps(_read_queues(loop, counted)),
        age_us,
        {"timers": stats.timers, "ready": stats.ready, "schedules": stats.schedules},
        {"jobs": delays.jobs_backlog_us, "schedules": delays.schedules_backlog_us},
        stats.jobs,
        loop.uncommitted,
        stats.workers,
        stats.slots,
        stats.slots_busy,
        await store.size_bytes(),
        loop.monitor.lag_us,
        behind_us(scheduler, loop.clock),
    )


def _read_queues(
    loop: EngineLoop, counted: Counts
) -> Generator[None, None, dict[str, QueueGauges]]:
    metrics: Metrics = loop.monitor.metrics
    scheduler = loop.scheduler
    names = sorted(counted.by_queue.keys() | set(scheduler.queue_names()))
    queues: dict[str, QueueGauges] = {}
    for number, name in enumerate(names, 1):
        if number % _QUEUES_IN_A_STEP == 0:
            yield
        label = metrics.name_queue(name)
        if label != OTHER_QUEUES:
            metrics.queue(name)  # it is measured by name from now on
        queue, running = scheduler.queue(name)
        by_state = counted.by_queue.get(name, {})
        known = queues.get(label) or QueueGauges(0, 0, dict.fromkeys(WAITING_STATES, 0))
        queues[label] = QueueGauges(
            known.running + running,
            known.paused + queue.paused,
            {state: known.waiting[state] + by_state.get(state, 0) for state in WAITING_STATES},
        )
    return queues
