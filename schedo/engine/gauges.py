"""The engine's gauges for monitoring, all of them from memory.

The store counts the waiting jobs once for each start and each recovery. From then on the scheduler
counts them with each commit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from schedo.core.states import State
from schedo.engine.call_results import QueueStatus
from schedo.engine.clock_changes import behind_us
from schedo.engine.loop import EngineLoop
from schedo.engine.metrics import OTHER_QUEUES, Metrics
from schedo.engine.sharing import in_steps
from schedo.errors import SchedoError, StoreError
from schedo.store.base import Store

_QUEUES_IN_A_STEP = 256
WAITING_STATES = (State.SCHEDULED, State.BLOCKED, State.QUEUED, State.RETRYING)


class QueueGauges(NamedTuple):
    """The gauges of one queue, or of all queues that are counted as "other"."""

    running: int
    paused: int  # the number of paused queues
    waiting: dict[State, int]
    oldest_due_us: int  # how long the first due job has waited; 0: no job waits after it was due


class Gauges(NamedTuple):
    """The engine's gauges at one moment."""

    queues: dict[str, QueueGauges]
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
    unserved: dict[str, int]  # due jobs in memory that no worker can run, by task


async def count_waiting(loop: EngineLoop, store: Store) -> Mapping[str, Mapping[State, int]]:
    """Return the numbers of waiting jobs by queue and state, as of the last commit.

    In the first seconds after the start of a large store, this waits until the store has counted.
    A recovery, such as that of a change of the shards, cuts the count; then it begins again. Raise
    StoreError if the store could not count.
    """
    while not (waiting := loop.scheduler.waiting).is_complete:
        scheduler = loop.scheduler
        try:
            found = await store.count_waiting(scheduler.epoch)
        except StoreError:
            with suppress(SchedoError):
                await loop.flush()  # it waits for a recovery that is under way
            if loop.scheduler is scheduler:
                raise
            continue
        if not waiting.is_complete:  # another caller may have waited, too
            waiting.add_snapshot(found)
    return waiting.by_queue


async def list_queue_statuses(loop: EngineLoop, store: Store) -> Iterator[QueueStatus]:
    """Return the status of every queue with limits or unfinished jobs, by name; made one by one."""
    waiting = await count_waiting(loop, store)
    names = sorted(waiting.keys() | set(loop.scheduler.queue_names()))
    return (describe_queue(loop, name, waiting) for name in names)


async def read_queue_status(loop: EngineLoop, store: Store, name: str) -> QueueStatus:
    """Return the status of a queue, also of one that has neither limits nor jobs."""
    return describe_queue(loop, name, await count_waiting(loop, store))


def describe_queue(
    loop: EngineLoop, name: str, waiting: Mapping[str, Mapping[State, int]]
) -> QueueStatus:
    """Return the status of a queue; `waiting`: the numbers of waiting jobs of all queues."""
    by_state = {state.value: count for state, count in waiting.get(name, {}).items()}
    queue, running, oldest_due_at = loop.scheduler.queue(name)
    return QueueStatus(queue, running, by_state, loop.clock.now(), oldest_due_at)


async def read_gauges(loop: EngineLoop, store: Store) -> Gauges:
    """Return the gauges at this moment; without waiting jobs if the store cannot count them."""
    waiting: Mapping[str, Mapping[State, int]] = {}
    with suppress(StoreError):  # readiness reports that the store fails
        waiting = await count_waiting(loop, store)
    scheduler = loop.scheduler
    stats, delays = scheduler.stats(), scheduler.delays(loop.clock.now())
    return Gauges(
        await in_steps(_read_queues(loop, waiting)),
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
        loop.unserved,
    )


def _read_queues(
    loop: EngineLoop, waiting: Mapping[str, Mapping[State, int]]
) -> Generator[None, None, dict[str, QueueGauges]]:
    metrics: Metrics = loop.monitor.metrics
    scheduler = loop.scheduler
    names = sorted(waiting.keys() | set(scheduler.queue_names()))
    queues: dict[str, QueueGauges] = {}
    for number, name in enumerate(names, 1):
        if number % _QUEUES_IN_A_STEP == 0:
            yield
        label = metrics.name_queue(name)
        if label != OTHER_QUEUES:
            metrics.queue(name)  # it is measured by name from now on
        queue, running, oldest_due_at = scheduler.queue(name)
        waited_us = 0 if oldest_due_at is None else max(0, loop.clock.now() - oldest_due_at)
        by_state = waiting.get(name, {})
        known = queues.get(label) or QueueGauges(0, 0, dict.fromkeys(WAITING_STATES, 0), 0)
        queues[label] = QueueGauges(
            known.running + running,
            known.paused + queue.paused,
            {state: known.waiting[state] + by_state.get(state, 0) for state in WAITING_STATES},
            max(known.oldest_due_us, waited_us),
        )
    return queues
