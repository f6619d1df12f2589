"""Figures about the scheduler's memory, for monitoring."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from schedo.core.explain import Explainer
from schedo.core.job_table import JobTable
from schedo.core.model import Job, Queue, ReadyKey
from schedo.core.paged_index import PagedIndex
from schedo.core.pauses import Pauses
from schedo.core.remote_reasons import ALONE, Others
from schedo.core.schedule_table import ScheduleTable
from schedo.core.worker_pool import WorkerPool

KEYS_MAX = 256  # of ready keys (queue, task and requirements), in one look


class QueueStats(NamedTuple):
    """The limits of a queue, and how many of its jobs run."""

    queue: Queue
    running: int
    oldest_due_at: int | None = None  # of the jobs that are due and first among their like


class WaitingJob(NamedTuple):
    """A job that has been due for some time, and the first reason why it does not run."""

    job_id: int
    ready_key: ReadyKey
    due_at: int
    reason: str


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
    if state is None:
        return QueueStats(Queue(name), 0)
    first = [job.due_at for job in _first_jobs(islice(state.indexes.values(), KEYS_MAX), jobs)]
    return QueueStats(state.queue, state.running, min(first, default=None))


def find_waiting(
    jobs: JobTable,
    explainer: Explainer,
    due_before: int,
    limit: int,
    others_of: Callable[[ReadyKey], Others] = lambda _: ALONE,
) -> list[WaitingJob]:
    """Return jobs that were due before this instant and wait, the oldest first.

    It looks at the first jobs of KEYS_MAX ready keys, so that it takes the same time however many
    jobs wait. others_of: returns what the other servers of a cluster say about a ready key.
    """
    indexes = (index for _, index in islice(jobs.ready_queues.ready_indexes(), KEYS_MAX))
    due = [job for job in _first_jobs(indexes, jobs) if job.due_at < due_before]

    def describe(job: Job) -> WaitingJob:
        found = explainer.explain(job, 0, others_of(job.ready_key))
        return WaitingJob(job.id, job.ready_key, job.due_at, found.reasons[0])

    return [describe(job) for job in nsmallest(limit, due, key=attrgetter("due_at", "id"))]


def _first_jobs(indexes: Iterable[PagedIndex], jobs: JobTable) -> Iterator[Job]:
    """Yield the first job of each ready key; jobs of one rank start in the order of their ids."""
    for index in indexes:
        first = index.first()
        job = jobs.find(first[1]) if first is not None else None
        if job is not None:
            yield job


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


def find_surplus(
    jobs: JobTable, pauses: Pauses, most: int, skip: Container[ReadyKey] = ()
) -> dict[ReadyKey, int]:
    """Return up to `most` ready keys, but none of `skip`, with jobs that wait only for a worker.

    Each has the number of those in memory, as far as the limit of the queue lets them run.
    """
    found: dict[ReadyKey, int] = {}
    if pauses.starts:
        return found
    for ready_key, index in jobs.ready_queues.ready_indexes():
        queue_state = jobs.ready_queues.queue_state(ready_key.queue)
        is_waiting = len(index) and queue_state.is_open and not ready_key.isolated
        if is_waiting and ready_key not in skip:
            found[ready_key] = min(len(index), queue_state.free_slots)
            if len(found) == most:
                break
    return found


def count_slots(workers: WorkerPool) -> tuple[int, int]:
    """Return the slots of all open workers, and how many are in use; it goes through all.

    Each slot of a worker that polls one server of a cluster is counted by one server: one in use
    by that whose job it runs, the others by that which the worker polls. After a change of owners
    it may run more than it has slots.
    """
    slots = busy = 0
    for worker in workers:
        if worker.is_open:
            left = 0 if worker.spec.is_relayed else worker.spec.slots - worker.elsewhere
            slots += max(left, len(worker.running))
        busy += len(worker.running)
    return slots, busy
