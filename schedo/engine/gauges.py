"""How the engine stands at this moment, for whoever watches it.

Most of it is read from memory. How many jobs wait is counted by the store, which takes half a
second for a million; so that is asked at most every few seconds, and costs at most a part of the
time whatever the number.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from schedo.clock import Clock, elapsed_us
from schedo.core.limits import MILLISECOND, SECOND
from schedo.core.states import State
from schedo.engine.clock_changes import behind_us
from schedo.engine.loop import EngineLoop
from schedo.engine.metrics import OTHER_QUEUES, Metrics
from schedo.errors import SchedoError, StoreError
from schedo.store.base import Counts, Store

COUNT_AGE_MIN_US = 5 * SECOND
_COUNT_SHARE = 50  # a count may take one fiftieth of the time
CHEAP_COUNT_US = 5 * MILLISECOND  # a count that takes no longer is made for each request
_SHARE_OF_READERS = 10  # a dearer one may take one tenth of the time
WAITING_STATES = (State.SCHEDULED, State.BLOCKED, State.QUEUED, State.RETRYING)


class QueueGauges(NamedTuple):
    """One queue, or all those without a name of their own."""

    running: int
    paused: int  # how many of them are
    waiting: dict[State, int]


class Gauges(NamedTuple):
    """One moment of an engine."""

    queues: dict[str, QueueGauges]
    count_age_us: int  # how old the numbers of waiting jobs are
    windows: dict[str, int]  # entries in memory
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
    """The store's count of unfinished jobs, asked again only when it has become old."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counts = Counts()
        self._counted_at = 0
        self._next_at = 0
        self._took_us = 0  # the last count
        self._counting: asyncio.Task[None] | None = None

    async def read(self) -> tuple[Counts, int]:
        """Return the counts and their age; the last known ones if the store does not answer."""
        if elapsed_us(self._clock) >= self._next_at:
            self._start()
        if self._counting is not None:
            await asyncio.shield(self._counting)  # one count for all who ask meanwhile
        return self._counts, elapsed_us(self._clock) - self._counted_at

    async def read_soon(self) -> tuple[Counts, int]:
        """Return the counts and the instant they are of; present ones, if counting is cheap.

        Else the last known ones are returned at once, and counted again in the background, for a
        tenth of the time at most.
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
            pass  # readiness says that the store fails
        finally:
            now = elapsed_us(self._clock)
            self._took_us = now - began_at
            self._next_at = now + max(COUNT_AGE_MIN_US, _COUNT_SHARE * self._took_us)
            self._counting = None


async def read_gauges(turns: EngineLoop, store: Store, counts: JobCounts) -> Gauges:
    """Return how the engine stands."""
    counted, age_us = await counts.read()
    scheduler = turns.scheduler
    memory = scheduler.jobs
    workers = list(scheduler.workers)
    return Gauges(
        _read_queues(turns, counted),
        age_us,
        {
            "timers": len(memory.timers),
            "lanes": sum(len(window) for _, window in memory.ready_queues.ready_indexes()),
            "schedules": scheduler.schedules.armed,
        },
        {
            "jobs": memory.backlog.age_us(turns.clock.now()),
            "schedules": scheduler.schedules.order.backlog.age_us(turns.clock.now()),
        },
        len(memory),
        turns.uncommitted,
        len(workers),
        sum(worker.spec.slots for worker in workers if worker.is_open),
        sum(len(worker.running) for worker in workers),
        await store.size_bytes(),
        turns.monitor.lag_us,
        behind_us(scheduler, turns.clock),
    )


def _read_queues(turns: EngineLoop, counted: Counts) -> dict[str, QueueGauges]:
    metrics: Metrics = turns.monitor.metrics
    lines = {line.queue.name: line for line in turns.scheduler.jobs.ready_queues.queue_states()}
    queues: dict[str, QueueGauges] = {}
    for name in sorted(lines.keys() | counted.by_queue.keys()):
        label = metrics.name_queue(name)
        if label != OTHER_QUEUES:
            metrics.queue(name)  # keeps its name from now on
        line = lines.get(name)
        by_state = counted.by_queue.get(name, {})
        known = queues.get(label) or QueueGauges(0, 0, dict.fromkeys(WAITING_STATES, 0))
        queues[label] = QueueGauges(
            known.running + (line.running if line is not None else 0),
            known.paused + (line is not None and line.queue.paused),
            {state: known.waiting[state] + by_state.get(state, 0) for state in WAITING_STATES},
        )
    return queues
