"""Figures about the scheduler's memory, for monitoring."""

from __future__ import annotations

from typing import NamedTuple

from schedo.core.job_table import JobTable
from schedo.core.model import Queue
from schedo.core.pauses import Pauses
from schedo.core.schedule_table import ScheduleTable
from schedo.core.worker_pool import WorkerPool


class QueueStats(NamedTuple):
    """The limits of a queue, and how many of its jobs run."""

    queue: Queue
    running: int


class Delays(NamedTuple):
    """The first due instant of each order, and the age of each backlog's oldest entry."""

    job_due_at: int | None
    schedule_due_at: int | None
    jobs_backlog_us: int
    schedules_backlog_us: int


class Stats(NamedTuple):
    """The numbers of entries in each order, of records, and of workers' slots in use."""

    timers: int
    ready: int
    schedules: int
    jobs: int
    workers: int
    slots: int
    slots_busy: int


def read_queue(name: str, jobs: JobTable) -> QueueStats:
    """Return the figures of the queue; it has the default limits if it was never configured."""
    state = jobs.ready_queues.find_queue_state(name)
    return QueueStats(Queue(name), 0) if state is None else QueueStats(state.queue, state.running)


def read_delays(jobs: JobTable, schedules: ScheduleTable, pauses: Pauses, now: int) -> Delays:
    """Return the first due instants, and the ages of the backlogs; paused schedules have none."""
    timer, order = jobs.timers.first(), schedules.order
    if pauses.schedules:
        return Delays(timer and timer[0], None, jobs.backlog.age_us(now), 0)
    return Delays(
        timer and timer[0], order.fresh_at(), jobs.backlog.age_us(now), order.backlog.age_us(now)
    )


def read_stats(jobs: JobTable, schedules: ScheduleTable, workers: WorkerPool) -> Stats:
    """Count everything; this goes through all ready keys and all workers."""
    return Stats(
        len(jobs.timers),
        sum(len(index) for _, index in jobs.ready_queues.ready_indexes()),
        len(schedules.order),
        len(jobs),
        len(list(workers)),
        *count_slots(workers),
    )


def count_slots(workers: WorkerPool) -> tuple[int, int]:
    """Return the slots of all open workers, and how many are in use; it goes through all."""
    slots = busy = 0
    for worker in workers:
        slots += worker.spec.slots if worker.is_open else 0
        busy += len(worker.running)
    return slots, busy
